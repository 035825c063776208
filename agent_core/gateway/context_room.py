"""How long a context has to be for a prompt."""

import json
from dataclasses import dataclass
from typing import Final

from agent_core.gateway.protocol import AssistantMessage, Message, ModelRequest, ToolMessage, UserMessage
from agent_core.models.entries import ModelEntry

_BYTES_PER_TOKEN: Final = 3
"""On the safe side, also where a letter is a token: a prompt that turns out longer loses its beginning."""

_MESSAGE_TOKENS: Final = 8
"""What role and marks of one message cost."""

_LEAST: Final = 4096
_LEAST_ANSWER: Final = 512
"""Tokens that an answer needs; with less the warning comes."""


@dataclass(frozen=True)
class Room:
    """The context for one prompt.

    Attributes:
        num_ctx: Tokens to ask for.
        warning: What does not fit, in a sentence; empty where all does.
    """

    num_ctx: int
    warning: str = ""


class ContextRoom:
    """The context of one model: it grows in steps and never shrinks.

    Ollama loads a model anew for each other length, which takes seconds.

    Args:
        limit: Most tokens; None where nobody knows.
        reason: Why not more, for the warning.
    """

    def __init__(self, entry: ModelEntry, *, limit: int | None, reason: str) -> None:
        self._entry = entry
        self._limit = limit
        self._reason = reason
        self._now = _LEAST

    def take(self, request: ModelRequest) -> Room:
        """Make room for a prompt and its answer."""
        prompt = prompt_tokens(request)
        while self._now < prompt + self._entry.max_output_tokens:
            self._now *= 2
        if self._limit is None or self._now <= self._limit:
            return Room(self._now)
        self._now = self._limit
        if prompt + _LEAST_ANSWER <= self._limit:
            return Room(self._limit)
        return Room(
            self._limit,
            f"{self._entry.name} does not see all of this: it needs some {prompt + _LEAST_ANSWER} tokens, "
            f"and {self._reason}. What came first is cut off.",
        )


def room_for(entry: ModelEntry, trained: int | None) -> ContextRoom:
    """Make the room of a model.

    Args:
        trained: Tokens that it was trained for, where it is known.
    """
    own = entry.max_context_tokens
    if own is not None and (trained is None or own < trained):
        return ContextRoom(entry, limit=own, reason=f"max_context_tokens allows {own}")
    return ContextRoom(entry, limit=trained, reason=f"the model was made for {trained}")


def prompt_tokens(request: ModelRequest) -> int:
    """Estimate the tokens of a whole prompt, tools included."""
    tools = sum(
        _bytes(tool.name, tool.description, json.dumps(tool.parameters, ensure_ascii=False))
        for tool in request.tools
    )
    size = _bytes(request.system) + tools + sum(map(_size, request.messages))
    return size // _BYTES_PER_TOKEN + _MESSAGE_TOKENS * (len(request.messages) + len(request.tools) + 1)


def _size(message: Message) -> int:
    match message:
        case UserMessage(text) | ToolMessage(_, _, text):
            return _bytes(text)
        case AssistantMessage(text, calls):
            return _bytes(text, *(call.name + call.raw for call in calls))


def _bytes(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)
