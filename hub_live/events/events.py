"""The events of each person: stored, a bounded number of each kind, and published on the bus."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Delete, Update
from sqlmodel import Session, col, delete, func, select

from bus.link import Link
from chat.tasks import happens
from contracts import topics
from contracts.answers.live import EventKind
from contracts.devices.presence import UserEvent
from contracts.errors import Disconnected, InvalidTopic, StorageError, Superseded
from contracts.listeners import Listeners
from contracts.wire import Json
from hub_agent.tables import EventRow
from hub_live import limits
from hub_live.events.kinds import KINDS, EventData
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now

_log = logging.getLogger(__name__)


class Events:
    """Stores events, and lets streams follow them.

    Args:
        link: Of the bus, where each event is published, too.
    """

    def __init__(self, store: Store, link: Link) -> None:
        self._store = store
        self._link = link
        self._news = asyncio.Event()
        # With each event.
        self.on_published: Listeners[Callable[[EventRow], None]] = Listeners()
        self._is_closed = False
        # With the ids after the newest that is stored; stored with the next events.
        self._held: list[EventRow] = []

    async def publish(self, user: str, data: EventData) -> None:
        await self.publish_all([(user, data)])

    async def publish_all(
        self, happened: Sequence[tuple[str, EventData]], *, also: Update | Delete | None = None
    ) -> None:
        """Publish several events, stored in one transaction.

        Args:
            also: Another change of this transaction.

        Raises:
            StorageError: If there is another change and nothing could be stored; else the events are
                published and listed, and stored later: a full disk must not silence an alarm.
        """
        at = now()
        rows = [
            EventRow(user=user, kind=data.KIND, subject=data.subject[:200], data=_bounded(data), at=at)
            for user, data in happened
        ]

        held = tuple(self._held)

        def work(session: Session) -> None:
            for each in held:
                # Another process of the hub may have taken the id.
                id_ = each.id if session.get(EventRow, each.id) is None else None
                session.add(EventRow(**{**each.model_dump(), "id": id_}))
            session.flush()
            session.add_all(rows)
            session.flush()
            if also is not None:
                session.exec(also)
            for user, kind in {(row.user, row.kind) for row in (*held, *rows)}:
                _trim(session, user, kind)

        try:
            # A write that has begun is finished in the store's thread, also when the hub stops.
            await asyncio.shield(self._store.write(work))
        except StorageError as error:
            if also is not None or isinstance(error, Superseded):
                raise
            _log.error("%d events are stored later: %s", len(rows), error)
            with suppress(StorageError):
                newest = await self.before_last(0, user=None)
                for id_, row in enumerate(rows, start=newest + 1):
                    row.id = id_
                self._held = [*self._held, *rows][-limits.EVENTS_HELD :]
        else:
            self._held = [each for each in self._held if each not in held]
        self._wake()
        for event in rows:
            for listener in self.on_published:
                listener(event)
            message = UserEvent(at=event.at, subject=event.subject, data=event.data)
            # What is stored is in the stream; the row that it is about may name nobody.
            with suppress(Disconnected, InvalidTopic):
                topic = topics.USER_EVENT.build(user=event.user, kind=event.kind)
                await self._link.publish(topic, message.model_dump_json().encode(), qos=topics.USER_EVENT.qos)

    async def forget_person(self, user: str) -> None:
        """Delete the events of a person who was removed."""
        self._held = [each for each in self._held if each.user != user]
        await self._store.write(
            lambda session: session.exec(delete(EventRow).where(col(EventRow.user) == user))
        )

    async def after(
        self,
        id_: int,
        *,
        user: str | None,
        kinds: Collection[EventKind] = KINDS,
        limit: int = limits.EVENTS_PAGE,
    ) -> list[EventRow]:
        """List the events after one, oldest first.

        Args:
            user: Of this person; None for all people.
        """

        def work(session: Session) -> list[EventRow]:
            chosen = select(EventRow).where(col(EventRow.id) > id_, col(EventRow.kind).in_(kinds))
            chosen = chosen if user is None else chosen.where(EventRow.user == user)
            return list(session.exec(chosen.order_by(col(EventRow.id)).limit(limit)))

        stored = await self._store.read(work)
        held = (each for each in self._held if each.kind in kinds and user in (None, each.user))
        newest = max((id_, *(each.id or 0 for each in stored)))
        return [*stored, *(each for each in held if (each.id or 0) > newest)][:limit]

    async def before_last(self, count: int, *, user: str | None, kinds: Collection[EventKind] = KINDS) -> int:
        """Return the id after which the last so many events come; with 0, that of the newest one."""

        def work(session: Session) -> int:
            stored = session.exec(select(func.max(EventRow.id))).one() or 0
            if count == 0:
                return max((stored, *(each.id or 0 for each in self._held)))
            chosen = select(EventRow.id).where(col(EventRow.kind).in_(kinds))
            chosen = chosen if user is None else chosen.where(EventRow.user == user)
            last = session.exec(chosen.order_by(col(EventRow.id).desc()).limit(count)).all()
            return (last[-1] or 0) - 1 if last else stored

        return await self._store.read(work)

    async def latest(self, kind: EventKind) -> dict[str, Mapping[str, Json]]:
        """Return the data of the newest event of a kind for each ``device`` in it."""

        def work(session: Session) -> dict[str, Mapping[str, Json]]:
            chosen = select(EventRow).where(EventRow.kind == kind).order_by(col(EventRow.id))
            return {str(row.data.get("device")): row.data for row in session.exec(chosen)}

        return await self._store.read(work)

    async def follow(
        self, id_: int, *, user: str | None, kinds: Collection[EventKind] = KINDS, idle_s: float
    ) -> AsyncGenerator[Sequence[EventRow], None]:
        """Yield the events after one as they come; nothing, where none came for a while.

        What another process of the hub stored comes with the next one of this process, or after ``idle_s``.
        """
        while not self._is_closed:
            news = self._news
            page = await self.after(id_, user=user, kinds=kinds)
            if page:
                id_ = page[-1].id or id_
                yield page
                continue
            if not await happens(news, within_s=idle_s):
                yield ()

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _trim(session: Session, user: str, kind: str) -> None:
    own = (col(EventRow.user) == user, col(EventRow.kind) == kind)
    newest = select(EventRow.id).where(*own).order_by(col(EventRow.id).desc())
    oldest_kept = session.exec(newest.offset(limits.EVENTS_KEPT).limit(1)).first()
    if oldest_kept is not None:
        session.exec(delete(EventRow).where(*own, col(EventRow.id) <= oldest_kept))


def _bounded(event: EventData) -> dict[str, Any]:
    data = event.model_dump(mode="json", by_alias=True)
    if len(json.dumps(data)) <= limits.EVENT_BYTES:
        return data
    # What is too long to keep is in the service that the event is about.
    return {
        key: value for key, value in data.items() if len(json.dumps(value)) <= limits.EVENT_BYTES // len(data)
    }
