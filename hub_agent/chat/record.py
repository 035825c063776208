"""The record of conversations: one table of turns in the hub's database.

A turn is recorded before its first chunk is sent. Cancelling a turn that has not arrived records a tombstone
under its id, so that a request that arrives late does not run. Both insert the same primary key in one
transaction: exactly one of them wins.

A device joins and reads the conversations that a turn through it began, and no others: under the name of
another one it has a conversation of its own. It is known by its key and not by its id, so that a device that
was removed and joins again with its key still has them. What it hands in is recorded as its word, not as what
a person asked here.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, cast

from sqlalchemy import ColumnElement, and_, func, or_
from sqlmodel import Session, col, delete, select, update

from chat.turns import Turn, came_before, cancelled_before
from contracts.chat import ConversationSummary, TurnOutcome, TurnRecord, TurnState, moment_after
from contracts.errors import Conflict, Forbidden, NotFound, TooManyRequests
from contracts.rates import TokenBuckets
from hub_agent.calls.rate import DailyVolume
from hub_agent.chat.traces import trace_row, traces_of
from hub_agent.tables import ConversationRow, SummaryRow, TraceRow, TurnRow
from hub_registry.storage.store import Store
from hub_registry.storage.tables import Moment, now

_TOMBSTONE_AGE: Final = timedelta(days=1)
"""A late request is at most as late as the longest stream, 15 minutes, and clocks may be wrong."""

_CANCELS: Final = 60
"""Turns that never came which a device may cancel at once; six more a minute. Each is a write."""
_AT_ONCE: Final = 10
"""Turns of a push that are recorded in one transaction: what others record waits for it, some 10 ms."""
_OWN_CHARS: Final = 16
"""Of a device's key, in front of the names of its conversations."""
_NAME_CHARS: Final = 64 - _OWN_CHARS - 1
_UNGUESSABLE: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""UUIDs, as the command line, spokes and hubs make them."""

_RANK: Final = {None: 0, "offline": 1, "sentence": 2, "online": 2}
"""Of a turn that hub and device both answered, by mode: the higher one is recorded."""


class ConversationRecord:
    """The record as one hub process uses it; see `chat.turns.TurnStore`.

    Args:
        store: The hub's database.
        instance: Name of this hub process; running turns of another one are left alone.
        volume: What each device and program may have recorded.
    """

    def __init__(self, store: Store, *, instance: str, volume: DailyVolume | None = None) -> None:
        self._store = store
        self._instance = instance
        # Used in the thread of the store only.
        self._volume = volume or DailyVolume()
        self._cancels = TokenBuckets(burst=_CANCELS, per_second=0.1)

    async def clean_up(self) -> None:
        """Mark turns that an earlier process of this instance left running as cancelled."""

        def work(session: Session) -> None:
            session.exec(
                update(TurnRow)
                .where(col(TurnRow.instance) == self._instance, col(TurnRow.state) == "running")
                .values(state="cancelled", outcome="interrupted", ended_at=now())
            )

        await self._store.write(work)

    async def forget_tombstones(self) -> None:
        """Delete tombstones that no late request can meet any more.

        Raises:
            StorageError: If the database cannot be used.
        """
        old = delete(TurnRow).where(
            col(TurnRow.conversation).is_(None), col(TurnRow.at) < now() - _TOMBSTONE_AGE
        )
        await self._store.write(lambda session: session.exec(old))

    # Running turns

    async def begin(self, turn: Turn) -> None:
        """See `chat.turns.TurnStore`."""

        def work(session: Session) -> TurnRow | None:
            known = session.get(TurnRow, (turn.user, turn.id))
            if known is None:
                through, name = turn.through, turn.conversation
                if through is not None and not _may_join(session, turn.user, name, through):
                    raise _unknown(turn.conversation)
                self._volume.spend(_key(turn), rows=1, size=_size(turn.request.message))
                if turn.request.replaces is not None:
                    _replace(session, turn, turn.request.replaces)
                row = TurnRow(
                    user=turn.user,
                    turn=turn.id,
                    conversation=turn.conversation,
                    device=turn.device,
                    through=turn.through,
                    agent=turn.request.agent,
                    question=turn.request.message,
                    state="running",
                    instance=self._instance,
                    at=_next_moment(session, turn.user, turn.conversation),
                )
                session.add(row)
            return known

        known = await self._store.write(work)
        if known is not None:
            raise (cancelled_before if known.state == "not_started" else came_before)(turn.id)

    async def end(self, turn: Turn) -> None:
        """See `chat.turns.TurnStore`."""

        def work(session: Session) -> None:
            row = session.get(TurnRow, (turn.user, turn.id))
            if row is None:
                return  # its person was removed meanwhile
            row.state, row.ended_at = turn.state, now()
            row.outcome, row.problem, row.reason = turn.outcome, turn.problem, turn.reason
            # None where the conversation was deleted meanwhile.
            if row.conversation is not None:
                self._volume.charge(_key(turn), _size(turn.answer, *turn.did))
                _take_answer(row, turn, origin="person")
                session.merge(trace_row(turn, row.ended_at))

        await self._store.write(work)

    async def state(self, user: str, turn: str, *, through: str | None) -> TurnState:
        """See `chat.turns.TurnStore`."""

        def work(session: Session) -> TurnState:
            known = session.get(TurnRow, (user, turn))
            if known is None:
                if not self._cancels.take(through or user):
                    raise TooManyRequests(
                        "too many turns are cancelled that never came",
                        hint="Send the message first.",
                        retry_after_s=10,
                    )
                self._volume.spend(through or user, rows=1, size=0)
                tombstone = TurnRow(
                    user=user,
                    turn=turn,
                    through=through,
                    state="not_started",
                    instance=self._instance,
                    at=now(),
                )
                session.add(tombstone)
                return "not_started"
            if through is not None and known.through != through:
                raise NotFound(f"there is no turn {turn!r} of this device")
            return cast("TurnState", known.state)

        return await self._store.write(work)

    # Reading

    async def recorded_as(self, user: str, conversation: str, *, through: str) -> str:
        """Return the id under which a conversation that a device names is recorded.

        Under the name of a conversation that others began, it has one of its own.
        """
        return await self._store.read(lambda session: _recorded_as(session, user, conversation, through))

    async def turns(
        self,
        user: str,
        conversation: str,
        *,
        limit: int,
        before: str | None = None,
        through: str | None = None,
        ended: bool = False,
    ) -> list[TurnRecord]:
        """Return the last turns of a conversation, oldest first.

        Args:
            before: Id of a turn of it; only those before that one are returned.
            through: Key of the device that reads, where one does: what that device calls so. Under a name
                that a person may choose, too, it reads only what was said through it: it may have begun the
                conversation in order to hear what the person says there later.
            ended: Whether running turns are left out.
        """

        def work(session: Session) -> list[TurnRecord]:
            name = conversation if through is None else _recorded_as(session, user, conversation, through)
            query = select(TurnRow).where(*turns_of(user, name, view_of(name, through)))
            if ended:
                query = query.where(TurnRow.state != "running")
            if before is not None:
                next_ = session.get(TurnRow, (user, before))
                if next_ is None or next_.conversation != name:
                    raise NotFound(f"there is no turn {before!r} in this conversation")
                same = and_(col(TurnRow.at) == next_.at, col(TurnRow.turn) < before)
                query = query.where(or_(col(TurnRow.at) < next_.at, same))
            query = query.order_by(col(TurnRow.at).desc(), col(TurnRow.turn).desc()).limit(limit)
            return [record_of(row) for row in reversed(session.exec(query).all())]

        return await self._store.read(work)

    async def conversations(
        self, user: str, *, limit: int, through: str | None = None
    ) -> list[ConversationSummary]:
        """Return the conversations of a user, newest first.

        Args:
            through: Key of the device that reads, where one does: only those that it began.
        """
        said = func.max(func.coalesce(TurnRow.ended_at, TurnRow.at), type_=Moment)

        def work(session: Session) -> list[ConversationSummary]:
            query = (
                select(TurnRow.conversation, said)
                .where(TurnRow.user == user, col(TurnRow.conversation).is_not(None))
                .group_by(col(TurnRow.conversation))
                .order_by(said.desc(), col(TurnRow.conversation))
                .limit(limit)
            )
            if through is not None:
                parts = select(TurnRow.conversation).where(TurnRow.user == user, TurnRow.through == through)
                # Beside a minimum, SQLite gives the other columns of the very row that has it.
                firsts = (
                    select(TurnRow.conversation, TurnRow.through, func.min(TurnRow.at))
                    .where(TurnRow.user == user, col(TurnRow.conversation).in_(parts))
                    .group_by(col(TurnRow.conversation))
                    .subquery()
                )
                begun = select(firsts.c.conversation).where(firsts.c.through == through)
                query = query.where(col(TurnRow.conversation).in_(begun))
            return [
                ConversationSummary(
                    id=id_ if through is None else id_.removeprefix(_own(through)),
                    asked=_first_question(session, user, id_),
                    title=_title(session, user, id_),
                    at=at,
                )
                for id_, at in session.exec(query).all()
                if id_ is not None
            ]

        return await self._store.read(work)

    async def from_on(self, user: str, turn: str) -> list[TurnRecord]:
        """Return a turn and those after it in its conversation, without those that were replaced.

        Raises:
            NotFound: If the user has no such turn.
        """

        def work(session: Session) -> list[TurnRecord]:
            first = session.get(TurnRow, (user, turn))
            if first is None or first.conversation is None:
                raise NotFound(f"there is no turn {turn!r} here", hint="'strawberry turns' lists them.")
            after = (*turns_of(user, first.conversation), col(TurnRow.at) >= first.at)
            query = select(TurnRow).where(*after, col(TurnRow.replaced_by).is_(None))
            return [record_of(row) for row in session.exec(query.order_by(col(TurnRow.at))).all()]

        return await self._store.read(work)

    async def title(self, user: str, conversation: str) -> str | None:
        """Return the title that a person gave a conversation."""
        return await self._store.read(lambda session: _title(session, user, conversation))

    # Changes by people and devices

    async def rename(
        self, user: str, conversation: str, title: str | None, *, through: str | None = None
    ) -> None:
        """Give a conversation a title.

        Args:
            title: None for none.
            through: Key of the device that renames, where one does.

        Raises:
            NotFound: If the user has no such conversation, or the device did not begin it.
            Forbidden: If others than this device took part in it, too.
        """

        def work(session: Session) -> None:
            _require_own(session, user, conversation, through, what="renames")
            session.merge(ConversationRow(user=user, conversation=conversation, title=title))

        await self._store.write(work)

    async def delete(self, user: str, conversation: str, *, through: str | None = None) -> None:
        """Delete a conversation; its turn ids stay used for a day.

        Args:
            through: Key of the device that deletes, where one does.

        Raises:
            NotFound: If the user has no such conversation, or the device did not begin it.
            Forbidden: If others than this device took part in it, too.
        """

        def work(session: Session) -> None:
            _require_own(session, user, conversation, through, what="deletes")
            session.exec(delete(TraceRow).where(*traces_of(user, conversation)))
            # What is left of each turn is a tombstone: a repeated push must not bring it back.
            session.exec(
                update(TurnRow)
                .where(*turns_of(user, conversation))
                .values(
                    conversation=None, question="", answer=None, did=[], device=None, problem="", at=now()
                )
            )
            for kind in (ConversationRow, SummaryRow):
                session.exec(
                    delete(kind).where(col(kind.user) == user, col(kind.conversation) == conversation)
                )

        await self._store.write(work)

    async def forget_person(self, user: str) -> list[str]:
        """Delete all conversations of a person who was removed; return their ids."""

        def work(session: Session) -> list[str]:
            found = select(TurnRow.conversation).where(TurnRow.user == user).distinct()
            conversations = [name for name in session.exec(found) if name is not None]
            for kind in (TurnRow, TraceRow, ConversationRow, SummaryRow):
                session.exec(delete(kind).where(col(kind.user) == user))
            return conversations

        return await self._store.write(work)

    async def take(self, user: str, device: str, through: str, pushed: Iterable[TurnRecord]) -> list[str]:
        """Record turns that a device answered without the hub. Taking the same turns again has no effect.

        Args:
            user: The owner of the device.
            through: Thumbprint of its key.

        Returns:
            Ids of the turns that are recorded now; the others came from other clients.

        Raises:
            TooManyRequests: If the device hands in too much in a day; the first of the turns may be recorded.
        """
        turns, recorded = list(pushed), []

        def work(session: Session, some: Sequence[TurnRecord]) -> list[str]:
            new = [turn for turn in some if _adds(session.get(TurnRow, (user, turn.turn)), turn)]
            size = sum(_size(turn.question, turn.answer, *turn.did) for turn in new)
            self._volume.spend(through, rows=len(new), size=size)
            return [turn.turn for turn in some if _take(session, user, device, through, turn)]

        for start in range(0, len(turns), _AT_ONCE):
            some = turns[start : start + _AT_ONCE]
            recorded += await self._store.write(partial(work, some=some))
        return recorded


def _adds(row: TurnRow | None, turn: TurnRecord) -> bool:
    """Return whether a pushed turn has anything that is not recorded: not so where it is only sent again."""
    return row is None or row.conversation is None or row.answer != turn.answer


def _take(session: Session, user: str, device: str, through: str, turn: TurnRecord) -> bool:
    row = session.get(TurnRow, (user, turn.turn))
    if row is not None and row.through != through:
        return False
    if row is None or row.state == "not_started":
        present, conversation = now(), _recorded_as(session, user, turn.conversation, through)
        # A clock that is ahead must not put a turn after everything that is still to come.
        at = turn.at if turn.at <= present else _next_moment(session, user, conversation)
        values = {
            "conversation": conversation,
            "device": device,
            "origin": "device",
            "agent": turn.agent,
            "question": turn.question,
            "answer": turn.answer,
            "mode": turn.mode,
            "did": list(turn.did),
            "untrusted": turn.untrusted,
            "state": "finished" if turn.state == "finished" else "cancelled",
            "outcome": _outcome_of(turn),
            "problem": turn.problem,
            "reason": turn.reason,
            "at": at,
            "ended_at": max(at, min(turn.ended_at or at, present)),
        }
        if row is None:
            row = TurnRow(user=user, turn=turn.turn, through=through, instance="", state="", at=at)
        for name, value in values.items():
            setattr(row, name, value)
        session.add(row)
        # The next turn of the push may belong to the same conversation.
        session.flush()
    elif row.conversation is not None:
        _take_answer(row, turn, origin="device")
        session.add(row)
    return True


def _take_answer(row: TurnRow, turn: Turn | TurnRecord, *, origin: str) -> None:
    """Record an answer, unless a better one is there.

    The hub may have begun a turn that the device then answered itself. The hub's own complete answer is the
    best, since it may have acted; then that of the device; of two that broke off the longer one.
    """
    row.untrusted = row.untrusted or turn.untrusted
    row.did = row.did or list(turn.did)
    is_longer = turn.mode is None and row.mode is None and len(turn.answer or "") > len(row.answer or "")
    if is_longer or _RANK[turn.mode] > _RANK[row.mode]:
        row.answer, row.mode, row.origin = turn.answer, turn.mode, origin
        if turn.mode is not None:
            row.outcome, row.problem, row.reason = "answered", "", ""


def _outcome_of(turn: TurnRecord) -> TurnOutcome:
    """Return how a turn ended that a device hands in; older ones do not say it."""
    if turn.mode is not None:
        return "answered"
    return turn.outcome or ("failed" if turn.state == "finished" else "stopped")


def _next_moment(session: Session, user: str, conversation: str) -> datetime:
    latest = select(func.max(TurnRow.at, type_=Moment)).where(
        TurnRow.user == user, TurnRow.conversation == conversation
    )
    return moment_after(now(), session.exec(latest).one())


def _replace(session: Session, turn: Turn, replaced: str) -> None:
    """Put a turn in the place of another one of its conversation, and of all that came after that one."""
    if turn.through is not None:
        raise Forbidden("a device replaces nothing that was said", hint="Use your own token, at the hub.")
    first = session.get(TurnRow, (turn.user, replaced))
    if first is None or first.conversation != turn.conversation or first.replaced_by is not None:
        raise NotFound(f"there is no turn {replaced!r} in this conversation, or it was replaced before")
    after = (*turns_of(turn.user, turn.conversation), col(TurnRow.at) >= first.at)
    if session.exec(select(TurnRow.turn).where(*after, TurnRow.state == "running")).first() is not None:
        raise Conflict("an answer is on its way there", hint="Stop it first.")
    session.exec(
        update(TurnRow).where(*after, col(TurnRow.replaced_by).is_(None)).values(replaced_by=turn.id)
    )
    of_this = (col(SummaryRow.user) == turn.user, col(SummaryRow.conversation) == turn.conversation)
    session.exec(delete(SummaryRow).where(*of_this, col(SummaryRow.at) >= first.at))


def _key(turn: Turn) -> str:
    return turn.through or turn.holder


def _size(*texts: str | None) -> int:
    return sum(len(text.encode()) for text in texts if text)


def _own(through: str) -> str:
    return f"{through[:_OWN_CHARS]}."


def _recorded_as(session: Session, user: str, conversation: str, through: str) -> str:
    own = _own(through)
    if conversation.startswith(own) or _may_join(session, user, conversation, through):
        return conversation
    if len(conversation) > _NAME_CHARS:
        conversation = hashlib.sha256(conversation.encode()).hexdigest()[:_NAME_CHARS]
    return own + conversation


def _require_own(session: Session, user: str, conversation: str, through: str | None, *, what: str) -> None:
    """Check that a user may change a conversation, and through a device."""
    takers = set(session.exec(select(TurnRow.through).where(*turns_of(user, conversation))).all())
    if not takers or (through is not None and not _may_join(session, user, conversation, through)):
        raise _unknown(conversation)
    if through is not None and takers != {through}:
        raise Forbidden(
            f"a device {what} only conversations that were held through it alone",
            hint="Use your own token, at the hub.",
        )


def turns_of(user: str, conversation: str, view: str | None = None) -> tuple[ColumnElement[bool], ...]:
    """Return the condition for the turns of a conversation; see `view_of`."""
    all_ = (col(TurnRow.user) == user, col(TurnRow.conversation) == conversation)
    return all_ if view is None else (*all_, col(TurnRow.through) == view)


def view_of(conversation: str, through: str | None) -> str | None:
    """Return the key of the device whose own turns are all that is read of a conversation; None for all."""
    return through if through is not None and not _UNGUESSABLE.fullmatch(conversation) else None


def _may_join(session: Session, user: str, conversation: str, through: str) -> bool:
    """Return whether a conversation is new, or was begun through this device."""
    return _first_through(session, user, conversation) in ([], [through])


def _first_through(session: Session, user: str, conversation: str) -> list[str | None]:
    """Return the key of the device through which a conversation was begun; an empty list if it is new."""
    query = (
        select(TurnRow.through)
        .where(TurnRow.user == user, TurnRow.conversation == conversation)
        .order_by(col(TurnRow.at), col(TurnRow.turn))
    )
    return list(session.exec(query.limit(1)))


def _unknown(conversation: str) -> NotFound:
    return NotFound(
        f"there is no conversation {conversation!r} here", hint="'strawberry history' lists them."
    )


def _first_question(session: Session, user: str, conversation: str) -> str:
    query = (
        select(TurnRow.question)
        .where(TurnRow.user == user, TurnRow.conversation == conversation)
        .order_by(col(TurnRow.replaced_by).is_not(None), col(TurnRow.at), col(TurnRow.turn))
    )
    return session.exec(query.limit(1)).one()


def _title(session: Session, user: str, conversation: str) -> str | None:
    row = session.get(ConversationRow, (user, conversation))
    return row.title if row is not None else None


def record_of(row: TurnRow) -> TurnRecord:
    """Return a turn as it is read."""
    return TurnRecord.model_validate(cast("object", row), from_attributes=True)
