"""What a command prints: JSON for programs, tables and lines for people."""

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from deploy import limits
from deploy.cli.terminal.tables import cell, table
from deploy.logs.terminal import visible

T = TypeVar("T")

_CLEAR_LINE: Final = "\r\x1b[K"


@dataclass(frozen=True)
class Output:
    """Where a command's result goes.

    Attributes:
        as_json: Whether the result is printed as one JSON document.
    """

    as_json: bool

    def result(self, value: Any, *, text: str | None = None) -> None:
        """Print a result: as JSON, or as ``text`` (the value itself where none is given)."""
        if self.as_json:
            print(_document(value), flush=True)
        elif text is not None:
            print(visible(text))
        elif value is not None:
            print(visible(value) if isinstance(value, str) else _document(value, indent=2))

    def rows(
        self,
        rows: Sequence[T],
        cells: Callable[[T], Mapping[str, object]],
        *,
        empty: str,
        answer: object = None,
    ) -> None:
        """Print a list of objects: as JSON, or as a table.

        Args:
            cells: Returns a row as a person reads it, by the headings of its columns.
            empty: What a person reads where there are none.
            answer: What is printed as JSON where that is more than the rows.
        """
        if self.as_json:
            self.result(answer or list(rows))
        elif rows:
            shown = [cells(row) for row in rows]
            texts = [[cell(value) for value in row.values()] for row in shown]
            print(table(texts, list(shown[0]), width=screen_width()))
        else:
            print(empty)


def columns(*names: str) -> Callable[[object], Mapping[str, object]]:
    return lambda row: {name: getattr(row, name) for name in names}


def screen_width() -> int | None:
    # None where the result goes to a program.
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _document(value: Any, *, indent: int | None = None) -> str:
    return visible(json.dumps(value, ensure_ascii=False, indent=indent, default=_json))


def _json(value: object) -> Any:
    """Return the JSON of a model, as the hub sends it."""
    # Here: an answer that came as JSON is printed without pydantic.
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Yield what shows a text in one line of a terminal, which is clear at the end; nothing elsewhere."""
    shown = ""

    def show(text: str) -> None:
        nonlocal shown
        if text != shown and sys.stderr.isatty():
            print(f"{_CLEAR_LINE}{visible(text)}", end="", file=sys.stderr, flush=True)
            shown = text

    try:
        yield show
    finally:
        show("")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a person at a terminal that something that takes over a second is under way."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        started = time.monotonic()
        with progress_line() as line:
            while not done.wait(limits.PROGRESS_TICK_S):
                line(f"  {what}, {time.monotonic() - started:.0f} s ")

    ticker = threading.Thread(target=show, name="show waiting", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def note(text: str) -> None:
    print(visible(text), file=sys.stderr, flush=True)
