"""How fast ``search_skills`` is, and what it finds."""

from pathlib import Path

from benchmarks.measure import Effort
from benchmarks.search import recall, speed
from benchmarks.table import Row

__all__ = ["rows"]


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; nothing is written to the directory."""
    return [*await speed.rows(effort), *await recall.rows()]
