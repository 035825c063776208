"""A turn that the hub answers: handed on as it comes, and never run a second time by anybody.

The hub writes a turn down before the first chunk of its answer, and runs tools only after that. So a turn
that has no first chunk yet can be taken back: where the hub says ``not_started``, it has run nothing of it
and never will, and this device may answer by its own means. Where nobody can say, this device must not act.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final

from pydantic import SecretStr, ValidationError

from agent_core.conversation import Exchange
from agent_core.turn import Emit
from contracts.errors import Conflict, GatewayError, NotFound
from contracts.events import TURN_EVENT, TextDelta, TurnError, TurnFinal
from contracts.wire import Json
from spoke.chat.hub_stream import HubBroken, HubStream, posted
from spoke.chat.patience import Patience
from spoke.chat.reach import Reach
from spoke.membership.enrolment import Enrolment
from spoke.membership.hub_http import HubUnreachable
from spoke.membership.trust import Hub
from spoke.settings import ChatSettings

_LOG = logging.getLogger(__name__)

_CHAT: Final = "/v1/chat/completions"
_MAX_HISTORY: Final = 200_000
"""Characters of earlier exchanges that go along; the hub takes a megabyte in all."""

_CAME_BEFORE: Final = 409
_RAN_NOTHING: Final = (401, 403, 404, 413, 421, 422, 429, 503)
"""Statuses by which a hub refuses a message before anything of it happens."""

_LOOKS: Final = 2
"""How often a hub is asked whether it lives before its answer is given up."""


class NotServed(Exception):
    """The hub does not run this turn, and never will; the text says why."""


class Unsure(Exception):
    """The hub may run this turn, or may have run it; the text says why."""


@dataclass(frozen=True)
class HubQuestion:
    """A message for the hub.

    Attributes:
        history: Earlier exchanges, as this device knows them.
        can_confirm: Whether whoever asks can be shown questions and answer them.
    """

    turn: str
    conversation: str
    message: str
    history: tuple[Exchange, ...] = ()
    can_confirm: bool = False

    @property
    def body(self) -> dict[str, Any]:
        """The request as OpenAI's clients make it."""
        messages: list[dict[str, str]] = [{"role": "user", "content": self.message}]
        left = _MAX_HISTORY
        for exchange in reversed(self.history):
            left -= len(exchange.question) + len(exchange.answer or "")
            if left < 0:
                break
            if exchange.answer:
                question = {"role": "user", "content": exchange.question}
                messages[:0] = [question, {"role": "assistant", "content": exchange.answer}]
        return {"model": "assistant", "stream": True, "messages": messages}

    @property
    def headers(self) -> dict[str, str]:
        """What says which turn of which conversation it is."""
        made = {"X-Strawberry-Conversation": self.conversation, "X-Strawberry-Turn": self.turn}
        return made | ({"X-Strawberry-Confirm": "true"} if self.can_confirm else {})


class HubTurns:
    """The turns that the hub answers.

    Args:
        enrolment: Gives what is known of the hub now, and the token that it takes.
        prepare: Called before each message, unless the hub is known to be silent: tells it what was said
            here while it was away. Cancelled where it takes long; the message goes all the same.
    """

    def __init__(
        self,
        enrolment: Callable[[], Enrolment],
        *,
        reach: Reach,
        settings: ChatSettings,
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        self._enrolment = enrolment
        self._prepare = prepare
        self._reach = reach
        self._settings = settings
        self._running: dict[str, Hub] = {}

    def has(self, turn: str) -> bool:
        """Whether the hub answers this turn right now."""
        return turn in self._running

    async def run(self, question: HubQuestion, emit: Emit, *, began: Callable[[], Awaitable[None]]) -> None:
        """Let the hub answer, and hand on what it tells; ends with ``TurnFinal`` or ``TurnError``.

        What it raises comes within ``hub_s``, whatever the hub does.

        Args:
            began: Called once the hub has taken the turn.

        Raises:
            NotServed: If it does not run the turn and never will.
            Unsure: If it may run the turn, and that cannot be known.
        """
        patience = Patience.from_now(self._settings.hub_s)
        hub = await self._find(patience)
        async with AsyncExitStack() as stack:
            chunks = await self._begin(stack, hub, question, patience)
            if chunks is None:
                emit(_CAME_BEFORE_ERROR)
                return
            self._running[question.turn] = hub
            try:
                await began()
                await self._hand_on(chunks, emit)
            finally:
                del self._running[question.turn]

    async def confirm(self, turn: str, question: str, *, approve: bool) -> None:
        """Hand on what the person said to a question of the hub's.

        Raises:
            NotFound: If the hub did not ask this in this turn.
            Conflict: If it was answered before, or the time to answer is over.
            GatewayError: If the hub does not take it for another reason.
        """
        hub = self._running[turn]
        path = f"/api/turns/{turn}/confirmations/{question}"
        answer = await hub.http.post(path, {"approve": approve}, bearer=self._bearer)
        if answer.status != 200:
            message, hint = answer.error
            kind = {404: NotFound, 409: Conflict}.get(answer.status, GatewayError)
            raise kind(message or f"the hub answered with status {answer.status}", hint=hint)

    async def _find(self, patience: Patience) -> Hub:
        """Tell the hub the news, and see that it is there.

        Raises:
            NotServed: If it is not.
        """
        # In this order: a hub that falls silent over the news is found out before it gets the message.
        if not self._reach.is_silent:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(patience.told):
                    await self._prepare()
        try:
            return await self._reach.hub(until=patience.found)
        except HubUnreachable as error:
            raise NotServed(error.message) from None

    async def _begin(
        self, stack: AsyncExitStack, hub: Hub, question: HubQuestion, patience: Patience
    ) -> AsyncGenerator[dict[str, Any], None] | None:
        """Send it, and wait for the first chunk; None where the hub had this turn before."""
        status, said = 0, ""
        connection = await self._connected(hub, patience)
        try:
            async with asyncio.timeout_at(patience.begun):
                request = posted(
                    hub.http,
                    connection,
                    _CHAT,
                    question.body,
                    bearer=self._bearer,
                    headers=question.headers,
                )
                stream = await stack.enter_async_context(request)
                if stream.status == 200:
                    return await _begun(stack, stream)
                status, said = stream.status, _said(stream.status, await stream.whole())
        except TimeoutError:
            # The next message does not wait, even where this one can be taken back.
            self._reach.silent()
            said = "the hub took the message and went silent"
        except HubBroken as error:
            said = error.message
        if status == _CAME_BEFORE:
            return None
        if status in _RAN_NOTHING:
            raise NotServed(said)
        # Nothing that still comes may be taken for an answer.
        await stack.aclose()
        await self._take_back(hub, question.turn, said, until=patience.settled)
        raise NotServed(said)

    async def _connected(
        self, hub: Hub, patience: Patience
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect. As nothing was sent before, no doubt is left where this fails.

        Raises:
            NotServed: If there is no connection.
        """
        try:
            async with asyncio.timeout_at(patience.begun):
                return await hub.http.connect()
        except TimeoutError:
            self._reach.silent()
            raise NotServed(f"the hub at {hub.http.url} does not answer") from None
        except HubUnreachable as error:
            raise NotServed(error.message) from None

    async def _take_back(self, hub: Hub, turn: str, reason: str, *, until: float) -> None:
        """See that the hub does not run the turn, now or later.

        Args:
            until: How long it may take to say so, as a time of the loop's clock.

        Raises:
            Unsure: If it does not say so.
        """
        path = f"/api/turns/{turn}/cancel"
        # The socket's own time-out is only there for the thread that is left behind.
        thread_s = 2 * self._settings.hub_s
        try:
            async with asyncio.timeout_at(until):
                answer = await hub.http.post(path, {}, bearer=self._bearer, timeout_s=thread_s)
        except TimeoutError:
            self._reach.silent()
            raise Unsure(reason) from None
        except HubUnreachable:
            raise Unsure(reason) from None
        state = answer.body.get("state") if isinstance(answer.body, dict) else None
        if answer.status != 200 or state != "not_started":
            raise Unsure(reason)

    async def _hand_on(self, chunks: AsyncGenerator[dict[str, Any], None], emit: Emit) -> None:
        """Hand on what comes; where it breaks off or dries up, say so."""
        reader = _Reader(chunks, emit)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(reader.read(), name="hub's answer")
            while not reading.done():
                heard = reader.chunks
                await asyncio.wait({reading}, timeout=self._settings.silent_s)
                if reader.chunks == heard and not reading.done() and not await self._lives():
                    self._reach.silent()
                    reading.cancel()
                    break
        if not reader.ended:
            emit(_BROKEN)

    async def _lives(self) -> bool:
        for _ in range(_LOOKS):
            if await self._reach.is_alive():
                return True
        return False

    @property
    def _bearer(self) -> SecretStr:
        # Not a renewed token that was not used yet: its first use is for `membership` to time.
        return self._enrolment().token


class _Reader:
    """Reads the chunks of an answer.

    Attributes:
        chunks: How many have come.
        ended: Whether the last one was the end of the turn.
    """

    def __init__(self, chunks: AsyncGenerator[dict[str, Any], None], emit: Emit) -> None:
        self.chunks = 0
        self.ended = False
        self._source = chunks
        self._emit = emit

    async def read(self) -> None:
        """Read to the end of the turn, or of the connection."""
        try:
            async for chunk in self._source:
                self.chunks += 1
                self._take(chunk)
                if self.ended:
                    return
        except HubBroken as error:
            _LOG.info("%s", error)

    def _take(self, chunk: dict[str, Any]) -> None:
        told = chunk.get("x_strawberry")
        if told is not None:
            try:
                event = TURN_EVENT.validate_python(told)
            except ValidationError:
                # A newer hub tells things that this device does not know.
                return
            self._emit(event)
            self.ended = isinstance(event, TurnFinal | TurnError)
            return
        for choice in chunk.get("choices") or ():
            text = (choice.get("delta") or {}).get("content")
            if text:
                self._emit(TextDelta(text=text))


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


async def _begun(stack: AsyncExitStack, stream: HubStream) -> AsyncGenerator[dict[str, Any], None]:
    chunks = await stack.enter_async_context(aclosing(stream.events()))
    if await anext(chunks, None) is None:
        raise HubBroken("the hub's answer ended before it began")
    return chunks


def _said(status: int, body: Json) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return f"the hub says: {message}" if message else f"the hub answered with status {status}"
