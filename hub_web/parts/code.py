"""Code, JSON and texts as they are."""

import json
import re
from typing import Any, Final

from nicegui import ui

from hub_web.parts.layout import Words
from hub_web.texts import text

_MARKED: Final = re.compile(r"<data [^>]*>\n(.*)\n</data>", re.DOTALL)


def code(content: str, *, label: str = "") -> ui.element:
    """Make a block of text in a fixed width, which scrolls by itself.

    Args:
        label: What it is, for a screen reader.
    """
    with ui.element("pre").classes("sb-code").props("tabindex=0") as made:
        if label:
            made.props["aria-label"] = label
            made.props["role"] = "region"
        Words("code", content)
    return made


def written(value: Any) -> str:
    """Return a text as it is, without the mark that tells a model where it is from; anything else as JSON."""
    if not isinstance(value, str):
        return json.dumps(value, indent=2, ensure_ascii=False)
    marked = _MARKED.fullmatch(value)
    return marked[1] if marked else value


def as_json(value: Any, *, label: str = "") -> ui.element:
    """Make a block with a JSON value."""
    return code(json.dumps(value, indent=2, ensure_ascii=False), label=label)


def show_work(arguments: Any, result: Any) -> None:
    """Show what a tool or a skill was given, its program apart from the rest, and what it returned."""
    given, program = arguments, None
    if isinstance(arguments, dict) and isinstance(arguments.get("code"), str):
        program, given = arguments["code"], {k: v for k, v in arguments.items() if k != "code"}
    for label, value in ((text("Program"), program), (text("Arguments"), given), (text("Result"), result)):
        if value not in (None, "", {}):
            Words("p", label, "sb-muted sb-small")
            code(written(value), label=label)


def escaped(content: str) -> str:
    """Return a text in which characters that are not seen, or turn others round, are written as numbers."""
    return "".join(each if each.isprintable() or each == "\n" else f"\\u{ord(each):04x}" for each in content)
