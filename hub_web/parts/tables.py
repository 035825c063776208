"""Tables that are cards on a phone."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from nicegui import ui

from hub_web.parts.layout import Words

_FIRST: Final = 10
"""Rows of a paged table at first, and how many more at a time."""

Cell = str | Callable[[], Any] | None


class Table:
    """Rows of texts or of anything that a function makes.

    Args:
        columns: Their headings; an empty one is a column of buttons.
        label: What the table shows, for a screen reader.
        more: Words of the button that shows more than the first rows.
    """

    def __init__(self, columns: Sequence[str], *, label: str, more: str = "") -> None:
        self._columns = columns
        self._rows: list[Sequence[Cell]] = []
        with ui.element("div").classes("sb-table-frame").props("tabindex=0 role=region") as frame:
            frame.props["aria-label"] = label
            with ui.element("table").classes("sb-table"):
                with ui.element("thead"), ui.element("tr"):
                    for column in columns:
                        Words("th" if column else "td", column).props("scope=col")
                self._body = ui.element("tbody")
        self._more: ui.button | None = None
        if more:
            self._more = ui.button(more, icon="expand_more", color=None, on_click=self._show_more)
            self._more.classes("sb-button sb-plain").props("no-caps unelevated")

    def show(self, rows: Iterable[Sequence[Cell]]) -> None:
        """Show these rows and no others.

        Args:
            rows: A cell is its text, or a function that makes what stands in it.
        """
        self._body.clear()
        self._rows = list(rows)
        self._show_more()

    def _show_more(self) -> None:
        first = len(self._rows) if self._more is None else _FIRST
        shown, self._rows = self._rows[:first], self._rows[first:]
        if self._more is not None:
            self._more.set_visibility(bool(self._rows))
        with self._body:
            for row in shown:
                with ui.element("tr"):
                    for column, cell in zip(self._columns, row, strict=True):
                        with ui.element("td") as made:
                            made.props["data-label"] = column
                            if callable(cell):
                                cell()
                            elif cell:
                                Words("span", cell).props["title"] = cell


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, label: str, more: str = "") -> Table:
    """Make a table with its rows."""
    made = Table(columns, label=label, more=more)
    made.show(rows)
    return made
