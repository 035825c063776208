"""What several benchmarks need: medians, places that outlive a run, and how thorough to be."""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROUNDS: Final = 4
_OF_A_ROUND: Final = 10
"""Runs that a round must have for its median to mean something."""


@dataclass(frozen=True)
class Effort:
    """How thorough a run is.

    Attributes:
        quick: Only show that everything runs; its numbers say little.
    """

    quick: bool = False

    def repeats(self, wanted: int) -> int:
        """Return the number of repetitions of work that is wanted so often in a full run."""
        return max(2, wanted // 20) if self.quick else wanted

    def size(self, wanted: int) -> int:
        """Return the number of things that work is done upon."""
        return max(20, wanted // 20) if self.quick else wanted


async def milliseconds(work: Callable[[], Awaitable[object]]) -> float:
    """Return what one run takes, in ms."""
    begun = time.perf_counter()
    await work()
    return (time.perf_counter() - begun) * 1000


async def median_ms(work: Callable[[], Awaitable[object]], *, repeats: int, warm_up: int = 0) -> float:
    """Return the median of runs one after the other, in ms.

    Many runs are taken in rounds, and the quietest round counts: what else the machine does only adds.
    """
    for _ in range(warm_up):
        await work()
    rounds = _ROUNDS if repeats >= _ROUNDS * _OF_A_ROUND else 1
    return min([await _median(work, repeats // rounds) for _ in range(rounds)])


async def _median(work: Callable[[], Awaitable[object]], repeats: int) -> float:
    return statistics.median([await milliseconds(work) for _ in range(repeats)])


async def run_nothing() -> None:
    """Start Python and let it do nothing: the reference of everything that starts."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    await process.wait()


def sandbox_directory() -> Path:
    """Return where the benchmarks install the sandbox: beside the interpreter, as it is fetched only once."""
    return Path(sys.prefix) / "sandbox"
