"""Which model is asked next, how long it may take, and which one is left out for a while."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_core import limits
from agent_core.gateway.backend import Alive, Backend, Failure, Piece, ThoughtFilter, no_pictures
from agent_core.gateway.protocol import (
    Completed,
    FellBack,
    GatewayEvent,
    ModelRequest,
    Remark,
    TextPart,
    ToolCall,
)
from agent_core.models.entries import Model, ModelEntry, Models
from contracts.errors import GatewayError, NoModel
from contracts.phrases import Phrase
from contracts.rates import Backoff
from contracts.text import storable
from contracts.tracing.trace import Span, span


@dataclass(frozen=True)
class RetryPolicy:
    """How often to ask again where no model answered at all, for reasons that may pass.

    Attributes:
        retries: Rounds after the first one. Two: a rate limit of a second passes, a person waits on.
        pause_s: Seconds before the first of them; doubled for each further one.
    """

    retries: int = 2
    pause_s: float = 0.5


@dataclass
class _Skip:
    """A model that failed.

    Attributes:
        until: When it is asked first again.
    """

    backoff: Backoff
    until: float = -math.inf
    reason: str = ""


class CircuitBreaker:
    """Which models failed lately: for a while they are asked only when no other one answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._skips: dict[str, _Skip] = {}

    def failed(self, failure: Failure) -> None:
        """Skip a model for a while, longer after each failure; not for a question that it refused."""
        if failure.kind == "refused":
            return
        skip = self._skips.setdefault(
            failure.model, _Skip(Backoff(limits.MODEL_SKIPPED_S, limits.LONGEST_SKIP_S, jitter=0.0))
        )
        skip.reason = failure.reason
        # One that is asked again within the time, because no other answered, is not punished for it.
        if skip.until <= self._clock():
            skip.until = self._clock() + skip.backoff.next()

    def answered(self, model: str) -> None:
        self._skips.pop(model, None)

    def skipped(self, model: str) -> tuple[str, float] | None:
        """Return why a model is skipped, and for how many more seconds; None where it is not."""
        skip = self._skips.get(model)
        left = skip.until - self._clock() if skip is not None else 0.0
        return (skip.reason, left) if skip is not None and left > 0 else None

    def ordered(self, models: Sequence[Model]) -> list[Model]:
        return sorted(models, key=lambda model: self.skipped(model.entry.name) is not None)


class FallbackGateway:
    """A ``Gateway`` over backends; see ``protocol.Gateway``.

    Args:
        backends: Asks each model, by its name.

    Attributes:
        models: Those that can be asked, and why others cannot.
        breaker: Knows which models are skipped.
    """

    def __init__(self, backends: Mapping[str, Backend], models: Models, *, retry: RetryPolicy) -> None:
        self._backends = backends
        self.models = models
        self._retry = retry
        self.breaker = CircuitBreaker()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[GatewayEvent, None]:
        """Ask; see ``protocol.Gateway.stream``."""
        models = self.models.only(request.models)
        if not models.usable:
            template = "no model can be asked: {problems}" if models.problems else "no model can be asked"
            raise NoModel(template, problems=Phrase.joined("; ", models.problems), hint=models.hint)
        asked, failures = self.breaker.ordered(models.usable), list[Failure]()
        backoff = Backoff(self._retry.pause_s, limits.LONGEST_PAUSE_S, jitter=0.0)
        for round_ in range(self._retry.retries + 1):
            if round_:
                await asyncio.sleep(backoff.next())
                failures = [failure for failure in failures if failure.kind != "passing"]
            for model in asked:
                answered = False
                with span("model", model.entry.name, leaf=True) as at:
                    async with aclosing(self._ask(model, request, failures, at)) as events:
                        async for event in events:
                            answered = True
                            yield event
                    if answered:
                        return
                    at.failed(failures[-1].reason)
            passing = {failure.model for failure in failures if failure.kind == "passing"}
            asked = [model for model in asked if model.entry.name in passing]
            if not asked:
                break
        raise _gave_up(failures)

    async def _ask(
        self, model: Model, request: ModelRequest, failures: list[Failure], at: Span
    ) -> AsyncGenerator[GatewayEvent, None]:
        """Ask one model; yields nothing where it gave no answer, and then adds to the failures."""
        name, answer, clock, remarks = model.entry.name, _Answer(), _Clock(model.entry), list[Remark]()
        at.note(provider=model.entry.provider, model=model.entry.model)
        if request.has_images and model.entry.images is False:
            failures.append(no_pictures(model))
            return
        asking = self._backends[name].ask(request.for_mode(model.entry.tools), model)
        async with aclosing(asking) as pieces:
            while not isinstance(piece := await clock.next_of(pieces), Failure):
                if isinstance(piece, Remark):
                    remarks.append(piece)
                elif not isinstance(piece, Alive):
                    for event in answer.take(piece):
                        if not answer.begun:
                            answer.begun = True
                            at.mark("first_ms")
                            if failures:
                                yield FellBack(name, tuple(each.message for each in failures))
                            for remark in remarks:
                                yield remark
                        yield event
                if isinstance(piece, Completed):
                    self.breaker.answered(name)
                    at.note(
                        input_tokens=piece.input_tokens or None,
                        output_tokens=piece.output_tokens or None,
                        cost=piece.cost,
                        stop=piece.stop,
                    )
                    if answer.begun:
                        tool_mode = model.entry.tools if request.native is not None else "code"
                        yield replace(piece, tool_mode=tool_mode)
                    else:
                        failures.append(Failure(name, "sent an empty answer"))
                    return
        self.breaker.failed(piece)
        if answer.begun:
            raise GatewayError(
                "the answer broke off: {failure}",
                failure=piece.message,
                hint="What came is kept. Ask again for the rest.",
            )
        failures.append(piece)


class _Clock:
    """The two time limits of an entry: until the first piece of an answer, and until its end."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._started = asyncio.get_running_loop().time()
        self._seconds = min(entry.first_token_s, entry.timeout_s)
        self._what = "answer"

    async def next_of(self, pieces: AsyncIterator[Piece]) -> Piece:
        """Wait for the next piece; a limit that is reached is a ``Failure``."""
        try:
            # Never around a `yield`, which would time the consumer's own work.
            async with asyncio.timeout_at(self._started + self._seconds):
                piece = await anext(pieces)
        except TimeoutError:
            reason = Phrase("did not {what} within {seconds:g} s", what=self._what, seconds=self._seconds)
            return Failure(self._entry.name, reason, "down")
        if not isinstance(piece, Remark):
            self._seconds, self._what = self._entry.timeout_s, "finish its answer"
        return piece


class _Answer:
    """What of an answer can be given out: no thoughts, and nothing as long as all of it is blank.

    Blank text alone is an empty answer, and another model may do better. Half of a surrogate pair waits for
    its other half in the next piece: nothing can be sent with one alone.

    Attributes:
        begun: Whether something has been given out; set by who gives it out.
    """

    def __init__(self) -> None:
        self.begun = False
        self._thoughts = ThoughtFilter()
        self._half = ""

    def take(self, piece: TextPart | ToolCall | Completed) -> list[TextPart | ToolCall]:
        """Read a piece; return the text and calls that go out now."""
        match piece:
            case TextPart(text):
                text = self._half + text
                self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
                return self._text(self._thoughts.feed(storable(text.removesuffix(self._half))))
            case ToolCall():
                return [*self._text(self._thoughts.rest()), piece]
            case Completed():
                return self._text(self._thoughts.rest())

    def _text(self, text: str) -> list[TextPart | ToolCall]:
        if not self.begun:
            text = text.lstrip()
        return [TextPart(text)] if text else []


def _gave_up(failures: Sequence[Failure]) -> GatewayError:
    return GatewayError(
        "{failures}" if len(failures) == 1 else "no model answered: {failures}",
        failures=Phrase.joined("; ", [each.message for each in failures]),
        hint="Check the addresses and keys of the models, and that their servers run.",
    )
