"""Conversations as they are kept and synced: entries that are only ever added.

A spoke and the hub sync by ``POST /api/history/sync``, as often as it takes. The spoke sends what it wrote
and the hub lacks; the hub answers how far it has come in that, and with what follows the spoke's place in
the entries that are meant for this spoke. Either may be sent again at any time: an entry is known by its
origin and its number there.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, AwareDatetime, Field, PlainSerializer, StringConstraints

from contracts.events import Mode
from contracts.names import Token
from contracts.wire import Part, Wire, rfc3339

PIECE: Final = 16_000
"""Characters of one entry; a longer text goes on in the next one of the same turn and kind."""

MOST_DEEDS: Final = 50
"""Things done in one turn that are kept."""

PAGE_ENTRIES: Final = 100
_PAGE_BYTES: Final = 128 * 1024
"""A page is read whole by both sides; a spoke reads at most 256 kB of an answer."""

_HUB: Final = "hub-"
"""In front of a hub process's name; no id of a device has a hyphen."""

Origin = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}\.[0-9a-f]{12}$")]
"""Who counts the entries: the writer, and one of its starts.

The writer is a device's id, or ``hub-`` and the name of a hub process. It counts anew at each start, so
that a disk that lost the last entries, or a backup that was put back, never gives a number twice.
"""

Seq = Annotated[int, Field(ge=1, lt=1 << 53)]
"""The number of an entry: counted by its origin from 1, without gaps."""

Vector = dict[Origin, Annotated[int, Field(ge=0)]]
"""How far each origin's entries have come in: the highest number, 0 for none."""

Deed = Annotated[str, StringConstraints(max_length=200)]


def _whole_milliseconds(moment: datetime) -> datetime:
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


Moment = Annotated[
    AwareDatetime,
    AfterValidator(_whole_milliseconds),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
]
"""A moment to the millisecond, so that it is the same before and after it was stored or sent."""


class Entry(Part):
    """Something that was said in a conversation.

    Attributes:
        at: When, by the hub's clock as far as the writer knew it.
        kind: What a person said, or what was answered.
        agent: Who was asked; with a question.
        device: Id of the current device of the turn, where there is one.
        mode: Who answered; with an answer, None where nobody could.
        did: What tools did, a line each; with an answer.
        untrusted: Whether text from outside the home came into the turn; with an answer.
        complete: Whether the answer was not broken off; with an answer.
    """

    origin: Origin
    seq: Seq
    conversation: Token
    turn: Token
    at: Moment
    kind: Literal["question", "answer"]
    text: Annotated[str, Field(max_length=PIECE)]
    agent: Annotated[str, Field(max_length=64)] = ""
    device: Token | None = None
    mode: Mode | None = None
    did: Annotated[tuple[Deed, ...], Field(max_length=MOST_DEEDS)] = ()
    untrusted: bool = False
    complete: bool = True

    @property
    def key(self) -> tuple[str, int]:
        """What it is known by among the entries of one person."""
        return self.origin, self.seq

    @property
    def writer(self) -> str:
        """The device's id, or ``hub-`` and the hub process's name."""
        return writer_of(self.origin)


class Place(Part):
    """How far a spoke has come in the entries that the hub has for it.

    Attributes:
        number: Of the last one it took, in the hub's list for this device.
        origin: Which entry that was: a hub that lost the end of its list recognises it by that.
    """

    number: Seq
    origin: Origin
    seq: Seq


class SyncRequest(Wire):
    """Spoke → hub.

    Attributes:
        entries: What the spoke wrote and the hub lacks: of each origin without a gap, in order.
        after: Where the spoke stands; None at the beginning.
    """

    kind: Literal["history_sync"] = "history_sync"
    entries: Annotated[tuple[Entry, ...], Field(max_length=PAGE_ENTRIES)] = ()
    after: Place | None = None


class SyncAnswer(Wire):
    """Hub → spoke.

    Attributes:
        have: Of each origin that was in the request: up to where the hub has it now.
        refused: Entries that the hub knows with another content; it keeps its own.
        entries: What follows the spoke's place, without what the request held.
        place: Where the spoke stands once it has stored them.
        more: Whether there are further ones.
        again: The hub does not know the spoke's place: it begins anew, and so should the spoke.
    """

    kind: Literal["history"] = "history"
    have: Vector = {}
    refused: tuple[tuple[Origin, Seq], ...] = ()
    entries: tuple[Entry, ...] = ()
    place: Place | None = None
    more: bool = False
    again: bool = False


def hub_writer(instance: str) -> str:
    """Give the writer's name of a hub process."""
    return f"{_HUB}{instance}"


def writer_of(origin: str) -> str:
    """Give who writes as this origin."""
    return origin.rpartition(".")[0]


def is_hub(writer: str) -> bool:
    """Whether a process of the hub writes so, and no device."""
    return writer.startswith(_HUB)


def pieces_of(text: str) -> list[str]:
    """Cut a text into what fits into entries; an empty one is one piece, too."""
    return re.findall(rf"(?s).{{1,{PIECE}}}", text) or [""]


def page_of(entries: Iterable[Entry]) -> list[Entry]:
    """Give the first entries, as many as fit into one message; at least one where there is any."""
    page: list[Entry] = []
    size = 0
    for entry in entries:
        size += len(entry.model_dump_json().encode())
        if page and (len(page) == PAGE_ENTRIES or size > _PAGE_BYTES):
            break
        page.append(entry)
    return page
