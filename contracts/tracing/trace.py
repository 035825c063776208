"""Traces: where the time of a turn went, as spans that its parts record where they run.

A part says ``with span("model", "house") as at:`` and need not know whose turn it works for: the trace goes
along with the task. Where no turn runs, nothing is recorded.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal

from contracts import limits
from contracts.errors import StrawberryError
from contracts.names import Token
from contracts.phrases import with_phrases
from contracts.wire import Json, OrAbsent, Part, Phrased, PhraseText

MAX_SPANS: Final = 200
"""Spans of one turn; those that come later are only counted."""
MAX_CHARS: Final = 48_000
"""Characters of the details of all spans of one turn; zipped, that is some 10 kB."""

SpanKind = Literal["hub", "model", "tool", "sandbox", "skill", "bus", "confirmation"]
"""What a span is of: ``hub`` is work of the hub itself, ``model`` one question to one model, ``tool`` what
the model called, ``sandbox`` a program and the wait for its process, ``skill`` a call that the turn made,
``bus`` one message to a device and the wait for its answer, ``confirmation`` the time that a person took."""

SpanOutcome = Literal["running", "ok", "failed", "cancelled"]


class SpanDetail(Phrased):
    """What is known of a span, bounded in size.

    Arguments, results and errors are what a model, a device or a person said: data, never markup.

    Attributes:
        first_ms: Until the first piece of a model's answer.
        run_ms: Of a program, without the wait for its process.
        ran_ms: Of a call, on its device.
        cost: In the currency of the provider.
        stop: Why a model ended its answer.
        lost: Why the variables of earlier programs are gone.
    """

    arguments: OrAbsent[Json] = None
    result: OrAbsent[Json] = None
    error: OrAbsent[PhraseText] = None
    first_ms: OrAbsent[float] = None
    run_ms: OrAbsent[float] = None
    ran_ms: OrAbsent[float] = None
    provider: OrAbsent[str] = None
    model: OrAbsent[str] = None
    input_tokens: OrAbsent[int] = None
    output_tokens: OrAbsent[int] = None
    cost: OrAbsent[float] = None
    stop: OrAbsent[str] = None
    lost: OrAbsent[str] = None


class TurnSpan(Part):
    """A span as it is shown and kept.

    Attributes:
        start_ms: After the turn began.
        parent: Index of the span within which it ran, among those of the turn.
        device: Id of the device that worked, where one did.
    """

    kind: SpanKind
    name: str
    start_ms: float
    ms: float
    parent: int | None = None
    device: Token | None = None
    outcome: SpanOutcome = "ok"
    detail: SpanDetail = SpanDetail()


@dataclass(eq=False, slots=True)
class Span:
    """A span that is being recorded.

    Attributes:
        index: Among the spans of the turn; None where it is not recorded.
        outcome: Set when it ends: by what it raises, unless `failed` said so before.
    """

    _trace: "Trace | None"
    kind: SpanKind
    name: str
    _: KW_ONLY
    index: int | None = None
    parent: int | None = None
    device: str | None = None
    start: float = field(default=0.0, init=False)
    end: float | None = field(default=None, init=False)
    outcome: SpanOutcome = field(default="running", init=False)
    detail: dict[str, Json] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.name = self.name[: limits.MAX_SPAN_NAME]
        if self._trace is not None:
            self.start = self._trace.clock()

    def note(self, **detail: Json) -> None:
        """Add details; what is long is cut, and what is None is left out."""
        if self._trace is not None:
            for name, value in detail.items():
                if value is not None:
                    self.detail[name] = self._trace.bounded(value)

    def mark(self, name: str) -> None:
        """Record the milliseconds since its beginning under a name."""
        if self._trace is not None:
            self.detail[name] = _ms(self._trace.clock() - self.start)

    def failed(self, why: str = "") -> None:
        """Note that it did not do what it was for."""
        self.outcome = "failed"
        self.note(error=why or None)

    def ended(self, outcome: SpanOutcome) -> None:
        """Note that it is over."""
        if self._trace is not None and self.end is None:
            self.end = self._trace.clock()
            if self.outcome == "running":
                self.outcome = outcome


class Trace:
    """The spans of one turn, in the order in which they began.

    Args:
        clock: Seconds that only go forward.

    Attributes:
        left_out: Spans beyond `MAX_SPANS`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.left_out = 0
        self._start = clock()
        self._spans: list[Span] = []
        self._room = MAX_CHARS
        self._closed = False
        self._end: float | None = None

    def begin(self, kind: SpanKind, name: str, *, parent: int | None, device: str | None) -> Span:
        """Begin a span; it is recorded unless there are too many, or the turn is over."""
        if self._closed:
            return Span(None, kind, name)
        if len(self._spans) >= MAX_SPANS:
            self.left_out += 1
            return Span(None, kind, name)
        begun = Span(self, kind, name, index=len(self._spans), parent=parent, device=device)
        self._spans.append(begun)
        return begun

    def close(self) -> None:
        """End what still runs; from now on nothing is recorded."""
        self._closed = True
        if self._end is None:
            self._end = self.clock()
        for each in self._spans:
            each.ended("cancelled")

    @property
    def seconds(self) -> float:
        return (self.clock() if self._end is None else self._end) - self._start

    def spans(self) -> list[TurnSpan]:
        """Return the spans so far."""
        present = self.clock()
        return [
            TurnSpan.model_construct(
                kind=each.kind,
                name=each.name,
                start_ms=_ms(each.start - self._start),
                ms=_ms((present if each.end is None else each.end) - each.start),
                parent=each.parent,
                device=each.device,
                outcome=each.outcome,
                detail=SpanDetail.model_construct(**with_phrases(each.detail)),
            )
            for each in self._spans
        ]

    def bounded(self, value: Json) -> Json:
        """Return a value, cut to what there is room for; plain numbers always have room."""
        if value is None or isinstance(value, bool | int | float):
            return value
        cut = _Cut(min(limits.MAX_SPAN_DETAIL, self._room))
        made = cut.value(value)
        self._room -= cut.used
        return made


class _Cut:
    """Copies a value until the room for it is used up."""

    def __init__(self, room: int) -> None:
        self.used = 0
        self._room = room

    def value(self, value: Json) -> Json:
        """Return the value, or its beginning with ``…`` at the end."""
        match value:
            case str():
                return self._text(value)
            case Mapping():
                made: dict[str, Json] = {}
                for name, each in value.items():
                    if self.used >= self._room:
                        made["…"] = "…"
                        break
                    # In this order: the name has the first right to the room.
                    key = self._text(str(name))
                    made[key] = self.value(each)
                return made
            case list() | tuple():
                items: list[Json] = []
                for each in value:
                    if self.used >= self._room:
                        items.append("…")
                        break
                    items.append(self.value(each))
                return items
        self.used += 8
        return value

    def _text(self, text: str) -> str:
        room = max(0, self._room - self.used)
        self.used += min(len(text), room) + 4
        # Half characters, which some models write, can neither be stored nor sent.
        shown = (text if len(text) <= room else f"{text[:room]}…").encode("utf-8", "replace").decode()
        return text if text == shown else shown  # a phrase stays one


Place = tuple[Trace, int | None] | None
"""Where in which trace spans are recorded; None where nothing is."""

_PLACE: ContextVar[Place] = ContextVar("trace", default=None)


def place() -> Place:
    # Work that goes on in another task takes it along.
    return _PLACE.get()


@contextmanager
def within(there: Place) -> Iterator[None]:
    """Record spans of the block at a place that was noted before."""
    before = _PLACE.get()
    _PLACE.set(there)
    try:
        yield
    finally:
        _PLACE.set(before)


@contextmanager
def span(kind: SpanKind, name: str, *, device: str | None = None, leaf: bool = False) -> Iterator[Span]:
    """Record the block as a span of the turn that it works for.

    Args:
        device: Id of the device that works.
        leaf: Whether spans that begin meanwhile are not within it: around the ``yield`` of a generator, its
            consumer would record there, too.
    """
    here = _PLACE.get()
    if here is None:
        yield Span(None, kind, name)
        return
    trace, above = here
    begun = trace.begin(kind, name, parent=above, device=device)
    if not leaf and begun.index is not None:
        _PLACE.set((trace, begun.index))
    try:
        yield begun
    except (asyncio.CancelledError, GeneratorExit):
        begun.ended("cancelled")
        raise
    except StrawberryError as error:
        begun.failed(error.message)
        raise
    except BaseException as error:
        begun.failed(type(error).__name__)
        raise
    finally:
        begun.ended("ok")
        if not leaf:
            _PLACE.set(here)


def own_ms(spans: Sequence[TurnSpan]) -> dict[SpanKind, float]:
    """Return the time of each kind of span, without that of the spans within them."""
    within_: dict[int, list[TurnSpan]] = {}
    for each in spans:
        if each.parent is not None:
            within_.setdefault(each.parent, []).append(each)
    times: dict[SpanKind, float] = {}
    for index, each in enumerate(spans):
        own = each.ms - _covered_ms(within_.get(index, ()))
        times[each.kind] = round(times.get(each.kind, 0.0) + max(0.0, own), 1)
    return times


def _covered_ms(spans: Iterable[TurnSpan]) -> float:
    """Return how long at least one of some spans lasted."""
    covered, until = 0.0, 0.0
    for each in sorted(spans, key=lambda each: each.start_ms):
        end = each.start_ms + each.ms
        covered += max(0.0, end - max(until, each.start_ms))
        until = max(until, end)
    return covered


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
