"""Timers and reminders: they end once, or come again by a schedule, and survive restarts."""

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal, TypeVar

from pydantic import ConfigDict, field_validator
from sqlalchemy import Delete, Update
from sqlmodel import col, delete, select, update

from agent_core.prompt import Household
from chat.tasks import happens, open_tasks, supervise
from contracts.answers.watchers import Allowed
from contracts.devices.rpc import Actor
from contracts.errors import Conflict, InvalidMessage, NotFound, StorageError, StrawberryError
from contracts.phrases import Phrase
from contracts.text import escaped, shortened
from contracts.wire import Json, Part, Timestamp, rfc3339
from hub_agent.calls.audit import Origin
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.calls.own_skills import Asking
from hub_agent.parts import HubParts
from hub_live import limits
from hub_live.events import EventData, Events, NotificationData
from hub_live.events.kinds import TimerData
from hub_live.watchers.decisions.approved import ApprovedCall, approve
from hub_live.watchers.definition import Missed
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.tables import TimerRow
from hub_registry.access.accounts import User
from hub_registry.registry import Registry
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now, readable
from identity.ids import uuid7

_log = logging.getLogger(__name__)

_Timer = TypeVar("_Timer", TimerRow, "TimerSummary")

UNNAMED: Final = "Timer"
"""The text of a timer without a name."""
_WITHOUT_SUN: Final = timedelta(days=1)
"""Until a timer by the sun whose time cannot be computed is tried again."""
_RIGHTS: Final = {"confirmed", "untrusted", "has_read", "by_sentence"}
"""With which a call was asked for; as `Asking`, `LaterCall` and `SkillCall` name them."""


class TimerSummary(Part):
    """A timer as people and programs read it.

    Attributes:
        left_s: Seconds left of one that is paused, whose `due` does not count; None while it runs.
    """

    model_config = ConfigDict(from_attributes=True)

    id: str
    text: str
    due: Timestamp
    schedule: str | None
    missed: str
    call: str | None = None
    left_s: float | None = None

    @property
    def is_timer(self) -> bool:
        """Return whether it is a timer: a reminder has a schedule, or is reported as missed."""
        return _is_timer(self)

    @field_validator("call", mode="before")
    @classmethod
    def _path(cls, call: object) -> object:
        return call["path"] if isinstance(call, Mapping) else call


class LaterCall(ApprovedCall):
    """A call that is made when a timer ends, with the rights with which it was asked for.

    Attributes:
        confirmed: Whether a person confirmed it; likewise the next three, see `SkillCall`.
        token: ``jti`` of the token with which it was asked for.
        through: Id of the device that this token was of.
        begun: Whether it was made: at most once, so that it is not made again after a crash.
    """

    confirmed: bool
    untrusted: bool
    has_read: bool
    by_sentence: bool
    token: str
    through: str | None
    begun: bool = False

    async def make(self, timer: TimerRow, *, manager: DeviceManager, registry: Registry) -> None:
        """Make the call of a timer.

        Raises:
            CallError: If there is no result; likewise NotFound.
        """
        user = await registry.accounts.get(timer.owner)
        through = None if self.through is None else registry.directory.get(self.through)
        if self.through is not None and (through is None or through.revoked):
            raise NotFound("the device {device} with which it was asked for is gone", device=self.through)
        # Who logs out ends a session, and means no timer.
        if registry.authority.is_revoked(self.token) and not registry.authority.is_session(self.token):
            raise NotFound("the program with which it was asked for was revoked")
        found = self.found(self.arguments, registry.directory.seen_by(user.id))
        found = replace(found, **self.model_dump(include=_RIGHTS))
        actor = Actor(user=user.id, device=self.through, timer=escaped(timer.text), read_only=user.read_only)
        confirmed_by = self.token if self.confirmed else None
        await manager.when_back(user.id, found.target)
        await manager.call(actor, found, origin=Origin(self.token, self.through, confirmed_by))


@dataclass(eq=False)
class Timers:
    """Keeps the timers of all people.

    That one ended is stored in one transaction with its end, so that it is reported once.
    """

    store: Store
    events: Events
    instance: str
    household: Household
    manager: DeviceManager
    registry: Registry
    tasks: asyncio.TaskGroup
    _rows: dict[str, TimerRow] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def add(
        self,
        user: User,
        text: str,
        *,
        due: datetime | None,
        schedule: str | None = None,
        missed: Missed = "tell",
        call: LaterCall | None = None,
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
            call=None if call is None else call.model_dump(),
        )
        values = row.model_dump()
        await self.store.write(lambda session: session.add(TimerRow(**values)))
        self._rows[row.id] = row
        self._changed.set()
        await self.events.publish(user.id, _happened(row, "set"))
        return TimerSummary.model_validate(row)

    def later_call(self, asking: Asking, path: str, arguments: Mapping[str, Json]) -> LaterCall:
        """Return a call that a timer may make; what needs a person's yes at its time needs it now.

        Raises:
            CallError: If the path or an argument is wrong; ``needs_confirmation``.
        """
        devices = self.registry.directory.seen_by(asking.user.id)
        [call] = approve(devices, [Allowed(path=path, arguments=dict(arguments))])
        target = call.found(call.arguments, devices).target
        flags = target.method.flags
        is_risky = flags.unknown or flags.destructive or flags.open_world
        if flags.confirm or asking.untrusted or (is_risky and not asking.by_sentence):
            method = f"{target.skill}.{target.method.name}"
            asking.need_confirmation(Phrase("{method} needs a person's confirmation", method=method))
        return LaterCall(
            **call.model_dump(),
            **{each: getattr(asking, each) for each in _RIGHTS},
            token=asking.origin.confirmed_by or asking.origin.token,
            through=asking.origin.through,
        )

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

    def running(self, user: User, which: str = "") -> list[TimerSummary]:
        """Return the timers of a person without reminders, which have a schedule or are reported as missed.

        Args:
            which: The text or the id of those that are meant; empty for all.

        Raises:
            NotFound: If there are timers, and none of them is called so.
        """
        own = [each for each in self.of(user) if _is_timer(each)]
        found = _called(which, own) if which else own
        if own and not found:
            raise _unknown(which, own)
        return found

    async def move(self, user: User, which: str, by: timedelta) -> TimerSummary:
        """Move the end of a timer; `by` may be negative.

        Raises:
            NotFound: As of `remove`, or if it has ended meanwhile.
            InvalidMessage: If that moment has passed, or the timer comes by a schedule.
        """
        row = self._named(user, which)
        if row.schedule is not None:
            raise InvalidMessage(
                "{text!r} comes by a schedule", text=row.text, hint="Cancel it and make another one."
            )
        left_s = None if row.left_s is None else row.left_s + by.total_seconds()
        due = row.due + by if left_s is None else row.due
        if due <= now() if left_s is None else left_s <= 0:
            raise InvalidMessage("the timer {text!r} has less time left than that", text=row.text)
        return await self._move(row, due=due, left_s=left_s)

    async def pause(self, user: User, which: str) -> TimerSummary:
        """Stop a timer until it is resumed.

        Raises:
            NotFound: As of `move`; of reminders there is none to pause.
        """
        row = self._named(user, which, paused=False)
        return await self._move(row, due=row.due, left_s=(row.due - now()).total_seconds())

    async def resume(self, user: User, which: str) -> TimerSummary:
        """Resume a paused timer.

        Raises:
            NotFound: As of `move`.
        """
        row = self._named(user, which, paused=True)
        return await self._move(row, due=now() + timedelta(seconds=row.left_s or 0), left_s=None)

    async def _move(self, row: TimerRow, *, due: datetime, left_s: float | None) -> TimerSummary:
        """Change when a timer ends, in memory first: so it does not end while that is stored."""
        ended = NotFound("the timer {text!r} has ended", text=row.text)
        before = row.due, row.left_s
        if row.left_s is None and row.due <= now():
            raise ended
        row.due, row.left_s = due, left_s
        moved = update(TimerRow).where(col(TimerRow.id) == row.id).values(due=due, left_s=left_s)
        try:
            await self.store.write(lambda session: session.exec(moved))
        except StorageError:
            row.due, row.left_s = before
            raise
        finally:
            self._changed.set()
        if row.id not in self._rows:
            raise ended
        await self.events.publish(row.owner, _happened(row, "set" if left_s is None else "paused"))
        return TimerSummary.model_validate(row)

    def _named(self, user: User, which: str, *, paused: bool | None = None) -> TimerRow:
        """Return the timer that is meant; with `paused`, of those alone that are paused or run."""
        own = [row for row in self._rows.values() if row.owner == user.id]
        if paused is None:
            found = _called(which, own)
        else:
            timers = [row for row in own if _is_timer(row)]
            found = _called(which, [row for row in timers if (row.left_s is not None) == paused])
            if not found and (others := _called(which, timers)):
                if paused:
                    raise NotFound("the timer {text!r} is not paused", text=others[0].text)
                raise NotFound("the timer {text!r} is paused already", text=others[0].text)
        if len(found) == 1:
            return found[0]
        if not own:
            raise NotFound("there is no timer")
        if not found:
            raise _unknown(which, own)
        there = ", ".join(f"{row.text!r} ({row.id})" for row in found)
        raise NotFound(
            "{timers} timers can be meant", timers=len(found), known=there, hint="Say which one: {known}."
        )

    async def forget_person(self, user: str) -> None:
        for row in [row for row in self._rows.values() if row.owner == user]:
            await self._drop(row)

    async def run(self) -> None:
        """Report timers as they end, until cancelled."""
        own = select(TimerRow).where(TimerRow.instance == self.instance)
        stored = await self.store.read(lambda session: list(session.exec(own)))
        for row in readable(stored, self._checked):
            self._rows[row.id] = row
            if row.call is not None and row.call["begun"]:
                await self._finish(row, Phrase("The hub stopped while it did this: {text}", text=row.text))
        while True:
            self._changed.clear()
            present = time.time()
            for row in list(self._rows.values()):
                if not self._is_due(row, present):
                    continue  # Perhaps it was removed or moved while another one ended.
                try:
                    await self._end(row, late=present - row.due.timestamp() > limits.LATE_S)
                except StorageError as error:
                    _log.error("the timer %s: %s", row.id, error)
                    await asyncio.sleep(limits.STORE_AGAIN_S)
            first = min(
                (row.due.timestamp() for row in self._rows.values() if row.left_s is None), default=math.inf
            )
            wait_s = min(max(0.05, first - time.time()), limits.LONGEST_SLEEP_S)
            await happens(self._changed, within_s=wait_s)

    def _is_due(self, row: TimerRow, present: float) -> bool:
        return row.id in self._rows and row.left_s is None and row.due.timestamp() <= present

    @staticmethod
    def _checked(row: TimerRow) -> TimerRow:
        """Return a row that can be shown, and whose schedule and call, if it has them, can be read."""
        TimerSummary.model_validate(row)
        if row.call is not None:
            LaterCall.model_validate(row.call)
        if row.schedule is not None:
            Schedule.parse(row.schedule)
        return row

    async def _end(self, row: TimerRow, *, late: bool) -> None:
        missed = late and row.missed == "tell"
        if row.call is not None and not missed:
            await self._begin(row)
            return
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

    async def _begin(self, row: TimerRow) -> None:
        """Make the call of a timer, beside the other timers; only a failure is reported."""
        call = LaterCall.model_validate(row.call)
        values = {**call.model_dump(), "begun": True}
        ended = TimerData(subject=row.text, event="ended", timer=row.id, due=row.due, missed=False)
        begun = update(TimerRow).where(col(TimerRow.id) == row.id).values(call=values)
        await self.events.publish_all([(row.owner, ended)], also=begun)
        if self._rows.pop(row.id, None) is None:
            return  # It was removed while that was stored.

        async def made() -> None:
            told = None
            try:
                await call.make(row, manager=self.manager, registry=self.registry)
            except StrawberryError as error:
                why = shortened(error.message, limits.MOST_OUTCOME)
                told = Phrase("Not done: {text} ({why})", text=row.text, why=why)
            await self._finish(row, told)

        self.tasks.create_task(made(), name=f"the call of the timer {row.id}")

    async def _finish(self, row: TimerRow, told: str | None) -> None:
        """Forget a timer whose call was made; tell what went wrong."""
        self._rows.pop(row.id, None)
        if told is None:
            await self.store.write(lambda session: session.exec(_change(row.id, due=None)))
            return
        note = NotificationData(
            subject=row.text, event="ended", timer=row.id, due=row.due, text=told, sender="timer"
        )
        await self.events.publish_all([(row.owner, note)], also=_change(row.id, due=None))

    async def _drop(self, row: TimerRow) -> None:
        await self.store.write(lambda session: session.exec(_change(row.id, due=None)))
        self._rows.pop(row.id, None)


def _called(which: str, rows: list[_Timer]) -> list[_Timer]:
    """Return those of this id or text; "the timer" is any, where none has that text."""
    found = [row for row in rows if row.id == which] or [
        row for row in rows if _name(row.text) == _name(which)
    ]
    return found or ([row for row in rows if _is_timer(row)] if which == UNNAMED else [])


def _name(text: str) -> str:
    # ``noodle`` of ``Noodle-Timer``.
    return re.sub(r"(?<=\w)[ -]?timer$", "", text.casefold())


def _unknown(which: str, rows: Sequence[TimerRow | TimerSummary]) -> NotFound:
    there = ", ".join(repr(row.text) for row in rows)
    return NotFound("no timer is called {which!r}", which=which, known=there, hint="There are: {known}.")


def _is_timer(each: TimerRow | TimerSummary) -> bool:
    return each.schedule is None and (each.missed == "run" or each.call is not None)


def _happened(row: TimerRow, event: Literal["set", "removed", "paused"]) -> TimerData:
    return TimerData(subject=row.text, event=event, timer=row.id, due=row.due)


def _change(timer: str, *, due: datetime | None) -> Update | Delete:
    """Return the statement that moves a timer, if it is there still; without `due`, deletes it."""
    if due is None:
        return delete(TimerRow).where(col(TimerRow.id) == timer)
    return update(TimerRow).where(col(TimerRow.id) == timer).values(due=due)


@asynccontextmanager
async def open_timers(parts: HubParts, events: Events) -> AsyncIterator[Timers]:
    """Keep timers for as long as the context is open."""
    settings, registry = parts.settings, parts.registry
    async with open_tasks(contained=True) as tasks:
        timers = Timers(
            registry.store,
            events,
            settings.instance,
            settings.household,
            parts.manager,
            registry,
            tasks,
        )
        supervise(tasks, timers.run, name="timers")
        yield timers
