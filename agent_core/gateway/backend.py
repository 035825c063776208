"""The seam between the fallback rules and the ways of asking a model, and what all ways share."""

import math
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pydantic_core import from_json

from agent_core import limits
from agent_core.gateway.protocol import Completed, ModelRequest, Remark, StopReason, TextPart, ToolCall
from agent_core.models.entries import Model
from contracts.phrases import Phrase
from contracts.text import shortened, storable
from contracts.wire import Json

_TRANSIENT: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, *range(520, 525), 529})
"""Statuses that the next attempt may not meet; any other will be the same again. 520 to 524 are those of
Cloudflare for a server that is down or slow."""

_STOPS: Final[Mapping[str, StopReason]] = {
    "stop": "end",
    "stop_sequence": "end",
    "tool_call": "tools",
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "content_filter": "filter",
}

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"

FailureKind = Literal["down", "passing", "refused"]
"""``down``: it is not there or too slow. ``passing``: asking again may help. ``refused``: it will not."""


@dataclass(frozen=True)
class Failure:
    """Why one model gave no answer, or not all of it; always the last piece.

    Attributes:
        reason: What it did, to be read after its name: ``did not answer within 15 s``.
    """

    model: str
    reason: str
    kind: FailureKind = "refused"

    @property
    def message(self) -> str:
        return Phrase("{model} {reason}", model=self.model, reason=self.reason)


@dataclass(frozen=True)
class Alive:
    """Something of an answer has come that is neither text nor a call: an empty piece, or a thought."""


Piece = Alive | Remark | TextPart | ToolCall | Completed | Failure


class Backend(Protocol):
    """One way of asking models."""

    def ask(self, request: ModelRequest, model: Model) -> AsyncGenerator[Piece, None]:
        """Ask one model; yields its answer.

        The last piece is ``Completed`` or ``Failure``: an expected failure is no exception. How long to
        wait for a piece is decided by the caller, who cancels the wait.
        """


def refused(model: Model, status: int, body: str) -> Failure:
    """Report that a server answered with an HTTP status that is an error."""
    kind: FailureKind = "passing" if status in _TRANSIENT else "refused"
    if not body.lstrip().startswith("<"):
        said = one_line(body, model)
    else:
        # A proxy in front of a model writes a page too while the model is away.
        said = "" if kind == "passing" else "a web page, so the address is none of a model"
    template = "answered with status {status}: {said}" if said else "answered with status {status}"
    return Failure(model.entry.name, Phrase(template, status=status, said=said), kind)


def unreachable(model: Model) -> Failure:
    """Report that there is no server at the model's address."""
    address = model.entry.address or model.entry.provider
    return Failure(model.entry.name, Phrase("cannot be reached at {address}", address=address), "down")


def no_pictures(model: Model) -> Failure:
    return Failure(model.entry.name, "takes no pictures, only text")


def broken(model: Model, reason: str) -> Failure:
    # A retry may succeed.
    return Failure(model.entry.name, one_line(reason, model), "passing")


def one_line(text: str, model: Model) -> str:
    """Make the text of an error readable: one line, bounded, without the model's key.

    An error body in OpenAI's form is reduced to its message.
    """
    if model.key is not None:
        text = text.replace(model.key.get_secret_value(), "***")
    start = text.find("{")
    if start >= 0:
        text = text[:start] + _message_in(text[start:])
    return shortened(re.sub(r"\s+", " ", text).strip(), limits.MAX_REASON)


def _message_in(body: str) -> str:
    try:
        data = from_json(body)
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
        # Refuses what is nested too deep, and half of a surrogate pair, which nothing can be sent with.
        value = from_json(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def stop_reason(word: str) -> StopReason:
    return _STOPS.get(word, "unknown")


def as_cost(value: object) -> float | None:
    """Return what a provider says that an answer cost; None where that is no price."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


class CallCollector:
    """Puts the tool calls of a stream together from their pieces."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, list[str]]] = {}

    def add(self, key: str, name: str, arguments: str) -> None:
        """Add one piece; the name may come in the first one only."""
        known, pieces = self._calls.setdefault(key, ("", []))
        pieces.append(arguments)
        # Some servers repeat the whole name with every piece, others send it once.
        self._calls[key] = (known or name, pieces)

    def calls(self) -> Sequence[ToolCall]:
        """Return the complete calls in the order in which they began."""
        return [
            ToolCall(key or f"call_{number}", storable(name), raw, parsed_arguments(raw))
            for number, (key, (name, pieces)) in enumerate(self._calls.items())
            for raw in (storable("".join(pieces)),)
        ]


class ThoughtFilter:
    """Takes ``<think>…</think>`` off the beginning of a streamed answer.

    Servers that know their model send thoughts in a field of their own; others leave them in the text.
    Later in an answer the same marks are text.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._passes = False

    def feed(self, text: str) -> str:
        """Read a piece of the answer; return what of it can be shown."""
        if self._passes:
            return text
        self._held += text
        if not self._thinking:
            start = self._held.lstrip()
            if start.startswith(_OPEN):
                self._thinking = True
                self._held = start[len(_OPEN) :]
            elif _OPEN.startswith(start):
                return ""
            else:
                return self.rest()
        thought, closed, answer = self._held.partition(_CLOSE)
        if not closed:
            # The end may be the beginning of the closing mark; thoughts before it are not kept.
            self._held = thought[-len(_CLOSE) :]
            return ""
        self._passes, self._held = True, ""
        return answer.lstrip()

    def rest(self) -> str:
        """Return what was held back at the end of the answer, where it is no thought."""
        held = "" if self._thinking and not self._passes else self._held
        self._held, self._passes = "", True
        return held
