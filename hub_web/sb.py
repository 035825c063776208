"""What every page is made of, as ``sb.card``, beside NiceGUI's own elements of ``ui``; and its handlers."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar

from nicegui import ui
from nicegui.awaitable_response import AwaitableResponse
from nicegui.slot import Slot

from contracts.errors import StrawberryError
from contracts.phrases import for_people
from hub_web.texts import text as translate

Tone = Literal["plain", "good", "warn", "bad", "accent"]
Cell = str | Callable[[], Any] | None
Made = TypeVar("Made", bound=ui.element)
T = TypeVar("T")
Handler = Callable[[], Awaitable[Any] | Any]
Callback = Callable[[], Awaitable[None]]
"""What a part of a page calls and waits for, mostly to read something and show it."""


class Words(ui.element):
    """An element with nothing but text in it, escaped.

    Args:
        tag: Of HTML.
        title: What is shown by pointing at it.
    """

    def __init__(self, tag: str, text: str, classes: str = "", *, title: str = "") -> None:
        super().__init__(tag)
        self.set(text)
        self.classes(classes)
        if title:
            self.props["title"] = title

    def set(self, text: str) -> None:
        """Show another text."""
        self._text = text
        self.update()


def named(made: Made, label: str) -> Made:
    """Set what a screen reader calls an element; return it."""
    made.props["aria-label"] = label
    return made


def sentence(text: str, classes: str = "", *, controls: Sequence[ui.element] = ()) -> ui.element:
    """Make a paragraph of a sentence whose important parts stand between ``**``.

    Args:
        controls: Of each of these parts: pressing it goes there.
    """
    parts = text.split("**")
    with ui.element("p").classes(classes) as made:
        for number, part in enumerate(parts):
            if number % 2 and len(controls) == len(parts) // 2:
                pressed = Words("button", part, "sb-part").props("type=button")
                pressed.on("click", partial(controls[number // 2].run_method, "focus"))
            else:
                Words("strong" if number % 2 else "span", part)
    return made


def cut(tag: str, text: str, classes: str = "", *, title: str = "") -> Words:
    """Make text that is cut where there is no room for it, and shown whole as a tooltip."""
    return Words(tag, text, f"sb-cut {classes}", title=title or text)


def heading(text: str, *, level: Literal[1, 2, 3] = 2, classes: str = "") -> Words:
    return Words(f"h{level}", text, f"sb-h{level} {classes}")


def note(text: str, *, classes: str = "") -> Words:
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


@contextmanager
def folded(summary: str) -> Iterator[None]:
    """Make what is one click behind some words; the block makes its content."""
    with ui.element("details").classes("sb-more"):
        Words("summary", summary)
        with stack():
            yield


def grid(*, least: int = 280) -> ui.element:
    """Make a grid of cards, in as many columns as fit.

    Args:
        least: Width of a column in pixels.
    """
    return ui.element("div").classes("sb-grid").style(f"--sb-least: {least}px")


def row(*, wrap: bool = True) -> ui.element:
    return ui.element("div").classes("sb-row" if wrap else "sb-row sb-nowrap")


def stack() -> ui.element:
    return ui.element("div").classes("sb-stack")


@contextmanager
def refilled(place: ui.element) -> Iterator[None]:
    """Empty a place; what is made in the block is its new content."""
    place.clear()
    with place:
        yield


def build_unfolded(fold: ui.element, place: ui.element, build: Callable[[], None]) -> None:
    """Build what is in a ``details`` element when it is first unfolded: a device may have 1,000 methods."""

    def fill() -> None:
        if not place.default_slot.children:
            with place:
                build()

    if "open" in fold.props:
        fill()
    else:
        fold.on("toggle", fill)


def empty(icon: str, title: str, text: str = "") -> ui.element:
    """Show what a place is for where there is nothing yet; return where to say what to do next."""
    with ui.element("div").classes("sb-empty"):
        ui.icon(icon).classes("sb-empty-icon")
        Words("h2", title, "sb-empty-title")
        if text:
            Words("p", text, "sb-muted")
        return ui.element("div").classes("sb-actions sb-centre")


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
    if label:
        made.tooltip(label)
    return named(made, label)


def facts(*rows: tuple[str, str]) -> ui.element:
    """Make a list of names with their values, those without a value left out."""
    with ui.element("dl").classes("sb-facts") as made:
        for name, value in rows:
            if value:
                Words("dt", name)
                Words("dd", value, title=value)
    return made


def problem(message: str, hint: str = "") -> ui.element:
    """Make a box that says what is wrong, and what to do; both may be what the hub said."""
    with ui.element("div").classes("sb-problem").props("role=alert") as made:
        ui.icon("error_outline")
        with ui.element("div"):
            Words("p", translate.sentence(message), "sb-strong")
            if hint:
                Words("p", translate.sentence(hint), "sb-muted")
    return made


def failure(error: StrawberryError) -> ui.element:
    return problem(error.message, for_people(error.hint))


def actions() -> ui.element:
    return ui.element("div").classes("sb-actions")


class Table:
    """Rows of texts or of anything that a function makes.

    Args:
        columns: Their headings; an empty one is a column of buttons.
        label: What the table shows, for a screen reader.
    """

    def __init__(self, columns: Sequence[str], *, label: str) -> None:
        self._columns = columns
        frame = ui.element("div").classes("sb-table-frame").props("tabindex=0 role=group")
        with named(frame, label), ui.element("table").classes("sb-table"):
            with ui.element("thead"), ui.element("tr"):
                for column in columns:
                    Words("th", column).props("scope=col") if column else Words("td", "")
            self._body = ui.element("tbody")

    def show(self, rows: Iterable[Sequence[Cell]]) -> None:
        """Show these rows and no others.

        Args:
            rows: A cell is its text, or a function that makes its content.
        """
        with refilled(self._body):
            for cells in rows:
                with ui.element("tr"):
                    for column, cell in zip(self._columns, cells, strict=True):
                        with ui.element("td") as made:
                            made.props["data-label"] = column
                            if callable(cell):
                                cell()
                            elif cell:
                                Words("span", cell, title=cell)


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, label: str) -> Table:
    """Make a table with its rows."""
    made = Table(columns, label=label)
    made.show(rows)
    return made


def code(content: str, *, label: str = "") -> ui.element:
    """Make a block of text in a fixed width, which scrolls by itself.

    Args:
        label: What it is, for a screen reader.
    """
    with ui.element("pre").classes("sb-code").props("tabindex=0") as made:
        if label:
            named(made, label).props("role=region")
        Words("code", content)
    return made


def as_json(value: Any, *, label: str = "") -> ui.element:
    return code(json.dumps(value, indent=2, ensure_ascii=False), label=label)


def one_at_a_time(read: Callback) -> Callback:
    """Make a function that reads and shows something run once at a time, and once more if called meanwhile.

    So an older answer never replaces a newer one.
    """
    running, waits = asyncio.Lock(), False

    async def run() -> None:
        nonlocal waits
        if waits:
            return
        waits = True
        try:
            await running.acquire()
        finally:
            waits = False
        try:
            await read()
        finally:
            running.release()

    return run


async def tell(on_event: Callable[[T], Any], event: T, slot: Slot) -> None:
    with slot:
        await handled(partial(on_event, event))


async def handled(handler: Handler) -> None:
    result = handler()
    # To await a dialog, which ``close`` returns, would open it again; a page that is left answers no script.
    if inspect.isawaitable(result) and not isinstance(result, (ui.element, AwaitableResponse)):
        await result
