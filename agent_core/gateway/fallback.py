"""Which model is asked next, and when to give up: the same rules for every way of asking."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Protocol

from agent_core.gateway.protocol import (
    Completed,
    FellBack,
    GatewayEvent,
    ModelRequest,
    Remark,
    TextPart,
    ToolCall,
)
from agent_core.gateway.thoughts import ThoughtFilter
from agent_core.models.entries import Model, Models
from contracts.backoff import Backoff
from contracts.errors import GatewayError, NoModel
from contracts.wire import Json

_MAX_REASON: Final = 300
"""Characters of what one model said; providers answer with whole web pages."""

_LONGEST_PAUSE_S: Final = 8.0

_TRANSIENT: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that the next try may not meet; anything else will be the same again."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often to ask again where no model answered at all, for reasons that may pass.

    Attributes:
        retries: Rounds after the first one. Two: a rate limit of a second passes, a person waits on.
        pause_s: Seconds before the first of them; doubled for each further one.
    """

    retries: int = 2
    pause_s: float = 0.5


@dataclass(frozen=True)
class Failure:
    """Why one model gave no answer.

    Attributes:
        passing: Whether asking it again may help.
    """

    model: str
    reason: str
    passing: bool = False

    def __str__(self) -> str:
        return f"{self.model}: {self.reason}"


@dataclass(frozen=True)
class Began:
    """A model has begun to answer, after these failures of earlier ones."""

    model: str
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class BrokeOff:
    """The answer that had begun will not be completed."""

    failure: Failure


@dataclass(frozen=True)
class AllFailed:
    """None of the models began to answer."""

    failures: tuple[Failure, ...]


Piece = Began | Remark | TextPart | ToolCall | Completed | BrokeOff | AllFailed


class Backend(Protocol):
    """One way of asking models."""

    def ask(self, request: ModelRequest, models: tuple[Model, ...]) -> AsyncGenerator[Piece, None]:
        """Ask the models in order until one begins to answer.

        Yields ``Began``, the answer and ``Completed`` or ``BrokeOff``; or only ``AllFailed``. An
        expected failure is a piece, not an exception.
        """
        ...


async def each_in_turn(
    models: Sequence[Model], answer: Callable[[Model], AsyncGenerator[Piece, None]]
) -> AsyncGenerator[Piece, None]:
    """Ask models one after another until one begins to answer.

    Args:
        answer: Asks one; a failure of any kind ends its pieces with ``BrokeOff``.
    """
    failures: list[Failure] = []
    for model in models:
        began = False
        async with aclosing(answer(model)) as pieces:
            async for piece in pieces:
                if isinstance(piece, BrokeOff) and not began:
                    failures.append(piece.failure)
                    continue
                if not began:
                    began = True
                    yield Began(model.entry.name, tuple(failures))
                yield piece
        if began:
            return
    yield AllFailed(tuple(failures))


class FallbackGateway:
    """A ``Gateway`` over a backend; see ``protocol.Gateway``."""

    def __init__(self, backend: Backend, models: Models, *, retry: RetryPolicy) -> None:
        self._backend = backend
        self._models = models
        self._styles = {model.entry.name: model.entry.tools for model in models.usable}
        self._retry = retry

    @property
    def available(self) -> bool:
        """Whether there is a model to ask."""
        return bool(self._models.usable)

    @property
    def names(self) -> tuple[str, ...]:
        """The entries that can be asked, in order."""
        return tuple(model.entry.name for model in self._models.usable)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the other entries cannot be asked."""
        return self._models.problems

    async def stream(self, request: ModelRequest) -> AsyncGenerator[GatewayEvent, None]:
        """Ask; see ``protocol.Gateway.stream``."""
        if not self._models.usable:
            said = f": {'; '.join(self._models.problems)}" if self._models.problems else ""
            raise NoModel(f"there is no model to ask{said}", hint=self._models.hint)
        models, round_, failures = self._models.usable, 0, list[Failure]()
        backoff = Backoff(self._retry.pause_s, _LONGEST_PAUSE_S, jitter=0)
        while True:
            answered = False
            async with aclosing(self._round(request, models, failures)) as events:
                async for event in events:
                    answered = True
                    yield event
            if answered:
                return
            last = failures[-1].model
            later = _after(models, last)
            if later:
                models = later
                continue
            passing = {failure.model for failure in failures if failure.passing}
            if round_ == self._retry.retries or not passing:
                raise _gave_up(failures)
            await asyncio.sleep(backoff.next())
            round_ += 1
            models = tuple(model for model in self._models.usable if model.entry.name in passing)
            failures = [failure for failure in failures if failure.model not in passing]

    async def _round(
        self, request: ModelRequest, models: tuple[Model, ...], failures: list[Failure]
    ) -> AsyncGenerator[GatewayEvent, None]:
        """Ask once; yields nothing where no model said anything, and then adds to ``failures``."""
        answer, model, remarks = _Answer(), "", list[Remark]()
        async with aclosing(self._backend.ask(request, models)) as pieces:
            async for piece in pieces:
                match piece:
                    case Began():
                        failures.extend(piece.failures)
                        model = piece.model
                    case Remark():
                        remarks.append(piece)
                    case TextPart() | ToolCall() | Completed():
                        for event in answer.take(piece):
                            if answer.first:
                                if failures:
                                    yield FellBack(model, tuple(str(failure) for failure in failures))
                                for remark in remarks:
                                    yield remark
                            answer.first = False
                            yield event
                        if isinstance(piece, Completed):
                            if answer.first:
                                failures.append(Failure(model, "its answer was empty"))
                            else:
                                style = self._styles[model] if request.native is not None else "code"
                                yield replace(piece, style=style)
                    case BrokeOff(failure) if not answer.first:
                        raise GatewayError(
                            f"the answer broke off: {failure}",
                            hint="What came is kept. Ask again for the rest.",
                        )
                    case BrokeOff(failure):
                        failures.append(failure)
                    case AllFailed():
                        failures.extend(piece.failures)


class _Answer:
    """What of an answer can be given out: no thoughts, and nothing as long as all of it is blank.

    Blank text alone is an empty answer, and another model may do better.

    Attributes:
        first: Whether nothing has been given out yet.
    """

    def __init__(self) -> None:
        self.first = True
        self._thoughts = ThoughtFilter()

    def take(self, piece: TextPart | ToolCall | Completed) -> list[TextPart | ToolCall]:
        """Take a piece; gives the text and calls that go out now."""
        match piece:
            case TextPart(text):
                return self._text(self._thoughts.feed(text))
            case ToolCall():
                return [*self._text(self._thoughts.rest()), piece]
            case Completed():
                return self._text(self._thoughts.rest())

    def _text(self, text: str) -> list[TextPart | ToolCall]:
        if self.first:
            text = text.lstrip()
        return [TextPart(text)] if text else []


def _after(models: tuple[Model, ...], name: str) -> tuple[Model, ...]:
    names = [model.entry.name for model in models]
    return models[names.index(name) + 1 :]


def _gave_up(failures: Sequence[Failure]) -> GatewayError:
    return GatewayError(
        f"no model answered: {'; '.join(map(str, failures))}",
        hint="Check the addresses and keys of the models, and that their servers run.",
    )


def passes(status: int) -> bool:
    """Whether a request that was answered with this HTTP status may be served when asked again."""
    return status in _TRANSIENT


def one_line(text: str, models: Sequence[Model]) -> str:
    """Make an error text fit for people: one line, bounded, without the keys of these models.

    An error body in OpenAI's form is reduced to its message.
    """
    for model in models:
        if model.key is not None:
            text = text.replace(model.key.get_secret_value(), "***")
    start = text.find("{")
    if start >= 0:
        text = text[:start] + _message_in(text[start:])
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= _MAX_REASON else f"{text[: _MAX_REASON - 1]}…"


def _message_in(body: str) -> str:
    try:
        data = json.loads(body)
    except ValueError:
        return body
    error = data.get("error", data) if isinstance(data, dict) else data
    said = error.get("message", error) if isinstance(error, dict) else error
    return said if isinstance(said, str) else body


def parsed_arguments(raw: str) -> dict[str, Json] | None:
    """Parse the arguments of a tool call; none at all count as an empty object."""
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class CallCollector:
    """Puts the tool calls of a stream together from their pieces."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, list[str]]] = {}

    def add(self, key: str, name: str, arguments: str) -> None:
        """Take one piece; the name may come in the first one only."""
        known, pieces = self._calls.setdefault(key, ("", []))
        pieces.append(arguments)
        # Some servers repeat the whole name with every piece, others send it once.
        self._calls[key] = (known or name, pieces)

    def calls(self) -> list[ToolCall]:
        """Give the complete calls in the order in which they began."""
        made = []
        for number, (key, (name, pieces)) in enumerate(self._calls.items()):
            raw = "".join(pieces)
            made.append(ToolCall(key or f"call_{number}", name, raw, parsed_arguments(raw)))
        return made
