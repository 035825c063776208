"""What a spoke answers to calls: made, signed, and put on the bus."""

import asyncio
import logging

from bus.link import Link, Message
from bus.rpc.memory import Entry
from contracts import topics
from contracts.errors import CallError, Disconnected, ErrorCode
from contracts.rpc import Accepted, Failure, Progress, Result
from contracts.wire import Json
from identity.envelope import Seal

_logger = logging.getLogger(__name__)

_MESSAGE_LENGTH = 4_000
_HINT_LENGTH = 1_000


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
        """Give the topic that the replies to a call go to."""
        return topics.RESULT.build(device=self._device, instance=instance, call=call_id)

    def accepted(self, entry: Entry) -> bytes:
        """Say that a call is reserved."""
        return self._seal.seal(entry.reply_topic, Accepted(id=entry.id, epoch=self._epoch))

    def progress(self, entry: Entry, value: Json) -> bytes:
        """Say that a call runs, with what it reports.

        Raises:
            PydanticSerializationError: If the value is not JSON.
        """
        progress = Progress(id=entry.id, epoch=self._epoch, seq=entry.progress_seq, value=value)
        entry.progress_seq += 1
        return self._seal.seal(entry.reply_topic, progress)

    def result(self, entry: Entry, value: Json) -> bytes:
        """Say what a call gave; ``too_large`` where that is too much.

        Raises:
            PydanticSerializationError: If the value is not JSON.
        """
        result = Result(id=entry.id, epoch=self._epoch, value=value)
        sealed = self._seal.seal(entry.reply_topic, result)
        if len(sealed) <= self._max_payload:
            return sealed
        too_large = CallError(
            ErrorCode.TOO_LARGE,
            f"the result has {len(sealed):,} bytes; {self._max_payload:,} are allowed",
            hint="Ask for less at once.",
        )
        return self.failure(entry, too_large)

    def failure(self, entry: Entry, error: CallError) -> bytes:
        """Say why a call has no result."""
        failure = Failure(
            id=entry.id,
            epoch=self._epoch,
            code=error.code,
            message=_text(error.message, _MESSAGE_LENGTH),
            hint=_text(error.hint, _HINT_LENGTH),
        )
        return self._seal.seal(entry.reply_topic, failure)

    def send(self, entry: Entry, sealed: bytes) -> None:
        """Send a reply now, or as soon as there is room; drop it where there is no connection."""
        try:
            self._link.publish_nowait(Message(entry.reply_topic, sealed, correlation=entry.id.encode()))
        except Disconnected:
            if self._link.connected:
                self._tasks.create_task(self.deliver(entry, sealed), name="reply that waits for room")

    async def deliver(self, entry: Entry, sealed: bytes) -> None:
        """Send a reply; waits while too much is in flight."""
        try:
            await self._link.publish(entry.reply_topic, sealed, correlation=entry.id.encode())
        except Disconnected:
            # Nothing is lost: it is kept, and the hub asks again when we are back.
            _logger.info("the reply to call %s waits to be asked for again", entry.id)


def _text(text: str, length: int) -> str:
    """What a skill says may hold half characters, which no JSON can carry."""
    return text[:length].encode(errors="replace").decode()
