"""Slips: a person says yes to one direct call with its real arguments.

A program that calls a skill directly is given a slip, asks its person, and hands the slip in with the same
call. It works once, for one user, one device, one method and one hash of the arguments. Turns ask their
person themselves; see ``chat.questions``.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from contracts.errors import Conflict

_MOST_REMEMBERED: Final = 1_000
"""Slips that are kept."""


@dataclass(frozen=True)
class Act:
    """What exactly is confirmed.

    Attributes:
        device: Id of the device, or ``hub``.
        method: ``Skill.method``.
        arguments: Hash of the arguments.
    """

    user: str
    device: str
    method: str
    arguments: str


class Slips:
    """Single-use permissions for direct calls."""

    def __init__(self, *, expires_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.expires_s = expires_s
        self._clock = clock
        self._issued: OrderedDict[str, tuple[Act, float]] = OrderedDict()

    def issue(self, act: Act) -> str:
        """Make a slip for exactly this act."""
        slip = secrets.token_urlsafe(16)
        self._issued[slip] = (act, self._clock() + self.expires_s)
        if len(self._issued) > _MOST_REMEMBERED:
            self._issued.popitem(last=False)
        return slip

    def redeem(self, slip: str, act: Act) -> None:
        """Use a slip up.

        Raises:
            Conflict: If it is unknown, used, expired, or was given for anything else.
        """
        issued, expires = self._issued.get(slip, (None, 0.0))
        # A slip that is tried for something else stays good for its own act.
        if issued != act:
            raise Conflict("this confirmation was not given for this call", hint="Ask again without it.")
        del self._issued[slip]
        if self._clock() >= expires:
            raise Conflict("this confirmation has expired", hint="Ask again without it.")
