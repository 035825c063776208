"""Chat over the bus: a request becomes a turn of its sender's owner, and each event of it a reply.

The topic names the sender. A device proves it by its signature, and gets signed replies. A client has no
key and is known by its login alone, so it is served only where the broker checks logins for us; its requests
and replies are plain. One that sends plain text gets only the last event of the turn. Confirmations cannot be
asked for here.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Final, Literal

from bus.link import Link, Message
from chat.tasks import happens, open_tasks
from contracts import topics
from contracts.chat.messages import MAX_MESSAGE, ChatReply, ChatRequest, TurnError, TurnEvent, TurnFinal
from contracts.claims import Claims
from contracts.errors import (
    Conflict,
    Disconnected,
    Forbidden,
    InvalidMessage,
    NoModel,
    NotFound,
    StrawberryError,
    TooManyRequests,
    Unauthorized,
)
from contracts.rates import Slots, TokenBucket, TokenBuckets
from hub_agent import limits
from hub_agent.bus.connection import Bus
from hub_agent.calls.audit import AuditTrail
from hub_agent.chat.assistant import Ask
from hub_registry.access.bearer import Bearer
from hub_registry.registry import Registry
from identity.envelope import Seal, unseal

_log = logging.getLogger(__name__)

_SHAPE: Final = 'Send {"message": …} as JSON, or the text itself.'
_MOST_BYTES: Final = 4 * MAX_MESSAGE + 4_096
"""A message of four bytes a character, and what stands around it."""


_Code = Literal["refused", "no_model", "limit", "invalid", "internal"]
_CODES: Final[tuple[tuple[type[StrawberryError], _Code], ...]] = (
    (Unauthorized, "refused"),
    (Forbidden, "refused"),
    (NoModel, "no_model"),
    (TooManyRequests, "limit"),
    (InvalidMessage, "invalid"),
    (Conflict, "invalid"),
    (NotFound, "invalid"),
)


@dataclass(frozen=True)
class _Asked:
    """A request whose sender is known.

    Attributes:
        signed: Whether it is a device's.
        brief: Whether only the last event is wanted.
    """

    principal: str
    id: str
    claims: Claims
    request: ChatRequest
    signed: bool
    brief: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.principal, self.id

    @property
    def turn(self) -> str:
        """The id of its turn, which the database takes once: a request is not run again, not even much later.

        The ids of clients count within their login, those of turns within a user.
        """
        if self.signed:
            return self.id
        return hashlib.sha256("/".join(self.key).encode()).hexdigest()[:32]


class _Replies:
    """The replies to one request, in their order.

    Args:
        seal: None where they are not signed.
    """

    def __init__(self, link: Link, seal: Seal | None, principal: str, id_: str) -> None:
        self._link = link
        self._seal = seal
        self._topic = topics.CHAT_REPLY.build(principal=principal, request=id_)
        self._seq = 0

    async def send(self, event: TurnEvent) -> None:
        """Publish one event. While the broker is away only the last one waits; a gap in ``seq`` shows it."""
        reply = ChatReply(seq=self._seq, event=event)
        self._seq += 1
        payload = self._seal.seal(self._topic, reply) if self._seal else reply.model_dump_json().encode()
        try:
            await self._publish(payload)
        except Disconnected:
            if _is_last(event):
                await self._publish_when_back(payload)

    async def _publish(self, payload: bytes) -> None:
        await self._link.publish(self._topic, payload, qos=topics.CHAT_REPLY.qos)

    async def _publish_when_back(self, payload: bytes) -> None:
        back = asyncio.Event()

        async def note() -> None:
            back.set()

        forget = self._link.on_connected(note)
        try:
            await happens(back, within_s=limits.LAST_REPLY_S)
            await self._publish(payload)
        except Disconnected:
            _log.warning("the broker is away: the last reply on %s was lost", self._topic)
        finally:
            forget()


@asynccontextmanager
async def open_bus_chat(registry: Registry, ask: Ask, bus: Bus, trail: AuditTrail) -> AsyncIterator[None]:
    """Answer the chat requests of the bus for as long as the context is open.

    Raises:
        Forbidden: If the broker refuses the subscription.
    """
    async with open_tasks(contained=True) as tasks:
        answers = BusChat(registry, ask, bus, trail, tasks)
        unsubscribe = await bus.link.subscribe(topics.CHAT_REQUEST.filter(), answers.arrived)
        try:
            yield
        finally:
            await unsubscribe()
            await answers.drain()


class BusChat:
    """Answers requests; made by `open_bus_chat`."""

    def __init__(
        self, registry: Registry, ask: Ask, bus: Bus, trail: AuditTrail, tasks: asyncio.TaskGroup
    ) -> None:
        self._ask = ask
        self._registry = registry
        self._trail = trail
        self._link = bus.link
        self._seal = bus.seal
        # Others administer the broker, or EMQX accepts revoked tokens: then only what is signed is served.
        self._shared = bus.settings.kind in ("emqx", "shared")
        self._tasks = tasks
        self._open: set[tuple[str, str]] = set()
        self._ended: set[tuple[str, str]] = set()
        self._slots = Slots(each=limits.MOST_OPEN_REQUESTS)
        self._idle = asyncio.Event()
        self._idle.set()
        self._refusals = TokenBuckets(burst=limits.CHAT_REFUSALS, per_second=0.5)
        self._all_refusals = TokenBucket(burst=5 * limits.CHAT_REFUSALS, per_second=2)

    def arrived(self, message: Message) -> None:
        """Start or refuse a request; for `Link.subscribe`.

        Raises:
            InvalidMessage: If the topic is none of a request.
        """
        if message.retain and message.payload:
            # It was meant once, and the broker would keep it for ever.
            self._tasks.create_task(self._empty(message.topic), name="chat: empty")
        if message.retain or not message.payload:
            return
        values = topics.CHAT_REQUEST.match(message.topic)
        if values is None:
            raise InvalidMessage("the bus has no such topic")
        principal, id_ = values["principal"], values["request"]
        try:
            asked = self._read(principal, id_, message)
            known = self._take(asked)
        except StrawberryError as error:
            self._refuse(principal, id_, error)
            return
        if known:
            _log.debug("request %s of %s came again while it is answered", id_, principal)
        else:
            self._tasks.create_task(self._answer(asked), name=f"chat {principal} {id_}")

    async def drain(self) -> None:
        # The turns were cancelled before.
        if not await happens(self._idle, within_s=limits.DRAIN_S):
            _log.warning("%d chat requests were left without their last reply", len(self._open))

    def _read(self, principal: str, id_: str, message: Message) -> _Asked:
        """Authenticate and parse a request.

        Raises:
            BadSignature: If it should be signed by a device and is not.
            Forbidden: If this sender may not chat here.
            InvalidMessage: If it is no request.
        """
        authority = self._registry.authority
        if len(message.payload) > _MOST_BYTES:
            raise InvalidMessage(f"a request may have {_MOST_BYTES:,} bytes")
        key = self._registry.directory.public_key(principal)
        if key is not None:
            document = unseal(self._seal.hub_id, message.topic, message.payload, key)
            claims = authority.on_bus("device", principal)
        elif self._shared:
            raise Forbidden(
                "on a shared broker, only messages signed by a device are answered",
                hint="Chat over HTTP, or from a device.",
            )
        else:
            document = message.payload
            claims = authority.on_bus("client", principal)
        if claims is None or "chat" not in claims.scopes:
            recording = self._trail.refusals(claims, method="chat") if claims else nullcontext()
            with recording:
                grant = (
                    "devices set NAME --scope chat' lets a device"
                    if key
                    else "broker login NAME --chat' lets a login"
                )
                raise Forbidden(f"{principal} may not chat", hint=f"'strawberry {grant}.")
        if key is None and not document.lstrip().startswith(b"{"):
            return _Asked(principal, id_, claims, _plain(document), signed=False, brief=True)
        try:
            request = topics.CHAT_REQUEST.parse(document)
        except InvalidMessage as error:
            raise InvalidMessage(error.message, hint=_SHAPE) from None
        return _Asked(principal, id_, claims, request, signed=key is not None)

    def _take(self, asked: _Asked) -> bool:
        """Enter a request; return whether it is being answered already.

        Raises:
            Conflict: If its answer is complete and being stored.
            TooManyRequests: If too many are open.
        """
        if asked.key in self._ended:
            raise _answered_before(asked)
        if asked.key in self._open:
            return True
        if not self._slots.take(asked.principal):
            raise TooManyRequests("too many requests are open", hint="Try again in a moment.")
        self._open.add(asked.key)
        self._idle.clear()
        return False

    async def _answer(self, asked: _Asked) -> None:
        replies = _Replies(self._link, self._seal if asked.signed else None, asked.principal, asked.id)
        try:
            await self._follow(asked, replies)
        except StrawberryError as error:
            await replies.send(_error_event(error))
        except Exception:  # noqa: BLE001  one request must not end the hub
            _log.exception("chat request %s of %s failed", asked.id, asked.principal)
            await replies.send(TurnError(code="internal", message="the hub failed; its log says more"))
        finally:
            self._open.discard(asked.key)
            self._slots.give_back(asked.principal)
            self._ended.discard(asked.key)
            if not self._open:
                self._idle.set()

    async def _follow(self, asked: _Asked, replies: _Replies) -> None:
        user = await self._registry.accounts.get(asked.claims.own)
        request = ChatRequest(
            message=asked.request.message,
            agent=asked.request.agent,
            conversation=asked.request.conversation,
            turn=asked.turn,
        )
        try:
            turn = await self._ask(request, Bearer(asked.claims, user))
        except Conflict:
            raise _answered_before(asked) from None
        async with aclosing(turn.events()) as events:
            async for event in events:
                if _is_last(event):
                    # The client may ask again while the turn is still being stored.
                    self._ended.add(asked.key)
                elif asked.brief:
                    continue
                await replies.send(event)

    async def _empty(self, topic: str) -> None:
        # A name that no topic may have cannot be published on.
        with suppress(Disconnected, ValueError):
            await self._link.publish(topic, b"", retain=True)

    def _refuse(self, principal: str, id_: str, error: StrawberryError) -> None:
        if not self._refusals.take(principal) or not self._all_refusals.take():
            _log.debug("chat request %s of %s refused, as many before it: %s", id_, principal, error)
            return
        _log.info("chat request %s of %s refused: %s", id_, principal, error)
        signs = self._registry.directory.public_key(principal) is not None
        replies = _Replies(self._link, self._seal if signs else None, principal, id_)
        self._tasks.create_task(replies.send(_error_event(error)), name=f"refuse {principal} {id_}")


def _answered_before(asked: _Asked) -> Conflict:
    return Conflict(f"request {asked.id} was answered before", hint="Use a new id for each request.")


def _plain(payload: bytes) -> ChatRequest:
    """Return a request whose message is the payload itself.

    Raises:
        InvalidMessage: If it is no text, or too long.
    """
    try:
        text = payload.decode().strip()
    except UnicodeDecodeError:
        raise InvalidMessage("the message is not UTF-8", hint=_SHAPE) from None
    if not 0 < len(text) <= MAX_MESSAGE:
        raise InvalidMessage(f"a message has 1 to {MAX_MESSAGE:,} characters")
    return ChatRequest(message=text)


def _is_last(event: TurnEvent) -> bool:
    return isinstance(event, TurnFinal | TurnError)


def _error_event(error: StrawberryError) -> TurnError:
    """Return the event for an error."""
    code: _Code = next((code for kind, code in _CODES if isinstance(error, kind)), "internal")
    return TurnError(code=code, message=error.message, hint=error.hint)
