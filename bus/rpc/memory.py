"""What a spoke remembers of the calls of its epoch, so that none runs twice."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto

from contracts.rpc import Call


class Stage(Enum):
    """How far a call has come on the spoke."""

    RESERVED = auto()
    RUNNING = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class Entry:
    """One call on the spoke.

    Attributes:
        issued_at: Seconds since 1970; becomes the floor when the entry is forgotten.
        reply_topic: Where its replies go.
        reply: The last decisive reply (``accepted``, result or failure), signed, to be sent again.
        begun: Its task has taken its first step.
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
    cancelled: bool = False


class OutcomeMemory:
    """Entries by id, bounded in number and bytes; what is forgotten leaves a floor behind.

    Args:
        entries: How many finished calls are kept.
        size: How many bytes their replies may take together.
    """

    def __init__(self, *, entries: int, size: int) -> None:
        self.floor = 0.0
        self._max_entries = entries
        self._max_size = size
        self._size = 0
        self._active: dict[str, Entry] = {}
        self._done: OrderedDict[str, Entry] = OrderedDict()

    @property
    def active(self) -> int:
        """How many calls are reserved or running."""
        return len(self._active)

    def find(self, call_id: str) -> Entry | None:
        """Give the entry of a call, if it is remembered."""
        return self._active.get(call_id) or self._done.get(call_id)

    def forgot(self, issued_at: float) -> bool:
        """Whether a call issued then may have been here and been forgotten."""
        return issued_at <= self.floor

    def add(self, entry: Entry) -> None:
        """Remember a call that has just come."""
        self._active[entry.id] = entry

    def finish(self, entry: Entry, reply: bytes) -> None:
        """Keep a call's outcome, and forget the oldest ones where there are too many."""
        self._active.pop(entry.id, None)
        entry.stage, entry.reply = Stage.DONE, reply
        # Only the reply is needed from here on.
        entry.call = entry.task = None
        self._done[entry.id] = entry
        self._size += len(reply)
        while len(self._done) > self._max_entries or (self._size > self._max_size and len(self._done) > 1):
            _, forgotten = self._done.popitem(last=False)
            self._size -= len(forgotten.reply)
            self.floor = max(self.floor, forgotten.issued_at)

    def entries(self) -> list[Entry]:
        """Give the calls that are reserved or running."""
        return list(self._active.values())
