"""The hub's own status on the bus."""

import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from bus.link import Message
from contracts import own_version, topics
from contracts.devices.presence import HubStatus
from contracts.devices.rpc import Control
from hub_registry.storage.tables import now
from identity.envelope import Seal
from identity.files import write_private
from identity.ids import uuid7


def next_start(file: Path) -> datetime:
    """Return the time of this start, which is later than that of the start before, whatever the clock says.

    Spokes ignore the status of an earlier start as a replay.
    """
    last_ms = 0
    with suppress(OSError, ValueError):
        last_ms = int(file.read_bytes())
    started_ms = max(last_ms + 1, time.time_ns() // 1_000_000)
    write_private(file, str(started_ms).encode())
    return datetime.fromtimestamp(started_ms / 1000, UTC)


class HubPresence:
    """The retained status of one hub process, and its Last Will.

    A session is new at each connection to the broker: spokes then publish again what they are.

    Attributes:
        topic: Where it stands.
        silent: Whether nothing of it may be kept any more, not even a Last Will.
        words: See `HubStatus`.
    """

    def __init__(self, seal: Seal, *, instance: str, started_at: datetime | None = None) -> None:
        self._seal = seal
        self._instance = instance
        self.topic = topics.HUB_STATUS.build(instance=instance)
        self._started_at = started_at or now()
        self.session = secrets.token_hex(8)
        self.silent = False
        self.words = ""

    def will(self) -> Message | None:
        """Begin a session and make its Last Will; for ``open_link``, which asks before each connect."""
        self.session = secrets.token_hex(8)
        return None if self.silent else self.offline()

    def cleared(self) -> Message:
        """Make the message that empties the status."""
        row = topics.HUB_STATUS
        return Message(self.topic, b"", row.qos, row.retained)

    def online(self) -> Message:
        return self._message("online")

    def offline(self) -> Message:
        return self._message("offline")

    def renamed(self, device: str, *, epoch: int) -> Message:
        """Make the message by which a device asks again what it is called."""
        row, identifier = topics.CONTROL, uuid7()
        topic = row.build(device=device, call=identifier)
        told = Control(kind="renamed", id=identifier, instance=self._instance, epoch=epoch)
        return Message(topic, self._seal.seal(topic, told), row.qos, row.retained)

    def _message(self, state: Literal["online", "offline"]) -> Message:
        status = HubStatus(
            state=state,
            started_at=self._started_at,
            session=self.session,
            version=own_version(),
            words=self.words,
        )
        row = topics.HUB_STATUS
        return Message(self.topic, self._seal.seal(self.topic, status), row.qos, row.retained)
