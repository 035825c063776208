"""What is struck when: drawn from a seed before anything begins, so that the same seed strikes the same."""

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass

_BEGIN_S = 1.0
_GAP_S = 1.5
"""Between two blows, on average."""

_OVERTIME_S = 5.0
"""A blow near the end does not last much longer than the run."""

_BREATH_S = 1.0
"""A victim that is back is let alone for this long; it may still be starting."""

_SPOKES = 0.7
"""The share of the spokes; broker and hub have the rest in equal parts."""

_AWAY = {
    signal.SIGKILL: ((1.0, 0.0, 3.0),),
    # Longer than half a minute is longer than any keepalive: then there is a Last Will.
    signal.SIGSTOP: ((0.6, 0.2, 4.0), (0.25, 4.0, 15.0), (0.15, 23.0, 35.0)),
}
"""How long a victim is away: shares, shortest and longest time in seconds."""


@dataclass(frozen=True)
class Blow:
    """One victim killed, or frozen, and started or let go on again later.

    Attributes:
        at_s: Seconds from the beginning.
        away_s: Until the supervisor starts it again, or it goes on.
    """

    at_s: float
    victim: str
    signal: signal.Signals
    away_s: float

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.signal.name}  {self.victim} for {self.away_s:.1f} s"


def draw(seed: int, *, seconds: float, spokes: Sequence[str]) -> list[Blow]:
    """Draw the blows of a run, in the order of their times."""
    chance = random.Random(seed)
    blows: list[Blow] = []
    free_at: dict[str, float] = {}
    at = _BEGIN_S
    while at < seconds:
        name = chance.choice(spokes) if chance.random() < _SPOKES else chance.choice(["broker", "hub"])
        number = chance.choice([signal.SIGKILL, signal.SIGSTOP])
        away = min(_away(chance, number), seconds - at + _OVERTIME_S)
        if at >= free_at.get(name, 0.0):
            blows.append(Blow(at, name, number, away))
            free_at[name] = at + away + _BREATH_S
        at += chance.expovariate(1 / _GAP_S)
    return blows


def _away(chance: random.Random, number: signal.Signals) -> float:
    ranges = _AWAY[number]
    _, low, high = chance.choices(ranges, weights=[share for share, _, _ in ranges])[0]
    return chance.uniform(low, high)
