"""The icon: a strawberry, with a mark for each state; drawn, so that it is sharp at any size."""

from functools import cache
from importlib.resources import files
from typing import Final

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QBrush, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from tray.spoke import State

SIZES: Final = (16, 22, 24, 32, 48, 64)
"""Those that panels ask for, in pixels."""

_SIDE: Final = 64.0
"""Of the square that all coordinates here and in the drawing are in."""


@cache
def icon(state: State) -> QIcon:
    """Return the icon of a state."""
    made = QIcon()
    for side in SIZES:
        made.addPixmap(picture(state, side))
    return made


def picture(state: State, side: int) -> QPixmap:
    """Return the icon as a square picture."""
    pixmap = QPixmap(side, side)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.scale(side / _SIDE, side / _SIDE)
    _draw(painter, "berry-grey" if state == "absent" else "berry")
    if _drawing().elementExists(state):
        _draw_ring(painter)
        _draw(painter, state)
    painter.end()
    return pixmap


@cache
def _drawing() -> QSvgRenderer:
    return QSvgRenderer((files("tray") / "icon.svg").read_bytes())


def _draw(painter: QPainter, element: str) -> None:
    _drawing().render(painter, element, _drawing().boundsOnElement(element))


def _draw_ring(painter: QPainter) -> None:
    """Cut a hole for the mark, through which the panel shows whatever its colour."""
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_Clear)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QBrush(Qt.GlobalColor.black))
    painter.drawEllipse(QPointF(47, 47), 17, 17)
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceOver)
