"""Small plots as drawings in the page: nothing is loaded for them, and they follow light and dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from nicegui import ui

from hub_web import sb
from hub_web.view import view

_WIDTH: Final = 600
_LEFT: Final = 44
_BOTTOM: Final = 20
_BELOW_UNIT: Final = 28
"""Room for the unit above the highest value and its line."""


@dataclass(frozen=True)
class Mark:
    """Something that happened, as a line with its words."""

    at: datetime
    text: str = ""
    tone: sb.Tone = "accent"


def sparkline(values: Sequence[float], *, label: str, height: int = 36) -> ui.html:
    """Draw a line without axes.

    Args:
        label: What it shows, for a screen reader, with the latest value.
    """
    made = ui.html("", sanitize=False).classes("sb-spark")
    show_sparkline(made, values, label=label, height=height)
    return made


def show_sparkline(place: ui.html, values: Sequence[float], *, label: str, height: int = 36) -> None:
    """Draw other values in place of those before."""
    low, high = min(values, default=0), max(values, default=0)
    wide, span = max(len(values) - 1, 1), (high - low) or 1
    points = [
        (120 * index / wide, height - 2 - (height - 4) * (value - low) / span)
        for index, value in enumerate(values)
    ]
    place.set_content(
        f'<svg viewBox="0 0 120 {height}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f'<polyline points="{_joined(points)}"/></svg>'
    )


def plot(
    line: Sequence[tuple[float, float | None]],
    *,
    label: str,
    marks: Sequence[Mark] = (),
    unit: str = "",
    height: int = 180,
    width: int = _WIDTH,
    steps: bool = False,
) -> ui.html:
    """Draw values over time, with a gap where a value is None, and marks.

    Args:
        line: Unix times with their values.
        label: What it shows, for a screen reader.
        width: About how wide its place is, in pixels: its letters are as large then as others.
        steps: Whether a value holds until the next one.
    """
    given = [value for _, value in line if value is not None]
    moments = [*(at for at, _ in line), *(mark.at.timestamp() for mark in marks)]
    content = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    if given and moments:
        low, high = min(given), max(given)
        if low == high:
            low, high = low - 1, high + 1
        first, last = min(moments), max(max(moments), min(moments) + 1)
        floor, top = height - _BOTTOM, _BELOW_UNIT if unit else 10

        def x(at: float) -> float:
            return _LEFT + (width - _LEFT - 8) * (at - first) / (last - first)

        def y(value: float) -> float:
            return floor - (floor - top) * (value - low) / (high - low)

        for value in (low, (low + high) / 2, high):
            level = f"{y(value):.1f}"
            content += f'<line class="sb-axis" x1="{_LEFT}" x2="{width}" y1="{level}" y2="{level}"/>'
            content += (
                f'<text x="{_LEFT - 6}" y="{level}" dy="4" text-anchor="end">{axis_number(value)}</text>'
            )
        for end, anchor in ((first, "start"), (last, "end")):
            said = view.at(datetime.fromtimestamp(end, UTC))
            content += f'<text x="{x(end):.1f}" y="{height - 4}" text-anchor="{anchor}">{said}</text>'
        if unit:
            content += f'<text x="2" y="11">{escape(unit)}</text>'
        for mark in marks:
            level = f"{x(mark.at.timestamp()):.1f}"
            place = f'x1="{level}" x2="{level}" y1="6" y2="{floor}"'
            content += (
                f'<line class="sb-mark sb-{mark.tone}" {place}><title>{escape(mark.text)}</title></line>'
            )
        points = [(x(at), None if value is None else y(value)) for at, value in line]
        content += "".join(f'<polyline points="{_joined(part)}"/>' for part in _lines(points, steps=steps))
    return ui.html(content + "</svg>", sanitize=False).classes("sb-plot")


def _lines(points: Sequence[tuple[float, float | None]], *, steps: bool) -> list[list[tuple[float, float]]]:
    """Cut at the gaps; in steps, go along before going up."""
    lines: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            lines.append([])
            continue
        if steps and lines[-1]:
            lines[-1].append((x, lines[-1][-1][1]))
        lines[-1].append((x, y))
    return [line for line in lines if line]


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def axis_number(value: float) -> str:
    """Write a number for an axis, in at most seven letters.

    Example:
        ``21.5``, ``1234``, ``-12.35k``, ``4.56M``
    """
    for least, size, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (9999.5, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
