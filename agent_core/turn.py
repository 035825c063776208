"""The context that tools of a turn get."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from contracts.chat import TurnEvent

Emit = Callable[[TurnEvent], None]
"""Passes an event of the turn on to its client."""


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
