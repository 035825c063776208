"""The record of conversations: one table of turns in the hub's database.

A turn is recorded before its first chunk is sent. A turn that is cancelled before it arrives is recorded
under its id, so that a request that arrives late does not run. Both insert the same primary key in one
transaction: exactly one of them wins.

What a device hands in is recorded as its word, not as what a person asked here.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, NoReturn, cast
from weakref import WeakValueDictionary

from sqlalchemy import ColumnElement, and_, bindparam, func, or_, text
from sqlmodel import Session, col, delete, select, update

from chat.service import unknown_conversation
from chat.turns import Turn, Turns, came_before, cancelled_before
from contracts.chat.messages import ChatFile, ConversationSummary, TurnRecord, TurnState
from contracts.errors import Conflict, Forbidden, NotFound, StorageError, TooManyRequests
from contracts.rates import TokenBuckets
from hub_agent import limits
from hub_agent.calls.rate import DailyVolume
from hub_agent.chat.conversations import (
    first_questions,
    may_join,
    next_moment,
    own_prefix,
    recorded_as,
    require_own,
    title_of,
    titles,
    turns_of,
    view_of,
)
from hub_agent.chat.pushed import Push, take_answer
from hub_agent.chat.traces import trace_row, traces_of
from hub_agent.tables import ConversationRow, SummaryRow, TraceRow, TurnRow
from hub_registry.storage.store import Store
from hub_registry.storage.tables import Moment, now, readable
from hub_registry.storage.words import WordSearch, word_search

_TOMBSTONE_AGE: Final = timedelta(days=1)
"""A late request is at most as late as the longest stream, 15 minutes, and clocks may be wrong."""

_EMPTIED: Final[dict[str, Any]] = {
    **dict.fromkeys(("conversation", "answer", "device")),
    "question": "",
    "problem": "",
    "did": [],
    "files": [],
}
"""What a deleted turn is left with."""


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
        self._pushing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._cancels = TokenBuckets(burst=limits.CANCELS_AT_ONCE, per_second=0.1)

    async def clean_up(self, instance: str | None = None) -> None:
        """Mark turns that an earlier process of an instance left running as cancelled.

        Args:
            instance: By default this one; another one that is gone.
        """
        of = instance or self._instance

        def work(session: Session) -> None:
            session.exec(
                update(TurnRow)
                .where(col(TurnRow.instance) == of, col(TurnRow.state) == "running")
                .values(state="cancelled", outcome="interrupted", ended_at=now())
            )

        await self._store.write(work)

    async def forget_cancelled(self) -> None:
        """Delete marks of turns that no late request can name any more.

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
                if through is not None and not may_join(session, turn.user, name, through):
                    raise unknown_conversation(turn.conversation)
                if not turn.counted:
                    asked = _size(turn.request.message, files=turn.request.files)
                    self._volume.spend(_key(turn), rows=1, size=asked)
                    turn.counted = True
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
                    files=[each.model_dump() for each in turn.request.kept_files],
                    untrusted=turn.request.has_files,
                    state="running",
                    instance=self._instance,
                    at=next_moment(session, turn.user, turn.conversation),
                )
                session.add(row)
            return known

        known = await self._store.write(work, asker=_key(turn))
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
                take_answer(row, turn, origin="person")
                session.merge(trace_row(turn, row.ended_at))

        await self._store.write(work, asker=_key(turn))

    async def keep_answers(self, turns: Turns) -> NoReturn:
        """Record what running turns have answered so far, until cancelled: a kill loses a second of it."""
        recorded: dict[tuple[str, str], tuple[str, bool]] = {}
        while True:
            await asyncio.sleep(limits.ANSWERS_RECORDED_S)
            said = {
                (each.user, each.id): (text, each.untrusted) for each in turns.all() if (text := each.answer)
            }
            changed = {key: said[key] for key in said if said[key] != recorded.get(key)}
            recorded = said
            if changed:
                # What is not stored now is stored with the end.
                with suppress(StorageError):
                    await self._store.write(partial(_keep, answers=changed))

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
                cancelled = TurnRow(
                    user=user,
                    turn=turn,
                    through=through,
                    state="not_started",
                    instance=self._instance,
                    at=now(),
                )
                session.add(cancelled)
                return "not_started"
            if through is not None and known.through != through:
                raise NotFound("there is no turn {turn!r} of this device", turn=turn)
            return cast("TurnState", known.state)

        return await self._store.write(work, asker=through or user)

    # Reading

    async def recorded_as(self, user: str, conversation: str, *, through: str) -> str:
        """Return the id under which a conversation that a device names is recorded.

        Under the name of a conversation that others began, it has one of its own.
        """
        named = partial(recorded_as, user=user, conversation=conversation, through=through)
        return await self._store.read(named, asker=through)

    async def turns(
        self,
        user: str,
        conversation: str,
        *,
        limit: int,
        before: str | None = None,
        through: str | None = None,
    ) -> list[TurnRecord]:
        """Return the last turns of a conversation, oldest first.

        Args:
            before: Id of a turn of it; only those before that one are returned.
            through: Key of the device that reads, where one does: what that device calls so. Under a name
                that a person may choose, too, it reads only what was said through it: it may have begun the
                conversation in order to hear what the person says there later.
        """

        def work(session: Session) -> list[TurnRecord]:
            name = conversation if through is None else recorded_as(session, user, conversation, through)
            query = select(TurnRow).where(*turns_of(user, name, view_of(name, through)))
            if before is not None:
                next_ = session.get(TurnRow, (user, before))
                if next_ is None or next_.conversation != name:
                    raise NotFound("there is no turn {before!r} in this conversation", before=before)
                same = and_(col(TurnRow.at) == next_.at, col(TurnRow.turn) < before)
                query = query.where(or_(col(TurnRow.at) < next_.at, same))
            query = query.order_by(col(TurnRow.at).desc(), col(TurnRow.turn).desc())
            # A page that is short is the last one, so another row takes the place of one that is left out.
            with closing(session.exec(query.execution_options(yield_per=limit))) as rows:
                return readable(rows, record_of, most=limit)[::-1]

        return await self._store.read(work, asker=through or user)

    async def conversations(
        self,
        user: str,
        *,
        limit: int,
        through: str | None = None,
        words: str = "",
        near: Sequence[int] = (),
    ) -> list[ConversationSummary]:
        """Return the conversations of a user, newest first.

        Args:
            through: Key of the device that reads, where one does: only those that it began.
            words: See `chat.service.ChatService.conversations`; the beginning of a word is enough.
            near: Rows of turns whose conversations are returned beside those with the words.
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
                place = func.row_number().over(
                    partition_by=col(TurnRow.conversation), order_by=(col(TurnRow.at), col(TurnRow.turn))
                )
                firsts = (
                    select(TurnRow.conversation, TurnRow.through, place.label("place"))
                    .where(TurnRow.user == user, col(TurnRow.conversation).in_(parts))
                    .subquery()
                )
                begun = select(firsts.c.conversation).where(firsts.c.through == through, firsts.c.place == 1)
                query = query.where(col(TurnRow.conversation).in_(begun))
            if words:
                query = query.where(_having(word_search(session), words, user, near))

            rows = session.exec(query).all()
            ids = [id_ for id_, _ in rows if id_ is not None]
            asked, given = first_questions(session, user, ids), titles(session, user, ids)

            def summary(found: Any) -> ConversationSummary:
                id_, at = found
                return ConversationSummary(
                    id=id_ if through is None else id_.removeprefix(own_prefix(through)),
                    asked=asked[id_],
                    title=given.get(id_),
                    at=at,
                )

            return readable(rows, summary)

        return await self._store.read(work, asker=through or user)

    async def from_on(self, user: str, turn: str) -> list[TurnRecord]:
        """Return a turn and those after it in its conversation, without those that were replaced.

        Raises:
            NotFound: If the user has no such turn.
        """

        def work(session: Session) -> list[TurnRecord]:
            first = session.get(TurnRow, (user, turn))
            if first is None or first.conversation is None:
                raise NotFound(
                    "there is no turn {turn!r} here", turn=turn, hint="'strawberry turns' lists them."
                )
            after = (*turns_of(user, first.conversation), col(TurnRow.at) >= first.at)
            query = select(TurnRow).where(*after, col(TurnRow.replaced_by).is_(None))
            return readable(session.exec(query.order_by(col(TurnRow.at))), record_of)

        return await self._store.read(work)

    async def title(self, user: str, conversation: str) -> str | None:
        return await self._store.read(lambda session: title_of(session, user, conversation))

    # Changes by people and devices

    async def rename(
        self, user: str, conversation: str, title: str | None, *, through: str | None = None
    ) -> None:
        """Set the title of a conversation.

        Args:
            title: None for none.
            through: Key of the device that renames, where one does.

        Raises:
            NotFound: If the user has no such conversation, or the device did not begin it.
            Forbidden: If others than this device took part in it, too.
        """

        def work(session: Session) -> None:
            require_own(session, user, conversation, through, what="renames")
            session.merge(ConversationRow(user=user, conversation=conversation, title=title))

        await self._store.write(work, asker=through or user)

    async def delete(self, user: str, conversation: str, *, through: str | None = None) -> None:
        """Delete a conversation; its turn ids stay used for a day.

        Args:
            through: Key of the device that deletes, where one does.

        Raises:
            NotFound: If the user has no such conversation, or the device did not begin it.
            Forbidden: If others than this device took part in it, too.
        """

        def work(session: Session) -> None:
            require_own(session, user, conversation, through, what="deletes")
            session.exec(delete(TraceRow).where(*traces_of(user, conversation)))
            # The id of each turn stays, marked as deleted: a repeated push must not bring it back.
            session.exec(update(TurnRow).where(*turns_of(user, conversation)).values(**_EMPTIED, at=now()))
            for kind in (ConversationRow, SummaryRow):
                session.exec(
                    delete(kind).where(col(kind.user) == user, col(kind.conversation) == conversation)
                )

        await self._store.write(work, asker=through or user)

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
            push = Push(session, user, device, through, some)
            new = [turn for turn in some if push.adds(turn)]
            size = sum(_size(turn.question, turn.answer, *turn.did, files=turn.files) for turn in new)
            self._volume.spend(through, rows=len(new), size=size)
            return [turn.turn for turn in some if push.take(turn)]

        async with self._pushing.setdefault(through, asyncio.Lock()):
            for start in range(0, len(turns), limits.PUSHED_AT_ONCE):
                some, begun = turns[start : start + limits.PUSHED_AT_ONCE], time.perf_counter()
                recorded += await self._store.write(partial(work, some=some), asker=through)
                await asyncio.sleep(limits.PUSH_REST * (time.perf_counter() - begun))
        return recorded


def _replace(session: Session, turn: Turn, replaced: str) -> None:
    """Put a turn in the place of another one of its conversation, and of all that came after that one."""
    if turn.through is not None:
        raise Forbidden("a device replaces nothing that was said", hint="Use your own token, at the hub.")
    first = session.get(TurnRow, (turn.user, replaced))
    if first is None or first.conversation != turn.conversation or first.replaced_by is not None:
        raise NotFound(
            "there is no turn {turn!r} in this conversation, or it was replaced before", turn=replaced
        )
    after = (*turns_of(turn.user, turn.conversation), col(TurnRow.at) >= first.at)
    if session.exec(select(TurnRow.turn).where(*after, TurnRow.state == "running")).first() is not None:
        raise Conflict("an answer is on its way there", hint="Stop it first.")
    session.exec(
        update(TurnRow).where(*after, col(TurnRow.replaced_by).is_(None)).values(replaced_by=turn.id)
    )
    of_this = (col(SummaryRow.user) == turn.user, col(SummaryRow.conversation) == turn.conversation)
    session.exec(delete(SummaryRow).where(*of_this, col(SummaryRow.at) >= first.at))


def _keep(session: Session, answers: Mapping[tuple[str, str], tuple[str, bool]]) -> None:
    for (user, turn), (answer, is_untrusted) in answers.items():
        row = session.get(TurnRow, (user, turn))
        # Neither one that has ended, was deleted, or was answered by its device meanwhile.
        if row is not None and row.state == "running" and row.conversation and row.mode is None:
            row.answer, row.untrusted = answer, row.untrusted or is_untrusted


def _key(turn: Turn) -> str:
    return turn.through or turn.holder


def _size(*texts: str | None, files: Iterable[ChatFile] = ()) -> int:
    return sum(len(text.encode()) for text in (*texts, *(each.text for each in files)) if text)


def record_of(row: TurnRow) -> TurnRecord:
    return TurnRecord.model_validate(cast("object", row), from_attributes=True)


def _having(by: WordSearch, words: str, user: str, near: Sequence[int]) -> ColumnElement[bool]:
    """Return the condition that all words were said in one turn, or its title has them, or a turn is near."""
    of = col(TurnRow.conversation)
    titled = select(ConversationRow.conversation).where(
        ConversationRow.user == user, col(ConversationRow.title).icontains(words, autoescape=True)
    )
    if not (begun := re.findall(r"\w+", words)):
        return of.in_(titled)
    rows = text(
        f"(turn.rowid IN (SELECT turn.rowid FROM {by.source} WHERE {by.matches}) OR turn.rowid IN :near)"  # noqa: S608
    )
    said = select(TurnRow.conversation).where(
        TurnRow.user == user,
        col(TurnRow.replaced_by).is_(None),
        rows.bindparams(
            bindparam("near", list(near), expanding=True), bindparam("words", by.all_begun(begun))
        ),
    )
    return or_(of.in_(said), of.in_(titled))
