"""The rows that ``make bench`` prints, as a table to read and as JSON to compare."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        work: What was done.
        project: What it took here.
        reference: What the reference took in the same run; None where there is none.
        ratio: The one over the other; None where there is no reference.
        unit: Of both, for example ``ms``.
        reach: What is to be reached, as ``docs/performance.md`` has it.
    """

    work: str
    project: float
    reference: float | None
    ratio: float | None
    unit: str
    reach: str


def as_json(rows: Iterable[Row]) -> str:
    """Give the rows as a JSON list of objects, one per row."""
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False)


def as_table(rows: Iterable[Row]) -> str:
    """Give the rows as aligned text."""
    head = ("work", "project", "reference", "ratio", "unit", "reach")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    ruler = tuple("-" * width for width in widths)
    return "\n".join(_aligned(line, widths) for line in (head, ruler, *lines[1:]))


def _cells(row: Row) -> tuple[str, ...]:
    return (row.work, _number(row.project), _number(row.reference), _number(row.ratio), row.unit, row.reach)


def _number(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    first, *rest = zip(line, widths, strict=True)
    # Words stand to the left, numbers to the right.
    cells = [first[0].ljust(first[1])]
    cells += [text.rjust(width) for text, width in rest[:3]]
    cells += [text.ljust(width) for text, width in rest[3:]]
    return "  ".join(cells).rstrip()
