"""Confirmations: a person says yes or no to one call with its real arguments.

Within a turn the question goes out as an event and the turn waits. A program that calls a skill
directly is given a slip instead, asks its person, and hands the slip in with the same call. Both
work once, for one user, one device, one method and one hash of the arguments.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from contracts.errors import Conflict, NotFound

_MOST_REMEMBERED: Final = 1_000
"""Answered questions and slips that are kept to tell a repetition from an unknown id."""


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


class Questions:
    """The open questions of running turns."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, str, asyncio.Future[bool]]] = {}
        self._closed: OrderedDict[str, tuple[str, str]] = OrderedDict()

    async def ask(self, user: str, turn: str, *, expires_s: float, tell: Callable[[str], None]) -> bool:
        """Ask and wait.

        Args:
            user: Who alone may answer.
            expires_s: Seconds until silence counts as no.
            tell: Called with the id of the question once it can be answered.
        """
        id_ = secrets.token_urlsafe(16)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._open[id_] = (user, turn, answer)
        try:
            tell(id_)
            async with asyncio.timeout(expires_s):
                return await answer
        except TimeoutError:
            return False
        finally:
            del self._open[id_]
            self._closed[id_] = (user, turn)
            if len(self._closed) > _MOST_REMEMBERED:
                self._closed.popitem(last=False)

    def answer(self, user: str, turn: str, question: str, *, approve: bool) -> None:
        """Answer an open question.

        Raises:
            NotFound: If this user was never asked this in this turn.
            Conflict: If it was answered before, or the time to answer is over.
        """
        if self._closed.get(question) == (user, turn):
            raise Conflict("this question is closed", hint="It was answered, or nobody answered in time.")
        owner, of_turn, future = self._open.get(question, ("", "", None))
        if future is None or (owner, of_turn) != (user, turn):
            raise NotFound("there is no such question in this turn")
        if future.done():
            raise Conflict("this question was answered already")
        future.set_result(approve)


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
