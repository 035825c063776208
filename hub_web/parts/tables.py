"""Tables that are cards on a phone."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nicegui import ui

from hub_web.parts.layout import Words, refilled

Cell = str | Callable[[], Any] | None


class Table:
    """Rows of texts or of anything that a function makes.

    Args:
        columns: Their headings; an empty one is a column of buttons.
        label: What the table shows, for a screen reader.
    """

    def __init__(self, columns: Sequence[str], *, label: str) -> None:
        self._columns = columns
        with ui.element("div").classes("sb-table-frame").props("tabindex=0 role=region") as frame:
            frame.props["aria-label"] = label
            with ui.element("table").classes("sb-table"):
                with ui.element("thead"), ui.element("tr"):
                    for column in columns:
                        Words("th" if column else "td", column).props("scope=col")
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
                                Words("span", cell).props["title"] = cell


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, label: str) -> Table:
    """Make a table with its rows."""
    made = Table(columns, label=label)
    made.show(rows)
    return made
