"""A row of the table that ``make bench`` prints."""

from dataclasses import dataclass


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
