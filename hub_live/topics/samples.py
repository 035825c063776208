"""Samples, gaps, and the memory that keeps the recent samples of all topics."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as _field
from typing import Annotated, Final

from pydantic import Field

from contracts.answers.live import LinkName
from contracts.wire import Json, Strict
from hub_live import limits
from hub_live.topics.decoding import Decoding

_PLAIN: Final = Decoding()


# Not frozen: that takes a microsecond more for each of ten thousand messages a second.
@dataclass(slots=True, unsafe_hash=True)
class Sample:
    """One message as it arrived.

    Attributes:
        topic: Without the prefix of the broker.
        at: When it arrived, Unix seconds.
        retained: Whether the broker had kept it from before, so that it may be older than ``at``.
        recorded: Whether it was read from a recording: an earlier run of the hub has heard it.
        decode: Makes ``value`` from topic and payload.
    """

    link: LinkName
    topic: str
    at: float
    payload: bytes
    retained: bool = False
    recorded: bool = _field(default=False, kw_only=True, compare=False)
    decode: Callable[[str, bytes], Json] = _field(default=_PLAIN, repr=False, compare=False)

    @property
    def value(self) -> Json:
        """The decoded payload: a JSON value, or ``{"blob": media type, "bytes": length}``.

        It is decoded once while a message is handed to its followers, and again whenever it is read later.
        """
        return self.decode(self.topic, self.payload)


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which nothing was heard: the connection was lost, or the hub did not run.

    Attributes:
        since: Unix seconds; the last message may have come a little later.
        until: None while it lasts.
    """

    link: LinkName
    since: float
    until: float | None = None


class TopicChoice(Strict):
    """A topic filter on one of the links."""

    topic: Annotated[str, Field(min_length=1, max_length=1_000)]
    link: LinkName = "bus"


def field(value: Json, path: str | None) -> Json:
    """Return a field of a decoded payload; None where there is no such field.

    Args:
        path: Keys and indices with dots between them, as ``state.temperature`` or ``lamps.0.on``; None or
            an empty text for the value itself. A key that has dots itself is found, too. A number or a text
            alone is its own ``value``, as in a csv capture.
    """
    if not path or (path == "value" and isinstance(value, bool | int | float | str)):
        return value
    if isinstance(value, dict) and path in value:
        return value[path]
    for step in path.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and len(step) < 9 and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


@dataclass(eq=False, slots=True)
class Ring:
    """The recent samples of one topic, oldest first; only `SampleMemory` adds and removes.

    Attributes:
        once: Whether all that was heard of it is one message, which the broker does not retain.
    """

    samples: deque[Sample] = _field(default_factory=deque)
    size: int = limits.TOPIC_BYTES
    once: bool = False


class SampleMemory:
    """The rings of all topics, with one bound for each and one for all.

    When it is full, the topic that takes the most loses the older half of its samples, so that a busy topic
    pays for itself and a quiet one keeps its last value.
    """

    def __init__(self, max_bytes: int) -> None:
        self.size = 0
        self._max_bytes = max_bytes
        self._rings: dict[tuple[LinkName, str], Ring] = {}

    def get(self, link: LinkName, topic: str) -> Ring | None:
        return self._rings.get((link, topic))

    def make(self, link: LinkName, topic: str) -> Ring:
        """Return the ring of a topic, a new one if need be."""
        ring = self._rings.get((link, topic))
        if ring is None:
            ring = self._rings[link, topic] = Ring()
            self.size += ring.size
        return ring

    def topics(self, link: LinkName) -> Iterator[str]:
        return (topic for of, topic in self._rings if of == link)

    def add(self, ring: Ring, sample: Sample) -> bool:
        """Add a sample; return False where whole topics had to go for it."""
        size = len(sample.payload) + limits.SAMPLE_BYTES
        ring.once = not ring.samples and not sample.retained
        ring.samples.append(sample)
        return self._bound(ring, size)

    def refill(self, ring: Ring, samples: Iterable[Sample]) -> bool:
        """Add samples from before those that are there, oldest first; see `add`."""
        first = ring.samples[0].at if ring.samples else math.inf
        older = [each for each in samples if each.at < first]
        size = sum(len(each.payload) + limits.SAMPLE_BYTES for each in older)
        ring.samples.extendleft(reversed(older))
        return self._bound(ring, size)

    def forget(self, link: LinkName, topic: str) -> None:
        """Drop a topic, if it is there."""
        ring = self._rings.pop((link, topic), None)
        self.size -= ring.size if ring is not None else 0

    def _bound(self, ring: Ring, added: int) -> bool:
        ring.size += added
        self.size += added
        self._drop(ring, len(ring.samples) - limits.MOST_SAMPLES)
        return self.size <= self._max_bytes or self._make_room()

    def _make_room(self) -> bool:
        """Free a tenth at once: with ten thousand topics, looking for the largest takes a millisecond."""
        enough = 0.9 * self._max_bytes
        while self.size > enough:
            largest = sorted(self._rings.values(), key=_size_if_many, reverse=True)
            if len(largest[0].samples) < 2:
                if self.size <= self._max_bytes:
                    return True
                self._forget_quietest()
                return False
            least = largest[0].size // 2
            for ring in largest:
                if self.size <= enough or len(ring.samples) < 2 or ring.size < least:
                    break
                self._drop(ring, len(ring.samples) // 2)
        return True

    def _drop(self, ring: Ring, count: int) -> None:
        for _ in range(count):
            size = len(ring.samples.popleft().payload) + limits.SAMPLE_BYTES
            ring.size -= size
            self.size -= size

    def _forget_quietest(self) -> None:
        """Drop topics until a tenth is free, those of a single message first, then the longest silent.

        A topic that is used for one message must not cost the last value of a door. This is not cheap.
        """
        by_age = sorted(self._rings, key=lambda key: (not self._rings[key].once, _last(self._rings[key])))
        for link, topic in by_age:
            if self.size <= 0.9 * self._max_bytes:
                return
            self.forget(link, topic)


def _size_if_many(ring: Ring) -> int:
    return ring.size if len(ring.samples) > 1 else 0


def _last(ring: Ring) -> float:
    return ring.samples[-1].at if ring.samples else 0.0
