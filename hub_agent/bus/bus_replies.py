"""Replies to a chat request on the bus, one for each event of its turn."""

import asyncio
import logging
from typing import Final, Literal

from bus.link import Link
from contracts import topics
from contracts.chat import ChatReply, TurnError, TurnEvent, TurnFinal
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
from hub_agent import limits
from identity.envelope import Seal

_log = logging.getLogger(__name__)


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


class Replies:
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
            if is_last(event):
                await self._publish_when_back(payload)

    async def _publish(self, payload: bytes) -> None:
        await self._link.publish(self._topic, payload, qos=topics.CHAT_REPLY.qos)

    async def _publish_when_back(self, payload: bytes) -> None:
        back = asyncio.Event()

        async def note() -> None:
            back.set()

        forget = self._link.on_connected(note)
        try:
            async with asyncio.timeout(limits.LAST_REPLY_S):
                await back.wait()
            await self._publish(payload)
        except (TimeoutError, Disconnected):
            _log.warning("the broker is away: the last reply on %s was lost", self._topic)
        finally:
            forget()


def is_last(event: TurnEvent) -> bool:
    return isinstance(event, TurnFinal | TurnError)


def error_event(error: StrawberryError) -> TurnError:
    """Return the event for an error."""
    code: _Code = next((code for kind, code in _CODES if isinstance(error, kind)), "internal")
    return TurnError(code=code, message=error.message, hint=error.hint)
