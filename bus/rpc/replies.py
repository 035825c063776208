"""The answers of a spoke to calls: made, signed and published."""

import asyncio
import logging

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


class Replies:
    """Makes the replies of one device in one epoch, and sends them.

    Args:
        max_payload: Bytes that a signed reply may have.
        tasks: Of the responder, for replies that must wait for room.
    """

    def __init__(
        self, link: Link, seal: Seal, *, device: str, epoch: int, max_payload: int, tasks: asyncio.TaskGroup
    ) -> None:
        self._link = link
        self._seal = seal
        self._device = device
        self._epoch = epoch
        self._max_payload = max_payload
        self._tasks = tasks

    def topic(self, instance: str, call_id: str) -> str:
        return topics.RESULT.build(device=self._device, instance=instance, call=call_id)

    def accepted(self, incoming: IncomingCall) -> bytes:
        return self._seal.seal(incoming.reply_topic, Accepted(id=incoming.id, epoch=self._epoch))

    def progress(self, incoming: IncomingCall, value: Json) -> bytes:
        """Make the report of a call that runs.

        Raises:
            PydanticSerializationError: If the value is not JSON.
        """
        progress = Progress(id=incoming.id, epoch=self._epoch, seq=incoming.progress_seq, value=value)
        incoming.progress_seq += 1
        return self._seal.seal(incoming.reply_topic, progress)

    def result(self, incoming: IncomingCall, value: Json) -> bytes:
        """Make the reply with the result of a call; ``too_large`` if it has too many bytes.

        Raises:
            PydanticSerializationError: If the value is not JSON.
        """
        result = Result(id=incoming.id, epoch=self._epoch, value=value, ran_ms=_ran_ms(incoming))
        sealed = self._seal.seal(incoming.reply_topic, result)
        if len(sealed) <= self._max_payload:
            return sealed
        too_large = CallError(
            ErrorCode.TOO_LARGE,
            f"the result has {len(sealed):,} bytes; {self._max_payload:,} are allowed",
            hint="Ask for less at once.",
        )
        return self.failure(incoming, too_large)

    def failure(self, incoming: IncomingCall, error: CallError) -> bytes:
        """Make the reply that says why a call has no result."""
        failure = Failure(
            id=incoming.id,
            epoch=self._epoch,
            code=error.code,
            message=_text(error.message, _MESSAGE_LENGTH),
            hint=_text(error.hint, _HINT_LENGTH),
            exception=_text(error.exception, _CLASS_LENGTH),
            ran_ms=_ran_ms(incoming),
        )
        return self._seal.seal(incoming.reply_topic, failure)

    def send(self, incoming: IncomingCall, sealed: bytes) -> None:
        """Send a reply now, or as soon as there is room; drop it if there is no connection."""
        try:
            self._link.publish_nowait(incoming.message(sealed))
        except Disconnected:
            if self._link.connected:
                self._tasks.create_task(self.deliver(incoming, sealed), name="reply that waits for room")

    async def deliver(self, incoming: IncomingCall, sealed: bytes) -> None:
        """Send a reply; waits while too much is in flight."""
        try:
            await self._link.send(incoming.message(sealed))
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
