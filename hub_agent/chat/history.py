"""Every conversation of this home: entries of the hub's own and of its devices, and who gets which.

A device gets the conversations of its owner in which it has taken part, each from its beginning, and no
others: what lies on a device in the hall is no more than what was said there. It reads them from a list of
its own, in which every entry has a number, so that a spoke says with one number what it has.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from secrets import token_hex
from typing import cast

from sqlalchemy import func
from sqlmodel import Session, col, select

from agent_core.conversation import ConversationSummary, Exchange, Words, exchanges_of, moment_after
from contracts.errors import Forbidden
from contracts.history import PAGE_ENTRIES, Entry, Place, SyncAnswer, SyncRequest, hub_writer, page_of
from hub_agent.tables import EntryRow, FeedRow, PartRow
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HubPen:
    """Writes as one start of one hub process.

    Attributes:
        origin: See ``contracts.history.Origin``.
    """

    origin: str

    @classmethod
    def of(cls, instance: str) -> "HubPen":
        """Make the one of this start."""
        return cls(f"{hub_writer(instance)}.{token_hex(6)}")

    def write(self, session: Session, user: str, words: Words, *, through: str | None = None) -> None:
        """Add words to a conversation.

        Args:
            through: Id of the device that takes part by them, if one does.
        """
        latest = select(func.max(EntryRow.at)).where(
            EntryRow.user == user, EntryRow.conversation == words.conversation
        )
        at = moment_after(now(), session.exec(latest).one())
        if through is not None:
            _take_part(session, user, words.conversation, through)
        for entry in words.entries(origin=self.origin, seq=_last(session, user, self.origin) + 1, at=at):
            _add(session, user, entry)


def recent(
    session: Session, user: str, conversation: str, *, limit: int, answered: bool = False
) -> list[Exchange]:
    """Give the last turns of a conversation, oldest first.

    Args:
        answered: Without those that have no answer, or none yet.
    """
    # Two entries for a turn, twice where two sides wrote it down, and more where a text is long.
    wanted = 6 * limit
    rows = session.exec(
        select(EntryRow)
        .where(EntryRow.user == user, EntryRow.conversation == conversation)
        .order_by(col(EntryRow.at).desc(), col(EntryRow.origin).desc(), col(EntryRow.seq).desc())
        .limit(wanted)
    )
    exchanges = exchanges_of(map(_entry, rows))
    if answered:
        exchanges = [exchange for exchange in exchanges if exchange.answer is not None]
    return exchanges[max(0, len(exchanges) - limit) :]


def summaries(session: Session, user: str, *, limit: int, device: str | None) -> list[ConversationSummary]:
    """Give the conversations of a user, the latest first.

    Args:
        device: Only those in which this device has taken part; None for all.
    """
    last = func.max(EntryRow.at)
    latest = (
        select(EntryRow.conversation, last)
        .where(EntryRow.user == user)
        .group_by(col(EntryRow.conversation))
        .order_by(last.desc(), col(EntryRow.conversation))
    )
    if device is not None:
        parts = select(PartRow.conversation).where(PartRow.user == user, PartRow.device == device)
        latest = latest.where(col(EntryRow.conversation).in_(parts))
    found = (
        ConversationSummary(conversation, asked, at)
        for conversation, at in session.exec(latest).all()
        # Of a conversation that is still on its way there may be no question yet.
        if (asked := _first_question(session, user, conversation)) is not None
    )
    return list(islice(found, limit))


def has_part(session: Session, user: str, conversation: str, device: str) -> bool:
    """Whether a device has taken part in a conversation."""
    return session.get(PartRow, (user, conversation, device)) is not None


class History:
    """What devices do with the history."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def sync(self, user: str, device: str, request: SyncRequest) -> SyncAnswer:
        """Take in what a device wrote, and give it what follows its place. The same again does no harm.

        Args:
            user: The owner of the device.

        Raises:
            Forbidden: If an entry is not in the name of this device; nothing of the request is kept.
        """
        for entry in request.entries:
            if entry.writer != device or entry.device not in (None, device):
                raise Forbidden(
                    "a device writes history in its own name only",
                    hint="Everybody else's entries come from those who wrote them.",
                )

        def work(session: Session) -> SyncAnswer:
            have, refused = _take_in(session, user, device, request.entries)
            answer = _what_follows(session, user, device, request)
            return answer.model_copy(update={"have": have, "refused": tuple(refused)})

        answer = await self._store.write(work)
        if answer.refused:
            origin, seq = answer.refused[0]
            _log.warning(
                "%s sent %d entries of its history with another content than before, first %s %d; "
                "what came first stays",
                device,
                len(answer.refused),
                origin,
                seq,
            )
        return answer


def _take_in(
    session: Session, user: str, device: str, entries: Iterable[Entry]
) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """Store what is new and follows without a gap; give how far each origin has come, and conflicts."""
    have: dict[str, int] = {}
    refused: list[tuple[str, int]] = []
    for entry in entries:
        origin = entry.origin
        if origin not in have:
            have[origin] = _last(session, user, origin)
        if entry.seq == have[origin] + 1:
            _take_part(session, user, entry.conversation, device)
            _add(session, user, entry)
            have[origin] = entry.seq
        elif entry.seq <= have[origin]:
            known = session.get_one(EntryRow, (user, origin, entry.seq))
            if _entry(known) != entry:
                refused.append(entry.key)
    return have, refused


def _what_follows(session: Session, user: str, device: str, request: SyncRequest) -> SyncAnswer:
    place, again = request.after, False
    if place is not None:
        there = session.get(FeedRow, (device, place.number))
        if there is None or (there.origin, there.seq) != (place.origin, place.seq):
            place, again = None, True
    found = session.exec(
        select(FeedRow, EntryRow)
        .where(
            FeedRow.device == device,
            FeedRow.number > (place.number if place else 0),
            # A device has one owner, for good; asked for all the same.
            FeedRow.user == user,
            EntryRow.user == FeedRow.user,
            EntryRow.origin == FeedRow.origin,
            EntryRow.seq == FeedRow.seq,
        )
        .order_by(col(FeedRow.number))
        .limit(PAGE_ENTRIES + 1)
    ).all()
    page = page_of(_entry(row) for _, row in islice(found, PAGE_ENTRIES))
    if page:
        last = found[len(page) - 1][0]
        place = Place(number=last.number, origin=last.origin, seq=last.seq)
    brought = {entry.key for entry in request.entries}
    return SyncAnswer(
        entries=tuple(entry for entry in page if entry.key not in brought),
        place=place,
        more=len(found) > len(page),
        again=again,
    )


def _last(session: Session, user: str, origin: str) -> int:
    found = select(func.max(EntryRow.seq)).where(EntryRow.user == user, EntryRow.origin == origin)
    return session.exec(found).one() or 0


def _add(session: Session, user: str, entry: Entry) -> None:
    session.add(EntryRow(user=user, **(entry.model_dump() | {"did": list(entry.did)})))
    parts = select(PartRow.device).where(PartRow.user == user, PartRow.conversation == entry.conversation)
    for device in session.exec(parts).all():
        _feed(session, device, user, [entry.key])


def _take_part(session: Session, user: str, conversation: str, device: str) -> None:
    """Let a device have a conversation; all that was said in it comes first."""
    if has_part(session, user, conversation, device):
        return
    session.add(PartRow(user=user, conversation=conversation, device=device))
    said = (
        select(EntryRow.origin, EntryRow.seq)
        .where(EntryRow.user == user, EntryRow.conversation == conversation)
        .order_by(col(EntryRow.at), col(EntryRow.origin), col(EntryRow.seq))
    )
    _feed(session, device, user, session.exec(said).all())


def _first_question(session: Session, user: str, conversation: str) -> str | None:
    first = (
        select(EntryRow.text)
        .where(EntryRow.user == user, EntryRow.conversation == conversation, EntryRow.kind == "question")
        .order_by(col(EntryRow.at), col(EntryRow.origin), col(EntryRow.seq))
        .limit(1)
    )
    return session.exec(first).first()


def _feed(session: Session, device: str, user: str, keys: Iterable[tuple[str, int]]) -> None:
    last = session.exec(select(func.max(FeedRow.number)).where(FeedRow.device == device)).one() or 0
    for number, (origin, seq) in enumerate(keys, start=last + 1):
        session.add(FeedRow(device=device, number=number, user=user, origin=origin, seq=seq))


def _entry(row: EntryRow) -> Entry:
    return Entry.model_validate(cast("object", row), from_attributes=True)
