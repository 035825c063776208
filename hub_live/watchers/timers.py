"""Timers and reminders: they end once, or come again by a schedule, and survive restarts."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import ConfigDict
from sqlalchemy import Delete, Update
from sqlmodel import col, delete, select, update

from agent_core.prompt import Household
from chat.tasks import happens, open_tasks, supervise
from contracts.errors import Conflict, InvalidMessage, NotFound, StorageError
from contracts.phrases import Phrase
from contracts.wire import Part, Timestamp, rfc3339
from hub_live import limits
from hub_live.events import EventData, Events, NotificationData
from hub_live.events.kinds import TimerData
from hub_live.watchers.definition import Missed
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.tables import TimerRow
from hub_registry.access.accounts import User
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now, readable
from identity.ids import uuid7

_log = logging.getLogger(__name__)

UNNAMED: Final = "Timer"
"""The text of a timer that nobody named."""
_WITHOUT_SUN: Final = timedelta(days=1)
"""Until a timer by the sun whose time cannot be computed is tried again."""


class TimerSummary(Part):
    """A timer as people and programs read it."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    text: str
    due: Timestamp
    schedule: str | None
    missed: str


@dataclass(eq=False)
class Timers:
    """Keeps the timers of all people.

    That one ended is stored in one transaction with its end, so that it is reported once.
    """

    store: Store
    events: Events
    instance: str
    household: Household
    _rows: dict[str, TimerRow] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def add(
        self, user: User, text: str, *, due: datetime | None, schedule: str | None, missed: Missed
    ) -> TimerSummary:
        """Set a timer that ends once, or comes again.

        Raises:
            InvalidMessage: If the schedule is none, or the moment has passed.
            Conflict: If the person has too many.
        """
        if sum(row.owner == user.id for row in self._rows.values()) >= limits.MOST_TIMERS:
            raise Conflict("there are too many timers", hint="Remove one.")
        if due is None:
            due = Schedule.parse(schedule or "").next(now(), self.household)
        elif due <= now():
            raise InvalidMessage("{timer} has passed", timer=rfc3339(due))
        row = TimerRow(
            id=uuid7(),
            instance=self.instance,
            owner=user.id,
            text=text[:200],
            due=due,
            schedule=schedule,
            missed=missed,
        )
        values = row.model_dump()
        await self.store.write(lambda session: session.add(TimerRow(**values)))
        self._rows[row.id] = row
        self._changed.set()
        await self.events.publish(user.id, _happened(row, "set"))
        return TimerSummary.model_validate(row)

    def of(self, user: User) -> list[TimerSummary]:
        """Return the timers of a person, the next one first."""
        own = [row for row in self._rows.values() if row.owner == user.id]
        return [TimerSummary.model_validate(row) for row in sorted(own, key=lambda row: row.due)]

    async def remove(self, user: User, which: str) -> TimerSummary:
        """Remove a timer, by its id or its text.

        Raises:
            NotFound: If there is none, or more than one of this text.
        """
        row = self._named(user, which)
        await self._drop(row)
        await self.events.publish(user.id, _happened(row, "removed"))
        return TimerSummary.model_validate(row)

    async def remove_all(self, user: User) -> list[TimerSummary]:
        """Remove the timers of a person that end once; reminders by a schedule stay."""
        own = self.running(user)
        for each in own:
            with suppress(NotFound):  # it has ended meanwhile
                await self.remove(user, each.id)
        return own

    def running(self, user: User) -> list[TimerSummary]:
        """Return the timers of a person without reminders, which come by a schedule or are told as missed."""
        return [each for each in self.of(user) if _is_timer(each)]

    async def move(self, user: User, which: str, by: timedelta) -> TimerSummary:
        """Let a timer end later, or earlier where it is negative.

        Raises:
            NotFound: As of `remove`.
            InvalidMessage: If that moment has passed, or the timer comes by a schedule.
        """
        row = self._named(user, which)
        if row.schedule is not None:
            raise InvalidMessage(
                "{text!r} comes by a schedule", text=row.text, hint="Cancel it and make another one."
            )
        due = row.due + by
        if due <= now():
            raise InvalidMessage("the timer {text!r} has less time left than that", text=row.text)
        await self.store.write(lambda session: session.exec(_change(row.id, due=due)))
        row.due = due
        self._changed.set()
        await self.events.publish(user.id, _happened(row, "set"))
        return TimerSummary.model_validate(row)

    def _named(self, user: User, which: str) -> TimerRow:
        own = [row for row in self._rows.values() if row.owner == user.id]
        found = [row for row in own if row.id == which] or [
            row for row in own if row.text.casefold() == which.casefold()
        ]
        if not found and which == UNNAMED:
            # "The timer" is the only one that runs, whatever it is called.
            found = [row for row in own if _is_timer(row)]
        if len(found) != 1:
            there = ", ".join(f"{row.text!r} ({row.id})" for row in own) or "none"
            raise NotFound(
                "{timers} timers are called {which!r}",
                timers=len(found),
                which=which,
                known=there,
                hint="There are: {known}.",
            )
        return found[0]

    async def forget_person(self, user: str) -> None:
        for row in [row for row in self._rows.values() if row.owner == user]:
            await self._drop(row)

    async def run(self) -> None:
        """Report timers as they end, until cancelled."""
        own = select(TimerRow).where(TimerRow.instance == self.instance)
        stored = await self.store.read(lambda session: list(session.exec(own)))
        for row in readable(stored, self._checked):
            self._rows[row.id] = row
        while True:
            self._changed.clear()
            present = time.time()
            for row in [row for row in self._rows.values() if row.due.timestamp() <= present]:
                if row.id not in self._rows:
                    continue  # It was removed while another one ended.
                try:
                    await self._end(row, late=present - row.due.timestamp() > limits.LATE_S)
                except StorageError as error:
                    _log.error("the timer %s: %s", row.id, error)
                    await asyncio.sleep(limits.STORE_AGAIN_S)
            first = min((row.due.timestamp() for row in self._rows.values()), default=math.inf)
            wait_s = min(max(0.05, first - time.time()), limits.LONGEST_SLEEP_S)
            await happens(self._changed, within_s=wait_s)

    @staticmethod
    def _checked(row: TimerRow) -> TimerRow:
        """Return a row that can be shown, and whose schedule, if it has one, can be read."""
        TimerSummary.model_validate(row)
        if row.schedule is not None:
            Schedule.parse(row.schedule)
        return row

    async def _end(self, row: TimerRow, *, late: bool) -> None:
        missed = late and row.missed == "tell"
        message = Phrase("Missed while the hub was stopped: {text}", text=row.text) if missed else row.text
        before, following = row.due, None
        # First, so that a client that reads the timers at the event does not find it as it was.
        if row.schedule is None:
            del self._rows[row.id]
        else:
            try:
                following = Schedule.parse(row.schedule).next(now(), self.household)
            except InvalidMessage as error:
                # The household has no coordinates any more: its owner can remove the timer, or give it some.
                following, message = now() + _WITHOUT_SUN, f"{row.text}: {error.message}"
            row.due = following
        ended = TimerData(subject=row.text, event="ended", timer=row.id, due=before, missed=late)
        note = NotificationData(
            subject=row.text, event="ended", timer=row.id, due=before, text=message, sender="timer"
        )
        events: list[tuple[str, EventData]] = [(row.owner, ended), (row.owner, note)]
        try:
            await self.events.publish_all(events, also=_change(row.id, due=following))
        except StorageError:
            # It ends again; one that was removed meanwhile does not come back.
            row.due = before
            if row.schedule is None:
                self._rows[row.id] = row
            raise

    async def _drop(self, row: TimerRow) -> None:
        await self.store.write(lambda session: session.exec(_change(row.id, due=None)))
        self._rows.pop(row.id, None)


def _is_timer(each: TimerRow | TimerSummary) -> bool:
    return each.schedule is None and each.missed == "run"


def _happened(row: TimerRow, event: Literal["set", "removed"]) -> TimerData:
    return TimerData(subject=row.text, event=event, timer=row.id, due=row.due)


def _change(timer: str, *, due: datetime | None) -> Update | Delete:
    """Return the statement that moves a timer, if it is there still; without `due`, deletes it."""
    if due is None:
        return delete(TimerRow).where(col(TimerRow.id) == timer)
    return update(TimerRow).where(col(TimerRow.id) == timer).values(due=due)


@asynccontextmanager
async def open_timers(
    store: Store, events: Events, *, instance: str, household: Household
) -> AsyncIterator[Timers]:
    """Keep timers for as long as the context is open."""
    timers = Timers(store, events, instance=instance, household=household)
    async with open_tasks(contained=True) as tasks:
        supervise(tasks, timers.run, name="timers")
        yield timers
