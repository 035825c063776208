"""An answer shown as Markdown, block by block while it comes.

Imported when the first piece of an answer is there: Rich takes longer to import than a request to be sent.
"""

import re
from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment

from deploy.logs.terminal import visible

_FENCE: Final = re.compile(r"^ {0,3}(```+|~~~+)")


class MarkdownScreen:
    """Redraws the last block (a paragraph, a list, a program) with each piece until it is complete."""

    def __init__(self) -> None:
        self.is_empty = True
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._block = ""
        self._follows = False

    def write(self, text: str) -> None:
        """Show the next piece."""
        self.is_empty = False
        *complete, self._block = _blocks(self._block + text)
        for block in complete:
            self._show(block)
            self._end_block()
        self._show(self._block)

    def interrupt(self) -> None:
        """End the block."""
        self._end_block()
        self._block = ""

    def _show(self, block: str) -> None:
        if not block.strip():
            return
        if self._live is None:
            if self._follows:
                self._console.print()
            self._follows = True
            self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="ellipsis")
            self._live.start()
        self._live.update(_Safe(block), refresh=True)

    def _end_block(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class _Safe:
    """Markdown without anything that a terminal would obey.

    It is made visible after rendering: Markdown has its own ways to write a control character (``&#27;``).
    """

    def __init__(self, text: str) -> None:
        # A link is shown with its address: its text alone could name another one.
        self._markdown = Markdown(visible(text), hyperlinks=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options, pad=False)
        # Some blocks bring blank lines around them, others do not; there is one between any two.
        filled = [number for number, line in enumerate(lines) if "".join(each.text for each in line).strip()]
        for line in lines[filled[0] : filled[-1] + 1] if filled else ():
            for segment in line:
                yield segment if segment.control else Segment(visible(segment.text), segment.style)
            yield Segment.line()


def _blocks(text: str) -> Iterator[str]:
    """Split at blank lines that are not in a fenced program; the last one may be incomplete."""
    block, fence = "", ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == mark[1] and mark[1].startswith(fence):
            fence = ""
        block += line
        if not fence and not line.strip() and line.endswith("\n"):
            if block.strip():
                yield block
            block = ""
    yield block
