"""Markdown of a model or of a person, made harmless on the server before a browser sees it."""

import html
import re
from functools import lru_cache
from typing import Final

from markdown_it import MarkdownIt
from nicegui import ui

from hub_web import limits
from hub_web.texts import text as text_of_page

_LINK: Final = re.compile(r"^(https?:|mailto:|/(?!/)|#)", re.IGNORECASE)
"""Addresses that a link may have; anything else, such as ``javascript:``, is shown as text."""
_RULE: Final = " \t|:->*+.)0123456789"
"""Of the line below the head of a table, also in a list or a quotation."""
_SCROLLING: Final = re.compile(r"<(pre|table)>")
_TASK: Final = re.compile(r"<li>(\s*<p>)?\[([ xX])\] ")
_LANGUAGES: Final = frozenset(
    {"bash", "css", "html", "ini", "javascript", "json", "python", "sql", "toml", "yaml"}
)
_ALIASES: Final = {"js": "javascript", "py": "python", "sh": "bash", "shell": "bash", "yml": "yaml"}


def _renderer() -> MarkdownIt:
    options = {"html": False, "linkify": False, "breaks": True, "highlight": _highlighted}
    made = MarkdownIt("commonmark", options)
    made.enable(["table", "strikethrough"])
    made.validateLink = lambda url: bool(_LINK.match(url.strip()))  # type: ignore[method-assign]
    # Images of other origins would tell that a text is read, and what their address holds.
    made.add_render_rule("image", _image)
    made.add_render_rule("link_open", _link)
    return made


@lru_cache(maxsize=200)
def _highlighted(code: str, language: str, attributes: str) -> str:
    """Return the HTML of code in colours; empty where its language is not known, or it is long."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    name = _ALIASES.get(language.lower(), language.lower())
    if name not in _LANGUAGES or len(code) > limits.MOST_HIGHLIGHTED:
        return ""
    lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="sb-hl-")))


def _image(self: object, tokens: list, index: int, options: object, env: object) -> str:  # type: ignore[type-arg]
    token = tokens[index]
    return f'<span class="sb-no-image">{html.escape(token.content or str(token.attrs.get("src", "")))}</span>'


def _link(self, tokens, index, options, env) -> str:  # type: ignore[no-untyped-def]
    address = html.escape(str(tokens[index].attrs.get("href", "")))
    return f'<a href="{address}" rel="noopener noreferrer" target="_blank">'


_MARKDOWN: Final = _renderer()
_PLAIN: Final = _renderer().disable(["table", "reference"])


def _cells(text: str) -> int:
    """Return how many cells its tables may have; an address that is used often counts by its length."""
    cells = columns = longest = 0
    for line in text.splitlines():
        if not line.strip():
            columns = 0
        elif not line.strip(_RULE):
            columns = max(columns, line.count("|") + 1)
        cells += columns
        longest = max(longest, len(line))
    used = text.count("[") if "]:" in text else 0
    return cells + used * longest // limits.CHARS_PER_CELL


def rendered(text: str) -> str:
    """Return the HTML of a text: no HTML of its own, no images, links only to the web and to our pages."""
    made = str((_MARKDOWN if _cells(text) <= limits.MOST_CELLS else _PLAIN).render(text))
    made = _TASK.sub(_task, made)
    copy = html.escape(text_of_page("Copy the code"), quote=True)
    icon = '<i class="material-icons" aria-hidden="true">content_copy</i>'
    button = f'<button type="button" class="sb-copy" aria-label="{copy}">{icon}</button>'
    made = made.replace("<pre>", f'<div class="sb-block">{button}<pre>').replace("</pre>", "</pre></div>")
    # What is too wide scrolls by itself, for a keyboard as well.
    return _SCROLLING.sub(r'<\1 tabindex="0">', made)


def _task(item: re.Match[str]) -> str:
    is_done = item[2] != " "
    said = text_of_page("done") if is_done else text_of_page.of("a task", "not done")
    label = html.escape(said, quote=True)
    checked = " checked" if is_done else ""
    return (
        f'<li class="sb-task">{item[1] or ""}<input type="checkbox" disabled aria-label="{label}"{checked}> '
    )


class Markdown(ui.html):
    """A text that may change.

    Attributes:
        source: The text.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(rendered(text), sanitize=False)
        self.source = text
        self.classes("sb-text")

    def show(self, text: str) -> None:
        """Show another text."""
        self.source = text
        self.set_content(rendered(text))
