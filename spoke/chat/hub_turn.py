"""A turn that the hub answers: passed on as it arrives, and never run a second time by either side.

The hub records a turn before the first chunk of its answer, and runs tools only after that. So a turn without
a first chunk can be taken back: where the hub says ``not_started``, it has run nothing of it and never will,
and this device may answer itself. Where that cannot be known, this device must not act.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

from pydantic import ValidationError

from agent_core.turn import Emit
from chat.http.completions import CompletionChunk
from chat.turns import Turn
from contracts.chat.messages import TurnError, TurnFinal
from contracts.errors import (
    Conflict,
    GatewayError,
    HubBroken,
    HubUnreachable,
    NotFound,
    NotServed,
    ProblemDetails,
    StrawberryError,
    Unsure,
)
from contracts.tracing.correlation import ids
from contracts.wire import Json
from spoke import limits
from spoke.chat.hub_health import HubHealth
from spoke.membership.hub_connection import HubConnection
from spoke.membership.trust import Hub
from spoke.settings import ChatSettings

_log = logging.getLogger(__name__)

_CHAT: Final = "/v1/chat/completions"

_CAME_BEFORE: Final = 409
_UNAVAILABLE: Final = 503
_RAN_NOTHING: Final = (401, 403, 404, 413, 421, 422, 429, _UNAVAILABLE)
"""Statuses by which a hub refuses a message before anything of it happens."""


@dataclass(frozen=True)
class Deadlines:
    """Deadline budget for asking the hub, as times of the running loop's clock.

    Each of the four steps has a quarter of the whole, and what the steps before it have left of theirs. So a
    hub that falls silent, at whatever step, costs the whole at most. A message is sent only while there is
    time for its first chunk, and one without a first chunk can still be taken back: whatever was spent
    before, the hub has a fair time to say that it does nothing, and a doubt remains only where it does not.

    Attributes:
        pushed: Pushing what was said here while the hub was away.
        checked: An answer that says that the hub is there.
        begun: The first chunk of its answer to the message.
        settled: An answer that says that it does not run the message.
    """

    pushed: float
    checked: float
    begun: float
    settled: float

    @classmethod
    def from_now(cls, whole_s: float) -> Self:
        """Start the clock.

        Args:
            whole_s: Seconds for all steps together.
        """
        now, quarter = asyncio.get_running_loop().time(), whole_s / 4
        return cls(now + quarter, now + 2 * quarter, now + 3 * quarter, now + whole_s)


class HubTurns:
    """The turns that the hub answers.

    Args:
        push: Called before each message, unless the hub is known to be silent: pushes what was said here
            while it was away. Cancelled where it takes long; the message is sent all the same.
    """

    def __init__(
        self, health: HubHealth, *, settings: ChatSettings, push: Callable[[], Awaitable[None]]
    ) -> None:
        self.health = health
        self._settings = settings
        self._push = push
        self._running: dict[str, Hub] = {}

    def has(self, turn: str) -> bool:
        return turn in self._running

    async def run(self, turn: Turn, emit: Emit, *, began: Callable[[], Awaitable[None]]) -> None:
        """Ask the hub, and pass on its events; ends with ``TurnFinal`` or ``TurnError``.

        What it raises is raised within ``hub_s``, whatever the hub does.

        Args:
            began: Called once the hub has taken the turn.

        Raises:
            NotServed: If it does not run the turn and never will.
            Unsure: If it may run the turn, and that cannot be known.
        """
        deadlines = Deadlines.from_now(self._settings.hub_s)
        hub = await self._check(deadlines)
        async with AsyncExitStack() as stack:
            chunks = await self._begin(stack, hub, turn, deadlines)
            if chunks is None:
                turn.at_hub = True
                emit(_CAME_BEFORE_ERROR)
                return
            self._running[turn.id] = hub
            try:
                await began()
                await self._pass_on(chunks, turn, emit)
            finally:
                del self._running[turn.id]

    async def confirm(self, turn: str, question: str, *, approve: bool) -> None:
        """Send a person's answer to a question of the hub's.

        Raises:
            NotFound: If the hub did not ask this in this turn.
            Conflict: If it was answered before, or the time to answer is over.
            GatewayError: If the hub does not take it for another reason.
        """
        path = f"/api/turns/{turn}/confirmations/{quote(question, safe='')}"
        answer = await self._running[turn].http.request(
            "POST", path, {"approve": approve}, bearer=self.health.bearer
        )
        if answer.status != 200:
            problem = answer.problem
            kind = {404: NotFound, 409: Conflict}.get(answer.status, GatewayError)
            raise kind(problem.message or f"the hub answered with status {answer.status}", hint=problem.hint)

    async def _check(self, deadlines: Deadlines) -> Hub:
        """Push the outbox, and see that the hub is there.

        Raises:
            NotServed: If it is not.
        """
        # In this order: a hub that falls silent over the push is found out before it gets the message.
        if not self.health.is_silent:
            with suppress(TimeoutError, StrawberryError):
                async with asyncio.timeout_at(deadlines.pushed):
                    await self._push()
        try:
            return await self.health.check(until=deadlines.checked)
        except HubUnreachable as error:
            raise NotServed(error.message) from None

    async def _begin(
        self, stack: AsyncExitStack, hub: Hub, turn: Turn, deadlines: Deadlines
    ) -> AsyncGenerator[dict[str, Any], None] | None:
        """Send the message and wait for the first chunk; return None if the hub had this turn before."""
        status, reason, hint, code = 0, "", "", ""
        # Nothing that still arrives on this connection may be taken for an answer.
        sending = await stack.enter_async_context(AsyncExitStack())
        connection = await self._connect(sending, hub, deadlines)
        try:
            async with asyncio.timeout_at(deadlines.begun):
                head = await connection.send(
                    "POST", _CHAT, _body(turn), bearer=self.health.bearer, headers=_headers(turn)
                )
                status = head.status
                if status == 200:
                    chunks = await sending.enter_async_context(aclosing(connection.events()))
                    if await anext(chunks, None) is None:
                        raise HubBroken("the hub's answer ended before it began")
                    return chunks
                reason, hint, code = _refusal(status, await connection.json(at_most=limits.MAX_REFUSAL_BYTES))
        except TimeoutError:
            # The next message does not wait, even where this one can be taken back.
            self.health.set_silent()
            status, reason = 0, "the hub took the message and went silent"
        except HubUnreachable as error:
            status, reason = 0, error.message
        if status == _CAME_BEFORE:
            return None
        if status not in _RAN_NOTHING:
            connection.close()
            await sending.aclose()
            await self._take_back(hub, turn.id, reason, until=deadlines.settled)
        if code == "no_model":
            raise NotServed(reason, hint=hint, by_hub="no_model")
        if status not in _RAN_NOTHING or status == _UNAVAILABLE:
            raise NotServed(reason, hint=hint)  # also by a proxy whose hub is away
        raise NotServed(reason, hint=hint, by_hub="refused")

    async def _connect(self, stack: AsyncExitStack, hub: Hub, deadlines: Deadlines) -> HubConnection:
        """Connect. As nothing was sent before, no doubt is left where this fails.

        Raises:
            NotServed: If there is no connection.
        """
        try:
            async with asyncio.timeout_at(deadlines.begun):
                return await stack.enter_async_context(hub.http.connection())
        except TimeoutError:
            self.health.set_silent()
            raise NotServed(f"the hub at {hub.http.url} does not answer") from None
        except HubUnreachable as error:
            raise NotServed(error.message) from None

    async def _take_back(self, hub: Hub, turn: str, reason: str, *, until: float) -> None:
        """Make sure that the hub does not run the turn, now or later.

        Args:
            until: How long it may take to say so, as a time of the loop's clock.

        Raises:
            Unsure: If it does not say so.
        """
        try:
            async with asyncio.timeout_at(until):
                answer = await hub.http.request(
                    "POST",
                    f"/api/turns/{turn}/cancel",
                    {},
                    bearer=self.health.bearer,
                    timeout_s=2 * self._settings.hub_s,
                )
        except TimeoutError:
            self.health.set_silent()
            raise Unsure(reason) from None
        except HubUnreachable:
            raise Unsure(reason) from None
        state = answer.body.get("state") if isinstance(answer.body, dict) else None
        if answer.status != 200 or state != "not_started":
            raise Unsure(reason)

    async def _pass_on(self, chunks: AsyncGenerator[dict[str, Any], None], turn: Turn, emit: Emit) -> None:
        """Pass on what arrives; where it breaks off or stops, say so."""
        reader = _Reader(chunks, emit)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(reader.read(), name="hub's answer")
            while not reading.done():
                heard = reader.chunks
                await asyncio.wait({reading}, timeout=self._settings.silent_s)
                if reader.chunks == heard and not reading.done() and not await self._is_alive():
                    self.health.set_silent()
                    reading.cancel()
                    break
        turn.at_hub = reader.last is not None
        emit(reader.last or _BROKEN)

    async def _is_alive(self) -> bool:
        for _ in range(limits.SILENT_HUB_CHECKS):
            if await self.health.is_alive():
                return True
        return False


class _Reader:
    """Reads the chunks of an answer to its end.

    Attributes:
        chunks: How many have arrived.
        last: The last event of the turn, once it has arrived; the hub has recorded it when the answer ends.
    """

    def __init__(self, chunks: AsyncGenerator[dict[str, Any], None], emit: Emit) -> None:
        self.chunks = 0
        self.last: TurnFinal | TurnError | None = None
        self._source = chunks
        self._emit = emit

    async def read(self) -> None:
        """Read to the end of the answer, or of the connection."""
        try:
            async for chunk in self._source:
                self.chunks += 1
                if self.last is None:
                    self._take(chunk)
        except HubBroken as error:
            _log.info("%s", error)

    def _take(self, chunk: dict[str, Any]) -> None:
        try:
            event = CompletionChunk.model_validate(chunk).event
        except ValidationError:
            # An event of a newer hub.
            return
        if isinstance(event, TurnFinal | TurnError):
            self.last = event
        elif event is not None:
            self._emit(event)


_CAME_BEFORE_ERROR: Final = TurnError(
    code="refused",
    message="the hub received this message before",
    hint="Nothing was run again; send it as a new message.",
)
_BROKEN: Final = TurnError(
    code="broken",
    message="the connection to the hub was lost during its answer",
    hint="What it did until then stays done, and nothing was done again. Check before you ask again.",
)


def _body(turn: Turn) -> dict[str, Json]:
    """Return the message as OpenAI's clients send it. The hub has the conversation: no history is sent."""
    messages = [{"role": "user", "content": turn.request.message}]
    return {"model": turn.request.agent, "stream": True, "messages": messages}


def _headers(turn: Turn) -> dict[str, str]:
    headers = {"X-Strawberry-Conversation": turn.conversation, "X-Strawberry-Turn": turn.id}
    if request := ids().get("request"):
        headers["X-Request-ID"] = request
    return headers | ({"X-Strawberry-Confirm": "true"} if turn.request.can_confirm else {})


def _refusal(status: int, body: Json) -> tuple[str, str, str]:
    """Return message, hint and code of a refusal."""
    problem = ProblemDetails.read(body)
    if problem is None:
        return f"it answered with status {status}", "", ""
    return problem.message, problem.hint, problem.code
