"""When a watcher fires, by the verdicts on its predicate: the one rule of live watchers and of back-tests."""

from collections.abc import Iterable, Iterator, Mapping

from hub_live.topics import Gap, LinkName, Sample, field
from hub_live.watchers.definition import WatchedValue
from hub_live.watchers.predicates import Evaluator, Verdict


class Firing:
    """Fires when the predicate becomes true, and again only after it was false.

    Unknown is neither: a predicate that is true, then unknown, then true was perhaps true all the time, so it
    does not fire twice. One that is true for a moment only, as by ``changed(door)``, fires each time.

    Attributes:
        armed: Whether it fires when the predicate is true next. `WatcherRow` has it over restarts.
    """

    def __init__(self, *, armed: bool = True) -> None:
        self.armed = armed

    def fires(self, verdict: Verdict) -> bool:
        """Return whether the watcher fires, given each verdict in turn."""
        if verdict.truth is None:
            return False
        is_firing = self.armed and verdict.truth
        self.armed = verdict.momentary or not verdict.truth
        return is_firing


def replay(
    evaluator: Evaluator,
    sources: Mapping[str, WatchedValue],
    recorded: Iterable[Sample | Gap],
    *,
    until: float | None = None,
) -> Iterator[tuple[float, Verdict]]:
    """Put what was recorded into a predicate, as it came; yield each verdict with its time.

    Args:
        recorded: Of any topics, in the order of time.
        until: When the recording ends, if that is after the last sample.
    """
    names: dict[tuple[LinkName, str], list[tuple[str, str | None]]] = {}
    for name, source in sources.items():
        names.setdefault((source.link, source.topic), []).append((name, source.path))
    wake: float | None = None
    for each in recorded:
        if isinstance(each, Gap):
            concerned = [name for name, source in sources.items() if source.link == each.link]
            evaluator.gap(each.since, each.until, concerned)
            continue
        targets = names.get((each.link, each.topic))
        if targets is None:
            continue
        at = each.at
        # What ends at the very moment in which a value comes is seen together with the value.
        while wake is not None and wake < at:
            yield wake, evaluator.verdict(wake)
            wake = evaluator.wake_at(wake)
        for name, path in targets:
            evaluator.put(name, at, field(each.value, path), retained=each.retained)
        yield at, evaluator.verdict(at)
        wake = evaluator.wake_at(at)
    while wake is not None and until is not None and wake <= until:
        yield wake, evaluator.verdict(wake)
        wake = evaluator.wake_at(wake)
