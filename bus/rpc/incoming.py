"""The calls of a spoke's epoch: their stages, and the outcomes that it keeps so that none runs twice."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto

from bus.link import Message
from contracts.devices.rpc import Call


class Stage(Enum):
    """How far a call has come on the spoke; ``docs/protocol.md`` draws the transitions as a table."""

    RESERVED = auto()
    RUNNING = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class IncomingCall:
    """One call as the spoke knows it.

    Attributes:
        issued_at: Seconds since 1970; becomes the floor when the call is forgotten.
        reply_topic: Where its replies go.
        reply: The last decisive reply (``accepted``, result or failure), signed, to be sent again.
        begun: Its task has taken its first step.
        began: When it did, by the event loop's clock.
        cancelled: A cancel has come for it.
    """

    id: str
    issued_at: float
    reply_topic: str
    stage: Stage
    call: Call | None = None
    skill: str = ""
    method: str = ""
    reply: bytes = b""
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    progress_seq: int = 0
    begun: bool = False
    began: float = 0.0
    cancelled: bool = False

    def message(self, reply: bytes) -> Message:
        return Message(self.reply_topic, reply, correlation=self.id.encode())


class DedupCache:
    """Calls by id, bounded in number and bytes; what is forgotten leaves a floor behind.

    Args:
        most: How many finished calls are kept.
        size: How many bytes their replies may take together.
    """

    def __init__(self, *, most: int, size: int) -> None:
        self.floor = 0.0
        self._most = most
        self._max_size = size
        self._size = 0
        self._active: dict[str, IncomingCall] = {}
        self._done: OrderedDict[str, IncomingCall] = OrderedDict()

    @property
    def active(self) -> int:
        return len(self._active)

    def find(self, call_id: str) -> IncomingCall | None:
        return self._active.get(call_id) or self._done.get(call_id)

    def forgot(self, issued_at: float) -> bool:
        """Return whether a call issued then may have been received and forgotten."""
        return issued_at <= self.floor

    def add(self, incoming: IncomingCall) -> None:
        self._active[incoming.id] = incoming

    def finish(self, incoming: IncomingCall, reply: bytes) -> None:
        """Keep a call's outcome, and forget the oldest ones where there are too many."""
        self._active.pop(incoming.id, None)
        incoming.stage, incoming.reply = Stage.DONE, reply
        # Only the reply is needed from here on.
        incoming.call = incoming.task = None
        self._done[incoming.id] = incoming
        self._size += len(reply)
        while len(self._done) > self._most or (self._size > self._max_size and len(self._done) > 1):
            _, forgotten = self._done.popitem(last=False)
            self._size -= len(forgotten.reply)
            self.floor = max(self.floor, forgotten.issued_at)

    def unfinished(self) -> list[IncomingCall]:
        return list(self._active.values())
