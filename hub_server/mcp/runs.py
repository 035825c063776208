"""Tool calls of MCP clients: each in a task of its own, so that it can wait for its person's answer.

Up to protocol version 2025-11-25 the hub asks over the open session while the request waits. From 2026-07-28
on there is no way back to the client: the request is answered with the question, and comes again with the
answer. The call waits in between.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Final

from agent_core.tools.toolset import ToolOutcome, failed
from agent_core.turn import TurnContext
from chat.questions import Questions
from contracts.chat.messages import TurnEvent
from contracts.errors import Conflict, NotFound, StrawberryError, TooManyRequests
from hub_server import limits
from identity.ids import uuid7

_log = logging.getLogger(__name__)

BEARER: Final = "strawberry.bearer"
"""Key of a request's scope under which its bearer is."""


class ToolRun:
    """One tool call.

    Args:
        user: Id of the person who is asked.
        token: ``jti`` of the token that it came with; no other may go on with it.

    Attributes:
        events: What happens in it; a `ToolOutcome` is the last.
    """

    def __init__(self, user: str, token: str) -> None:
        self.id = uuid7()
        self.user = user
        self.token = token
        self.question = ""
        self.events: asyncio.Queue[TurnEvent | ToolOutcome] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[TurnContext], Awaitable[ToolOutcome]]) -> None:
        """Run the work, and report how it ended."""
        outcome = failed("an internal error occurred; the log of the hub says what")
        try:
            outcome = await work(TurnContext(self.id, self.events.put_nowait, nullcontext))
        except StrawberryError as error:
            outcome = failed(error.message, error.hint)
        except Exception:  # noqa: BLE001  one call must not end the hub
            _log.exception("an MCP tool call failed")
        finally:
            self.events.put_nowait(outcome)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class ToolRuns:
    """The tool calls that wait for an answer of their person.

    Args:
        tasks: Owns the tasks of all calls.
    """

    def __init__(self, questions: Questions, tasks: asyncio.TaskGroup) -> None:
        self._questions = questions
        self._tasks = tasks
        self._waiting: dict[str, ToolRun] = {}

    def start(self, user: str, token: str, work: Callable[[TurnContext], Awaitable[ToolOutcome]]) -> ToolRun:
        """Begin a call."""
        run = ToolRun(user, token)
        run.task = self._tasks.create_task(run.run(work), name="MCP tool call")
        return run

    def answer(self, run: ToolRun, question: str, *, approve: bool) -> None:
        with suppress(Conflict, NotFound):
            self._questions.answer(run.user, run.id, question, approve=approve)

    def park(self, run: ToolRun, question: str) -> str:
        """Keep a call that has asked something; return the state with which its client goes on.

        Raises:
            TooManyRequests: If too many calls of this token wait already.
        """
        if sum(each.token == run.token for each in self._waiting.values()) >= limits.CALLS_WAITING:
            raise TooManyRequests(f"{limits.CALLS_WAITING} calls of this token wait for an answer")
        run.question = question
        self._waiting[run.id] = run
        # A client that does not come back: its question expires, and the call ends by itself.
        assert run.task is not None
        run.task.add_done_callback(lambda _: self._waiting.pop(run.id, None) and None)
        return run.id

    def resume(self, state: str, token: str) -> ToolRun:
        """Resume a call.

        Raises:
            NotFound: If no call of this token waits with this state.
        """
        run = self._waiting.get(state)
        if run is None or run.token != token:
            raise NotFound("no call waits for this answer", hint="It was not given in time. Call again.")
        del self._waiting[state]
        return run

    def end(self, tokens: frozenset[str]) -> None:
        """Stop the calls of tokens that were revoked."""
        for run in tuple(self._waiting.values()):
            if run.token in tokens:
                run.cancel()
