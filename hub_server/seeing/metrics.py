"""Numbers about calls and turns, counted where they happen.

They are plain numbers: the library that writes them takes 70 ms to import, and is loaded when they are asked
for. No label has text of a person, a device or a model: what it may be is known beforehand, or comes from a
settings file.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Final

from chat.turns import Turn
from contracts.tracing.trace import own_ms
from hub_server import limits

CALL_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TURN_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


class Histogram:
    """How often a number was at most so large."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a number."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return for each bound how many were at most that large, the last without a bound."""
        made, count = list[tuple[str, float]](), 0
        for bound, each in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += each
            made.append((bound, count))
        return made


class Metrics:
    """What was counted since the hub started.

    Attributes:
        calls: By where it ran (``hub``, ``device``) and outcome.
        call_seconds: By where it ran.
        turns: By who answered and outcome.
        turn_seconds: By who answered.
        parts: Seconds of turns by kind of work; see `contracts.tracing.trace.SpanKind`.
        tokens: Of models, by name and direction.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.call_seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(CALL_BUCKETS))
        self.turns: Counter[tuple[str, str]] = Counter()
        self.turn_seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(TURN_BUCKETS))
        self.parts: defaultdict[str, float] = defaultdict(float)
        self.tokens: Counter[tuple[str, str]] = Counter()

    def count_call(self, where: str, outcome: str, seconds: float) -> None:
        """Count a call that has ended."""
        self.calls[where, outcome] += 1
        self.call_seconds[where].observe(seconds)

    def count_turn(self, turn: Turn) -> None:
        """Count a turn that has ended."""
        mode = turn.mode or "none"
        self.turns[mode, turn.outcome or "stopped"] += 1
        spans = turn.trace.spans()
        self.turn_seconds[mode].observe(turn.trace.seconds)
        for kind, ms in own_ms(spans).items():
            self.parts[kind] += ms / 1000
        for each in spans:
            if each.kind == "model":
                tokens = {"input": each.detail.input_tokens, "output": each.detail.output_tokens}
                for direction, count in tokens.items():
                    if count is not None:
                        known = (each.name, direction) in self.tokens or len(
                            self.tokens
                        ) < 2 * limits.MODELS_LABELLED
                        self.tokens[each.name if known else "other", direction] += count
