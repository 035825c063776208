"""A turn: its limits, and the context that its tools get."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from contracts.chat.messages import TurnEvent

Emit = Callable[[TurnEvent], None]
"""Passes an event of the turn on to its client."""


@dataclass(frozen=True)
class TurnLimits:
    """When a turn is stopped.

    Attributes:
        iterations: Questions to the model in which it may use tools; one more asks for a summary.
        seconds: Time, without that in which a person is asked.
        tokens: Input and output tokens of all questions together, as the models count them.
        context_tokens: Most tokens of one question; older exchanges are left out beyond it. The hub has them
            summarised when they take half of it.
    """

    iterations: int = 12
    seconds: float = 300.0
    tokens: int = 200_000
    context_tokens: int = 24_000


@dataclass(frozen=True)
class TurnContext:
    """What a tool may know of the turn that it is called in.

    Attributes:
        turn: Id of the turn.
        paused: Makes a context manager in which the turn's clock stands still.
    """

    turn: str
    emit: Emit
    paused: Callable[[], AbstractContextManager[object]]
