"""The answers of a spoke to calls: made, signed and published."""

import asyncio
import logging
from dataclasses import KW_ONLY, dataclass

from bus.link import Link
from bus.rpc.incoming import IncomingCall
from contracts import topics
from contracts.devices.rpc import Accepted, Failure, Progress, Result
from contracts.errors import CallError, Disconnected, ErrorCode
from contracts.wire import Json
from identity.envelope import Seal

_log = logging.getLogger(__name__)

_MESSAGE_LENGTH = 4_000
_HINT_LENGTH = 1_000
_CLASS_LENGTH = 200


@dataclass(eq=False)
class Replies:
    """Makes the replies of one device in one epoch, and sends them.

    Attributes:
        max_payload: Bytes that a signed reply may have.
        tasks: Of the responder, for replies that must wait for room.
    """

    link: Link
    seal: Seal
    _: KW_ONLY
    device: str
    epoch: int
    max_payload: int
    tasks: asyncio.TaskGroup

    def topic(self, instance: str, call_id: str) -> str:
        return topics.RESULT.build(device=self.device, instance=instance, call=call_id)

    def accepted(self, incoming: IncomingCall) -> bytes:
        return self.seal.seal(incoming.reply_topic, Accepted(id=incoming.id, epoch=self.epoch))

    def progress(self, incoming: IncomingCall, value: Json) -> bytes:
        """Make the report of a call that runs.

        Raises:
            PydanticSerializationError: If the value is not JSON.
        """
        progress = Progress(id=incoming.id, epoch=self.epoch, seq=incoming.progress_seq, value=value)
        incoming.progress_seq += 1
        return self.seal.seal(incoming.reply_topic, progress)

    def result(self, incoming: IncomingCall, value: Json) -> bytes:
        """Make the reply with the result of a call; ``too_large`` if it has too many bytes.

        Raises:
            PydanticSerializationError: If the value is not JSON.
        """
        result = Result(id=incoming.id, epoch=self.epoch, value=value, ran_ms=_ran_ms(incoming))
        sealed = self.seal.seal(incoming.reply_topic, result)
        if len(sealed) <= self.max_payload:
            return sealed
        too_large = CallError(
            ErrorCode.TOO_LARGE,
            f"the result has {len(sealed):,} bytes; {self.max_payload:,} are allowed",
            hint="Ask for less at once.",
        )
        return self.failure(incoming, too_large)

    def failure(self, incoming: IncomingCall, error: CallError) -> bytes:
        """Make the reply that says why a call has no result."""
        failure = Failure(
            id=incoming.id,
            epoch=self.epoch,
            code=error.code,
            message=_text(error.message, _MESSAGE_LENGTH),
            hint=_text(error.hint, _HINT_LENGTH),
            exception=_text(error.exception, _CLASS_LENGTH),
            ran_ms=_ran_ms(incoming),
        )
        return self.seal.seal(incoming.reply_topic, failure)

    def send(self, incoming: IncomingCall, sealed: bytes) -> None:
        """Send a reply now, or as soon as there is room; drop it if there is no connection."""
        try:
            self.link.publish_nowait(incoming.message(sealed))
        except Disconnected:
            if self.link.connected:
                self.tasks.create_task(self.deliver(incoming, sealed), name="reply that waits for room")

    async def deliver(self, incoming: IncomingCall, sealed: bytes) -> None:
        """Send a reply; waits while too much is in flight."""
        try:
            await self.link.send(incoming.message(sealed))
        except Disconnected:
            # Ignore Disconnected: the reply is kept, and the hub asks again when the link is back.
            _log.info("the reply to call %s waits to be asked for again", incoming.id)


def _ran_ms(incoming: IncomingCall) -> int | None:
    if not incoming.begun:
        return None
    return round((asyncio.get_running_loop().time() - incoming.began) * 1000)


def _text(text: str, length: int) -> str:
    """Cut a text of a skill, and replace half characters in it, which no JSON can carry."""
    cut = text[:length].encode(errors="replace").decode()
    return text if cut == text else cut  # a phrase stays one
