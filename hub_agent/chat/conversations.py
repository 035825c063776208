"""Turns, stored: which turn may run, and what was said in it, written down with it.

A turn is written before its first chunk goes out. Whoever cancels a turn that has not come yet
writes a tombstone in its place, so that a request that arrives late finds its id taken and does
not run. Both are one transaction on one primary key: exactly one of them wins.
"""

from datetime import timedelta
from typing import Final, cast

from sqlmodel import Session, col, delete, select

from agent_core.conversation import ConversationSummary, Exchange, Words
from chat.turns import Ending, TurnKey, TurnState
from contracts.errors import Conflict
from hub_agent.chat.history import HubPen, has_part, recent, summaries
from hub_agent.tables import TurnRow
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now

_TOMBSTONE_AGE: Final = timedelta(days=1)
"""A late request is at most as late as the longest stream, 15 minutes, and clocks may be wrong."""


class Conversations:
    """The stored turns of one hub process.

    Args:
        store: The hub's database.
        instance: Name of this hub process; turns of another one are left alone.
    """

    def __init__(self, store: Store, *, instance: str) -> None:
        self._store = store
        self._instance = instance
        self._pen = HubPen.of(instance)

    async def clean_up(self) -> None:
        """Mark turns that an earlier process of this instance left running as cancelled.

        Tombstones of requests that will not come any more are removed.
        """

        def work(session: Session) -> None:
            left = select(TurnRow).where(TurnRow.instance == self._instance, TurnRow.state == "running")
            for row in session.exec(left):
                row.state, row.ended_at = "cancelled", now()
            session.exec(
                delete(TurnRow).where(
                    col(TurnRow.state) == "not_started", col(TurnRow.started_at) < now() - _TOMBSTONE_AGE
                )
            )

        await self._store.write(work)

    async def begin(
        self,
        key: TurnKey,
        *,
        conversation: str,
        question: str,
        device: str | None,
        agent: str = "",
        through: str | None = None,
    ) -> None:
        """Write down that a turn runs and what was asked, before anything of it happens.

        Args:
            device: Id of the current device, where there is one.
            agent: Who is asked.
            through: Id of the device that asks, where one does: it takes part in the conversation.

        Raises:
            Conflict: If this id was used before, or cancelled before it came: it must not run.
        """
        words = Words(conversation, key.turn, "question", question, agent=agent, device=device)

        def work(session: Session) -> TurnRow | None:
            known = session.get(TurnRow, (key.user, key.turn))
            if known is None:
                session.add(self._row(key, "running", conversation=conversation, device=device))
                self._pen.write(session, key.user, words, through=through)
            return known

        known = await self._store.write(work)
        if known is not None and known.state == "not_started":
            raise Conflict(
                f"turn {key.turn} was cancelled before it arrived", hint="Use a new turn id to ask again."
            )
        if known is not None:
            raise Conflict(
                f"turn id {key.turn} was used before", hint="Nothing was run again; use a new turn id."
            )

    async def end(self, key: TurnKey, ending: Ending) -> None:
        """Write down how a running turn ended, and what was answered."""

        def work(session: Session) -> None:
            row = session.get(TurnRow, (key.user, key.turn))
            assert row is not None, "a turn is written down when it begins"
            assert row.conversation is not None, "only a tombstone has none"
            row.state, row.ended_at = ending.state, now()
            words = Words(
                row.conversation,
                key.turn,
                "answer",
                ending.answer,
                device=row.device,
                mode=ending.mode,
                did=ending.did,
                untrusted=ending.untrusted,
                # Only a final event tells who answered; what ended with an error was broken off.
                complete=ending.mode is not None,
            )
            self._pen.write(session, key.user, words)

        await self._store.write(work)

    async def bury(self, key: TurnKey) -> TurnState:
        """Give the state of a turn; one that has not come gets a tombstone and never runs."""

        def work(session: Session) -> TurnState:
            known = session.get(TurnRow, (key.user, key.turn))
            if known is None:
                session.add(self._row(key, "not_started"))
                return "not_started"
            return cast("TurnState", known.state)

        return await self._store.write(work)

    async def history(self, user: str, conversation: str, *, limit: int) -> list[Exchange]:
        """Give the last answered turns of a conversation, wherever they ran, oldest first."""
        return await self._store.read(
            lambda session: recent(session, user, conversation, limit=limit, answered=True)
        )

    async def said(
        self, user: str, conversation: str, *, limit: int, device: str | None = None
    ) -> list[Exchange]:
        """Give the last turns of a conversation, wherever they ran, oldest first.

        Args:
            device: Who reads, where it is a device: nothing of what it has taken no part in.
        """

        def work(session: Session) -> list[Exchange]:
            if device is not None and not has_part(session, user, conversation, device):
                return []
            return recent(session, user, conversation, limit=limit)

        return await self._store.read(work)

    async def known(self, user: str, *, limit: int, device: str | None = None) -> list[ConversationSummary]:
        """Give the conversations of a user, the latest first.

        Args:
            device: Who reads, where it is a device: only those in which it has taken part.
        """
        return await self._store.read(lambda session: summaries(session, user, limit=limit, device=device))

    def _row(
        self, key: TurnKey, state: TurnState, *, conversation: str | None = None, device: str | None = None
    ) -> TurnRow:
        return TurnRow(
            user=key.user,
            id=key.turn,
            conversation=conversation,
            instance=self._instance,
            device=device,
            state=state,
            started_at=now(),
        )
