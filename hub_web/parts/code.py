"""Code, JSON and logs as they are."""

import json
from typing import Any

from nicegui import ui

from hub_web.parts.layout import Words


def code(text: str, *, label: str = "") -> ui.element:
    """Make a block of text in a fixed width, which scrolls by itself.

    Args:
        label: What it is, for a screen reader.
    """
    with ui.element("pre").classes("sb-code").props("tabindex=0") as made:
        if label:
            made.props["aria-label"] = label
            made.props["role"] = "region"
        Words("code", text)
    return made


def as_json(value: Any, *, label: str = "") -> ui.element:
    """Make a block with a JSON value."""
    return code(json.dumps(value, indent=2, ensure_ascii=False), label=label)
