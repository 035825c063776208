"""Questions to the person of a running turn, each answered once."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from chat import limits
from contracts.errors import Conflict, NotFound


class Questions:
    """The open questions of running turns."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, str, asyncio.Future[bool]]] = {}
        self._closed: OrderedDict[str, tuple[str, str]] = OrderedDict()

    async def ask(self, user: str, turn: str, *, expires_s: float, tell: Callable[[str], None]) -> bool:
        """Ask and wait.

        Args:
            user: Id of the only user who may answer.
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
            if len(self._closed) > limits.MOST_ANSWERED_KEPT:
                self._closed.popitem(last=False)

    def answer(self, user: str, turn: str, question: str, *, approve: bool) -> None:
        """Answer an open question.

        Raises:
            NotFound: If this user was never asked this in this turn.
            Conflict: If it was answered before, or the time to answer is over.
        """
        if self._closed.get(question) == (user, turn):
            raise Conflict("this question is closed", hint="It was answered already, or not in time.")
        owner, of_turn, future = self._open.get(question, ("", "", None))
        if future is None or (owner, of_turn) != (user, turn):
            raise NotFound("there is no such question in this turn")
        if future.done():
            raise Conflict("this question was answered already")
        future.set_result(approve)


@dataclass(frozen=True)
class TurnConfirmer:
    """Asks the person of one turn; see ``agent_core.tools.skill_calls.Confirmer``."""

    questions: Questions
    user: str
    turn: str
    expires_s: float

    async def ask(self, tell: Callable[[str], None]) -> bool:
        return await self.questions.ask(self.user, self.turn, expires_s=self.expires_s, tell=tell)
