"""The icon: a strawberry, with a mark for each state; drawn, so that it is sharp at any size."""

from collections.abc import Callable
from functools import cache
from typing import Final

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QIcon, QPainter, QPainterPath, QPen, QPixmap

from tray.spoke import State

SIZES: Final = (16, 22, 24, 32, 48, 64)
"""Those that panels ask for, in pixels."""

_SIDE: Final = 64.0
"""Of the square that all coordinates here are in."""
_SEEDS: Final = ((22, 31), (33, 29), (43, 32), (27, 41), (38, 42), (32, 51))
_AMBER: Final = "#f0a020"
_GREEN: Final = "#2fae62"
_GREY: Final = "#8c8587"


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
    _draw_berry(painter, is_grey=state == "absent")
    if (mark := _MARKS.get(state)) is not None:
        _draw_ring(painter)
        mark(painter)
    painter.end()
    return pixmap


def _draw_berry(painter: QPainter, *, is_grey: bool) -> None:
    body = QPainterPath(QPointF(32, 61))
    body.cubicTo(18, 54, 6, 40, 6, 27)
    body.cubicTo(6, 17, 14, 13, 21, 14)
    body.cubicTo(25, 14.6, 28, 17, 32, 17)
    body.cubicTo(36, 17, 39, 14.6, 43, 14)
    body.cubicTo(50, 13, 58, 17, 58, 27)
    body.cubicTo(58, 40, 46, 54, 32, 61)
    leaves = QPainterPath(QPointF(32, 24))
    for first, second, tip in (
        ((24, 24), (18, 20), (15, 12)),
        ((21, 9), (26, 10), (29, 13)),
        ((28, 8), (30, 4), (33, 2)),
        ((36, 5), (36, 9), (35, 13)),
        ((38, 10), (43, 9), (49, 12)),
        ((46, 20), (40, 24), (32, 24)),
    ):
        leaves.cubicTo(*first, *second, *tip)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(_GREY if is_grey else "#d92f4b"))
    painter.drawPath(body)
    painter.setBrush(QColor("#6f696b" if is_grey else "#35a35f"))
    painter.drawPath(leaves)
    painter.setBrush(QColor("#d9d4d5" if is_grey else "#ffe3b8"))
    for x, y in _SEEDS:
        painter.drawEllipse(QPointF(x, y), 2.0, 2.9)


def _draw_ring(painter: QPainter) -> None:
    """Cut a hole for the mark, through which the panel shows whatever its colour."""
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_Clear)
    painter.setBrush(QBrush(Qt.GlobalColor.black))
    painter.drawEllipse(QPointF(47, 47), 17, 17)
    painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceOver)


def _draw_alone(painter: QPainter) -> None:
    painter.setBrush(QColor(_AMBER))
    painter.drawEllipse(QPointF(47, 47), 12, 12)


def _draw_talking(painter: QPainter) -> None:
    painter.setBrush(QColor(_GREEN))
    for x, height in ((37, 12), (44.5, 26), (52, 18), (59.5, 9)):
        painter.drawRoundedRect(QRectF(x - 2.6, 47 - height / 2, 5.2, height), 2.6, 2.6)


def _draw_muted(painter: QPainter) -> None:
    painter.setBrush(QColor(_GREY))
    painter.drawEllipse(QPointF(47, 47), 14, 14)
    pen = QPen(QColor("white"), 5)
    pen.setCapStyle(Qt.PenCapStyle.RoundCap)
    painter.setPen(pen)
    painter.drawLine(QPointF(39.5, 54.5), QPointF(54.5, 39.5))


_MARKS: Final[dict[State, Callable[[QPainter], None]]] = {
    "alone": _draw_alone,
    "talking": _draw_talking,
    "muted": _draw_muted,
}
