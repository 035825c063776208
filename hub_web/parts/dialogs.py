"""Dialogs: a question before something is done, and a frame for forms."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from nicegui import ui

from hub_web.parts.layout import Words, heading


async def ask(
    question: str, text: str, *, yes: str, no: str, danger: bool, show: Callable[[], Any] | None = None
) -> bool:
    """Ask for a yes; closing the dialog is a no.

    Args:
        show: Makes what is asked about.
    """
    with dialog(question, wide=show is not None) as box:
        if text:
            Words("p", text)
        if show is not None:
            show()
        with actions():
            kinds = ((no, "flat", False), (yes, "danger" if danger else "primary", True))
            for label, kind, answer in kinds:
                made = ui.button(label, color=None, on_click=partial(box.submit, answer))
                made.classes(f"sb-button sb-{kind}").props("no-caps unelevated")
                # What is long to read is not said yes to by a key that was pressed before it was read.
                if answer is (show is None):
                    made.props("autofocus")
    return bool(await box)


@contextmanager
def dialog(title: str, *, wide: bool = False) -> Iterator[ui.dialog]:
    """Make a dialog with a heading; what is made in the block stands in it. ``open()`` shows it, once.

    It belongs to the page as a whole: what it was opened from may be made anew meanwhile.
    """
    with ui.context.client.content, ui.element("div") as place:
        place.set_visibility(False)
        box = ui.dialog()
    box.on("hide", place.delete)
    box.on("hide", box.delete)
    box.props["aria-label"] = title
    with (
        box,
        ui.element("div").classes(f"sb-dialog {'sb-wide' if wide else ''}"),
        # A line end in a field presses the button of type submit, where there is one, and sends nothing.
        ui.element("form").classes("sb-contents").on("submit.prevent", lambda: None),
    ):
        heading(title)
        yield box


def actions() -> ui.element:
    """Make the row of buttons at the end of a dialog or a card."""
    return ui.element("div").classes("sb-actions")
