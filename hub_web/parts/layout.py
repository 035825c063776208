"""Cards, headings, empty states and the other things that every page is made of."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from nicegui import ui

from hub_web.texts import text as translate

Tone = Literal["plain", "good", "warn", "bad", "accent"]


class Words(ui.element):
    """An element with nothing but text in it, escaped.

    Args:
        tag: Of HTML.
    """

    def __init__(self, tag: str, text: str, classes: str = "") -> None:
        super().__init__(tag)
        self.set(text)
        self.classes(classes)

    def set(self, text: str) -> None:
        """Show another text."""
        self._text = text
        self.update()


def heading(text: str, *, level: Literal[1, 2, 3] = 2, classes: str = "") -> Words:
    """Make a heading; a page has one of level 1, which the frame makes."""
    return Words(f"h{level}", text, f"sb-h{level} {classes}")


def note(text: str, *, classes: str = "") -> Words:
    """Make a paragraph in the quieter colour."""
    return Words("p", text, f"sb-muted {classes}")


@contextmanager
def card(title: str = "", *, icon: str = "", classes: str = "") -> Iterator[ui.element]:
    """Make a card; the block makes its content.

    Yields:
        The place for its buttons, at the right of its title; enter it with ``with``.
    """
    with ui.element("section").classes(f"sb-card {classes}") as box:
        with ui.element("div").classes("sb-card-head") as head:
            if icon:
                ui.icon(icon).classes("sb-card-icon")
            if title:
                made = heading(title)
                box.props["aria-labelledby"] = made.html_id
                made.props["id"] = made.html_id
            tools = ui.element("div").classes("sb-card-tools")
        head.set_visibility(bool(title or icon))
        yield tools


def grid(*, least: int = 280) -> ui.element:
    """Make a grid of cards, in as many columns as fit.

    Args:
        least: Width of a column in pixels.
    """
    return ui.element("div").classes("sb-grid").style(f"--sb-least: {least}px")


def row(*, wrap: bool = True) -> ui.element:
    """Make a row of small things, centred on one line."""
    return ui.element("div").classes("sb-row" if wrap else "sb-row sb-nowrap")


def stack() -> ui.element:
    """Make a column of things below each other."""
    return ui.element("div").classes("sb-stack")


@contextmanager
def refilled(place: ui.element) -> Iterator[None]:
    """Empty a place; what is made in the block is its new content."""
    place.clear()
    with place:
        yield


@contextmanager
def empty(icon: str, title: str, text: str = "") -> Iterator[None]:
    """Make what is shown where there is nothing yet: what this is for, and in the block, what to do next."""
    with ui.element("div").classes("sb-empty"):
        ui.icon(icon).classes("sb-empty-icon")
        Words("h2", title, "sb-empty-title")
        if text:
            Words("p", text, "sb-muted")
        with ui.element("div").classes("sb-actions sb-centre"):
            yield


def badge(text: str, tone: Tone = "plain", *, icon: str = "") -> ui.element:
    """Make a small label; its colour never says more than its words."""
    with ui.element("span").classes(f"sb-badge sb-{tone}") as made:
        if icon:
            ui.icon(icon)
        Words("span", text)
    return made


def dot(tone: Tone, text: str) -> ui.element:
    """Make a state: a coloured dot and its words."""
    with ui.element("span").classes("sb-state") as made:
        ui.element("span").classes(f"sb-dot sb-{tone}").props("aria-hidden=true")
        Words("span", text)
    return made


def icon_button(icon: str, label: str, on_click: Callable[[], Any] | None = None) -> ui.button:
    """Make a small round button with a name that is seen by pointing at it."""
    made = ui.button(icon=icon, color=None, on_click=on_click).props("flat round dense").classes("sb-tool")
    made.props["aria-label"] = label
    if label:
        made.tooltip(label)
    return made


def facts(rows: dict[str, str]) -> ui.element:
    """Make a list of names with their values, those without a value left out."""
    with ui.element("dl").classes("sb-facts") as made:
        for name, value in rows.items():
            if value:
                Words("dt", name)
                Words("dd", value).props["title"] = value
    return made


def problem(message: str, hint: str = "") -> ui.element:
    """Make a box that says what is wrong, and what to do; both may be what the hub said."""
    with ui.element("div").classes("sb-problem").props("role=alert") as made:
        ui.icon("error_outline")
        with ui.element("div"):
            Words("p", translate.message(message), "sb-strong")
            if hint:
                Words("p", translate.message(hint), "sb-muted")
    return made


def actions() -> ui.element:
    """Make the row of buttons at the end of a dialog or a card."""
    return ui.element("div").classes("sb-actions")
