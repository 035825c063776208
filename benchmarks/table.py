"""The rows that ``make bench`` prints, as a table to read and as JSON to compare."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

_UP_TO: Final = "≤"
_AT_LEAST: Final = "≥"


@dataclass(frozen=True)
class Reach:
    """What a row is to reach; what is None is not asked for.

    Attributes:
        most: Of the measured value, in the row's unit.
        least: Of the measured value, in the row's unit.
        ratio_most: Of the value over its reference.
        ratio_least: Of the value over its reference.
    """

    most: float | None = None
    least: float | None = None
    ratio_most: float | None = None
    ratio_least: float | None = None

    def met(self, value: float, ratio: float | None) -> bool | None:
        """Return whether it is reached; None where nothing is asked for."""
        verdicts = [
            *_verdicts(value, self.most, self.least),
            *([] if ratio is None else _verdicts(ratio, self.ratio_most, self.ratio_least)),
        ]
        return all(verdicts) if verdicts else None

    def text(self, unit: str) -> str:
        """Write it as ``docs/performance.md`` does."""
        asked = (
            (_UP_TO, self.ratio_most, "×"),
            (_AT_LEAST, self.ratio_least, "×"),
            (_UP_TO, self.most, unit),
            (_AT_LEAST, self.least, unit),
        )
        return ", ".join(f"{sign} {bound:,g} {of}" for sign, bound, of in asked if bound is not None)


def _verdicts(value: float, most: float | None, least: float | None) -> list[bool]:
    upper = [] if most is None else [value <= most]
    return upper if least is None else [*upper, value >= least]


@dataclass(frozen=True)
class Row:
    """One measurement, or why there is none.

    Attributes:
        work: What was done.
        project: What it took here; None where it could not be measured.
        unit: Of the value and of the reference, for example ``ms``.
        reach: What is to be reached.
        reference: What the reference took in the same run; None where there is none.
        problem: Why it could not be measured; empty where it was.
    """

    work: str
    project: float | None
    unit: str = ""
    reach: Reach = Reach()
    reference: float | None = None
    problem: str = ""

    @property
    def ratio(self) -> float | None:
        """The value over its reference."""
        return self.project / self.reference if self.project is not None and self.reference else None

    @property
    def reached(self) -> bool | None:
        """Whether the row reaches its number; None where there is no number or no value."""
        return None if self.project is None else self.reach.met(self.project, self.ratio)

    def as_json(self) -> dict[str, Any]:
        """Return it as an object of plain values."""
        return {
            "work": self.work,
            "project": self.project,
            "reference": self.reference,
            "ratio": self.ratio,
            "unit": self.unit,
            "reach": self.reach.text(self.unit),
            "reached": self.reached,
            "problem": self.problem,
        }


def not_measured(work: str, why: str) -> Row:
    """Make the row of work that could not be measured."""
    return Row(work, None, problem=why)


def as_json(rows: Iterable[Row]) -> str:
    """Return the rows as a JSON list of objects, one per row."""
    return json.dumps([row.as_json() for row in rows], indent=2, ensure_ascii=False)


def as_table(rows: Iterable[Row]) -> str:
    """Return the rows as aligned text."""
    head = ("work", "project", "reference", "ratio", "unit", "reach", "")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    ruler = (*("-" * width for width in widths), "")
    return "\n".join(_aligned(line, widths) for line in (head, ruler, *lines[1:]))


def _cells(row: Row) -> tuple[str, ...]:
    last = row.problem or {True: "reached", False: "MISSED", None: ""}[row.reached]
    numbers = (_number(row.project), _number(row.reference), _number(row.ratio))
    return (row.work, *numbers, row.unit, row.reach.text(row.unit), last)


def _number(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    work, *cells, last = line
    # Words stand to the left, numbers to the right.
    numbers = [text.rjust(width) for text, width in zip(cells[:3], widths[1:4], strict=True)]
    words = [text.ljust(width) for text, width in zip(cells[3:], widths[4:], strict=True)]
    return "  ".join((work.ljust(widths[0]), *numbers, *words, last)).rstrip()
