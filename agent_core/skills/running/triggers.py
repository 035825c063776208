"""Runs methods of skills by themselves: at times, at events and when values change."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from datetime import UTC, datetime, time, timedelta, tzinfo
from pathlib import Path
from typing import Any

from agent_core import limits
from agent_core.skills.loading.exposure import LoadedMethod, LoadedSkill
from agent_core.skills.results import Publication, SkillSink
from agent_core.skills.skill import Trigger, TriggerKind
from contracts.errors import CallError, ErrorCode
from contracts.rates import TokenBucket
from contracts.wire import Json


def next_of(times: Sequence[time], now: datetime, *, last: datetime | None = None) -> datetime:
    """Return the first of these times of day after a moment, in its time zone.

    Args:
        last: The one before: a clock that was set back a little comes to it again.
    """
    if last is not None and now < last < now + limits.CLOCK_SET_BACK:
        now = last.astimezone(now.tzinfo)
    days = (now.date() + timedelta(days=days) for days in range(2))
    moments = (datetime.combine(day, each, now.tzinfo) for day in days for each in times)
    return min(each for each in moments if each.astimezone(UTC) > now.astimezone(UTC))


class LocalSink:
    """A sink that passes on what skills publish, and tells the skills of this device.

    Attributes:
        values: The latest values, by ``Skill.name``.
    """

    def __init__(self, sink: SkillSink) -> None:
        self.values: dict[str, Json] = {}
        self._sink = sink
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[Callable[[TriggerKind, str, Json], None]] = []

    def listen(self, listener: Callable[[TriggerKind, str, Json], None]) -> Callable[[], None]:
        """Call a function in the running loop with each event and value; return how to end that."""
        self._loop = asyncio.get_running_loop()
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def __call__(self, publication: Publication) -> None:
        """Publish, and tell; a ``SkillSink``."""
        self._sink(publication)
        if publication.kind == "event":
            self.tell("event", publication.name, publication.value)
        else:
            self.tell("value", f"{publication.skill}.{publication.name}", publication.value)

    def tell(self, kind: TriggerKind, source: str, value: Json) -> None:
        """Tell the skills of this device, from any thread."""
        if kind == "value":
            if source not in self.values and len(self.values) >= limits.MOST_VALUES_HEARD:
                return
            self.values[source] = value
        if self._loop is not None and self._listeners and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, kind, source, value)

    def _tell(self, kind: TriggerKind, source: str, value: Json) -> None:
        for listener in list(self._listeners):
            listener(kind, source, value)


class RunningTriggers:
    """The methods of one skill that run by themselves, until it is closed.

    Args:
        sink: Tells of events and values; None where nothing does.
        call: Runs a method; what it raises is logged.
        zone: Time zone of the home.
    """

    def __init__(
        self,
        skill: LoadedSkill,
        *,
        sink: LocalSink | None,
        call: Callable[[LoadedSkill, LoadedMethod, Sequence[Json]], Awaitable[object]],
        zone: tzinfo | None,
    ) -> None:
        self._skill = skill
        self._log = logging.getLogger(f"strawberry.skills.{skill.name}")
        self._call = call
        self._zone = zone
        self._values = sink.values if sink is not None else {}
        self._waiting: list[tuple[Trigger, asyncio.Queue[Json]]] = []
        self._stop_listening = sink.listen(self._hear) if sink is not None and skill.triggers else None
        loop = asyncio.get_running_loop()
        # Without the context: it may be that of the call that completed the settings.
        self._tasks = [
            loop.create_task(self._repeat(trigger, method), name=skill.name, context=Context())
            for trigger, method in skill.triggers
        ]

    async def stop(self) -> None:
        """Stop what runs, and run nothing more."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel(self) -> None:
        """Stop what runs at its next `await`, and run nothing more."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        for task in self._tasks:
            task.cancel()

    def _repeat(self, trigger: Trigger, method: LoadedMethod) -> Coroutine[Any, Any, None]:
        if trigger.kind == "every":
            return self._every(trigger, method)
        if trigger.kind == "at":
            return self._at(trigger, method)
        size = 1 if trigger.kind == "value" else limits.MOST_EVENTS_WAITING
        queue = asyncio.Queue[Json](maxsize=size)
        if trigger.kind == "value" and trigger.source in self._values:
            queue.put_nowait(self._values[trigger.source])
        self._waiting.append((trigger, queue))
        return self._when_heard(queue, method, is_value=trigger.kind == "value")

    async def _every(self, trigger: Trigger, method: LoadedMethod) -> None:
        loop = asyncio.get_running_loop()
        again_s = limits.OFFLINE_AGAIN_S
        while True:
            began = loop.time()
            pause_s = trigger.interval_s
            if await self._run(method) is ErrorCode.OFFLINE:
                # At a start the device that it calls may be there in a moment.
                pause_s, again_s = min(pause_s, again_s), again_s * 2
            else:
                again_s = limits.OFFLINE_AGAIN_S
            await asyncio.sleep(max(0.0, began + pause_s - loop.time()))

    async def _at(self, trigger: Trigger, method: LoadedMethod) -> None:
        moment = None
        while True:
            moment = next_of(trigger.times, datetime.now(self._zone).astimezone(self._zone), last=moment)
            # In pieces: a clock that is set, or a computer that slept, moves the moment.
            left_s = limits.CLOCK_LOOK_S
            while left_s > 0:
                left_s = (moment - datetime.now(UTC)).total_seconds()
                await asyncio.sleep(min(max(left_s, 0.0), limits.CLOCK_LOOK_S))
            await self._run(method)

    async def _when_heard(self, queue: asyncio.Queue[Json], method: LoadedMethod, *, is_value: bool) -> None:
        # A skill that causes what it waits for must not turn without end.
        pace = TokenBucket(burst=limits.TRIGGER_BURST, per_second=limits.TRIGGERS_PER_S)
        last: Json = None
        while True:
            value = await queue.get()
            if is_value and value == last:
                continue
            last = value
            await asyncio.sleep(pace.reserve())
            await self._run(method, value)

    def _hear(self, kind: TriggerKind, source: str, value: Json) -> None:
        for trigger, queue in self._waiting:
            if (trigger.kind, trigger.source) != (kind, source):
                continue
            if queue.full():
                # Of a value only the latest counts, and the oldest events are the least worth.
                queue.get_nowait()
            queue.put_nowait(value)

    async def _run(self, method: LoadedMethod, *values: Json) -> ErrorCode | None:
        """Run a method; return the code of what it failed with."""
        given = values[: len(method.contract.parameters.get("properties", {}))]
        try:
            await self._call(self._skill, method, given)
        except CallError as error:
            if not error.exception:  # else it was logged with its traceback
                code = inspect.unwrap(method.function).__code__
                place = Path(code.co_filename).name, code.co_firstlineno
                self._log.warning("%s, line %d: %s", *place, error)
            return error.code
        except Exception:  # noqa: BLE001 - whatever it was, the method is run again at its next time
            self._log.exception("%s.%s could not be run", self._skill.name, method.contract.name)
        return None
