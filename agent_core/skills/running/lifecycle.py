"""The life of skills: set up, tried again where that fails, watched for blocking code, and closed."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from agent_core import limits
from agent_core.skills.availability import (
    SkillUnavailable,
    folder_of,
    secrets_of,
    traceback_of,
    unavailable,
    without,
)
from agent_core.skills.home import NO_CALL, PRESENT_CALL
from agent_core.skills.loading.exposure import LoadedSkill
from agent_core.skills.skill import Skill, attach_tasks, tasks_of
from agent_core.skills.skill_loop import OwnedTasks
from agent_core.skills.tasks import SkillTasks
from contracts.devices.registration import Unavailable, UnavailableKind
from contracts.limits import MAX_UNAVAILABLE_REASON
from contracts.rates import Backoff

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LifecycleSettings:
    """Times of skills.

    Attributes:
        stop_grace_s: How long a method that was cancelled or timed out may take to stop.
        setup_timeout_s: How long a skill may take to set up, and to close.
        start_wait_s: How long a start waits for that.
        retry_s: First and longest wait before a set-up or a task that failed runs again.
        steady_s: A task that ran for so long has recovered.
        blocked_s: A skill whose event loop does not answer for so long blocks.
    """

    stop_grace_s: float = 2.0
    setup_timeout_s: float = 30.0
    start_wait_s: float = limits.SKILL_START_WAIT_S
    retry_s: tuple[float, float] = limits.SKILL_RETRY_S
    steady_s: float = limits.SKILL_STEADY_S
    blocked_s: float = limits.SKILL_BLOCKED_S


@dataclass(eq=False)
class Lifecycle:
    """Keeps skills set up.

    Attributes:
        is_offered: Returns whether this version of a skill is the one that can be called.
        on_ready: Called with each skill that has been set up and is offered.

    Attributes:
        unavailable: By skill that cannot be called now, why.
        troubles: By skill that can be called, why its tasks fail, by task.
        changed: Called after either has changed outside of a set-up that the caller waits for.
    """

    settings: LifecycleSettings
    _: KW_ONLY
    is_offered: Callable[[LoadedSkill], bool]
    on_ready: Callable[[LoadedSkill], None]

    def __post_init__(self) -> None:
        self.unavailable: dict[str, Unavailable] = {}
        self.troubles: dict[str, dict[str, Unavailable]] = {}
        self.changed: Callable[[], None] = lambda: None
        self._blocked: dict[int, Unavailable] = {}
        self._retrying: set[int] = set()
        # By skill that is offered: its set-up never runs twice at once.
        self._setting_up: dict[int, asyncio.Lock] = {}
        self._tasks = OwnedTasks()

    @property
    def reasons(self) -> dict[str, Unavailable]:
        """Return the skills that are registered as unavailable, each with the reason."""
        failing = {skill: next(iter(each.values())) for skill, each in self.troubles.items() if each}
        return {**failing, **self.unavailable}

    async def start(self, skills: Iterable[LoadedSkill], watched: Callable[[], list[LoadedSkill]]) -> None:
        """Set skills up together; what takes long follows."""
        waiting = {self._tasks.start(self._begin(skill), name=skill.name): skill for skill in skills}
        self._tasks.start(self._watch(watched), name="watch for skills that block")
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=self.settings.start_wait_s)
            for task in late:
                reason = f"not finished after {self.settings.start_wait_s:g} s; it goes on"
                self.unavailable[waiting[task].name] = Unavailable(kind="setup", reason=reason)

    async def _begin(self, skill: LoadedSkill) -> None:
        async with self._lock_of(skill):
            await self._set_up_first(skill)

    async def complete(self, skill: LoadedSkill) -> None:
        """Set a skill up that could not be used, once its settings have changed."""
        async with self._lock_of(skill):
            if skill.name not in self.unavailable or not self.is_offered(skill):
                return  # another call did it, or another version took its place
            await self._set_up_first(skill)

    async def _set_up_first(self, skill: LoadedSkill) -> None:
        why = await self.set_up(skill)
        if await self._is_kept(skill, why):
            self.note(skill, why)
            self.changed()

    def _lock_of(self, skill: LoadedSkill) -> asyncio.Lock:
        return self._setting_up.setdefault(id(skill), asyncio.Lock())

    async def _is_kept(self, skill: LoadedSkill, why: Unavailable | None) -> bool:
        """Return whether a skill is still offered; end it if another took its place during its set-up."""
        if self.is_offered(skill):
            return True
        if why is None:
            await self.close(skill)
        else:
            self.discard(skill)
        return False

    async def stop(self) -> None:
        await self._tasks.end()

    def note(self, skill: LoadedSkill, why: Unavailable | None) -> None:
        """Record how the set-up of a skill that is offered ended; one that failed is tried again."""
        if why is None:
            self.unavailable.pop(skill.name, None)
            self.on_ready(skill)
            return
        self.unavailable[skill.name] = why
        if why.kind != "settings" and id(skill) not in self._retrying:
            self._retrying.add(id(skill))
            trying = self._tasks.start(self._try_again(skill), name=f"{skill.name} again")
            trying.add_done_callback(lambda _: self._retrying.discard(id(skill)))

    async def _try_again(self, skill: LoadedSkill) -> None:
        backoff = Backoff(*self.settings.retry_s, jitter=0)
        while True:
            await asyncio.sleep(backoff.next())
            async with self._lock_of(skill):
                before = self.unavailable.get(skill.name)
                if before is None or before.kind == "settings" or not self.is_offered(skill):
                    return
                why = await self.set_up(skill, before=before)
                if not await self._is_kept(skill, why):
                    return
                self.note(skill, why)
                if why != before:
                    self.changed()

    async def set_up(self, skill: LoadedSkill, *, before: Unavailable | None = None) -> Unavailable | None:
        """Set a skill up; return why it cannot be used.

        Args:
            before: Why it could not be used the last time, which is not logged again.
        """
        PRESENT_CALL.set(NO_CALL)  # it may follow from a call that completed the settings
        instance = skill.instance
        if not isinstance(instance, Skill):
            return None
        stored = instance.stored_settings
        if stored is not None and stored.missing:
            return Unavailable(kind="settings", reason=", ".join(stored.missing))
        self._attach_tasks(skill, instance)
        try:
            await self._hook(skill, "setup")
        except Exception as error:  # noqa: BLE001 - the author's code; the other skills go on
            why = self._reason(skill, "setup", error)
            if why != before:
                trace = "" if isinstance(error, SkillUnavailable) else traceback_of(error, instance)
                _log.warning("%s is unavailable: %s%s", skill.name, why.text, trace)
            await self._end_tasks(skill)
            return why
        return None

    async def close(self, skill: LoadedSkill) -> None:
        """End the tasks of a skill, and close it."""
        if id(skill) in self._blocked:
            _log.warning("%s is not closed: it blocks", skill.name)
        else:
            await self._end_tasks(skill)
            try:
                await self._hook(skill, "close")
            except Exception as error:  # noqa: BLE001 - the author's code; the other skills are closed too
                _log.warning("%s could not be closed", skill.name, exc_info=error)
        self.discard(skill)

    def discard(self, skill: LoadedSkill) -> None:
        """End the thread of a skill that is not set up, or no longer."""
        self._blocked.pop(id(skill), None)
        self._setting_up.pop(id(skill), None)
        if skill.loop is not None:
            skill.loop.close()

    def _attach_tasks(self, skill: LoadedSkill, instance: Skill) -> None:
        home = asyncio.get_running_loop()
        report = partial(self._report, skill)
        tasks = SkillTasks(
            skill=skill.name,
            call=skill.loop.call if skill.loop is not None else home.call_soon_threadsafe,
            folder=folder_of(type(instance)),
            hide=lambda text: without(secrets_of(instance), text),
            report=lambda name, error: _from_thread(home, report, name, error),
            retry_s=self.settings.retry_s,
            steady_s=self.settings.steady_s,
        )
        attach_tasks(instance, tasks)

    def _report(self, skill: LoadedSkill, task: str, error: BaseException | None) -> None:
        if not self.is_offered(skill):
            return
        failing = self.troubles.setdefault(skill.name, {})
        before = failing.pop(task, None)
        if error is not None:
            why = self._reason(skill, "task", error)
            failing[task] = why.model_copy(
                update={"reason": f"{task}: {why.reason}"[:MAX_UNAVAILABLE_REASON]}
            )
        if failing.get(task) != before:
            self.changed()

    async def _end_tasks(self, skill: LoadedSkill) -> None:
        if tasks := tasks_of(skill.instance):
            try:
                await self._in_loop(skill, tasks.end(), name=f"the end of the tasks of {skill.name}")
            except Exception as error:  # noqa: BLE001 - they end with the process
                _log.warning("tasks of %s did not end", skill.name, exc_info=error)
        if self.is_offered(skill):
            self.troubles.pop(skill.name, None)

    async def _hook(self, skill: LoadedSkill, name: str) -> None:
        if not isinstance(skill.instance, Skill) or getattr(type(skill.instance), name) is getattr(
            Skill, name
        ):
            return
        await self._in_loop(skill, getattr(skill.instance, name)(), name=f"{skill.name}.{name}")

    async def _in_loop(self, skill: LoadedSkill, work: Coroutine[Any, Any, None], *, name: str) -> None:
        longest = self.settings.setup_timeout_s
        if skill.loop is None:
            async with asyncio.timeout(longest):
                await work
            return
        running = skill.loop.submit(work, name=name)
        try:
            await asyncio.wait({running}, timeout=longest)
        finally:
            if not running.done():
                running.stop()
        if not running.done():
            await asyncio.wait({running}, timeout=self.settings.stop_grace_s)
            place = "" if running.done() else f", at {skill.loop.place(folder_of(type(skill.instance)))}"
            raise TimeoutError(f"{name} took longer than {longest:g} s{place}")
        if running.cancelled():
            raise RuntimeError(f"{name} was cancelled")
        running.result()

    async def _watch(self, watched: Callable[[], list[LoadedSkill]]) -> None:
        while True:
            await asyncio.sleep(self.settings.blocked_s / 5)
            for skill in watched():
                if skill.loop is not None:
                    self._look(skill, skill.loop.silent_for(busy=bool(tasks_of(skill.instance))))

    def _look(self, skill: LoadedSkill, silent_s: float) -> None:
        known = self._blocked.get(id(skill))
        if known is None and silent_s >= self.settings.blocked_s and skill.loop is not None:
            place = skill.loop.place(folder_of(type(skill.instance)))
            why = self._reason(skill, "blocked", place)
            self._blocked[id(skill)] = why
            template = "%s blocks its event loop: %s (await there, or make it a plain method)"
            _log.warning(template, skill.name, place)
            if skill.name not in self.unavailable and self.is_offered(skill):
                self.unavailable[skill.name] = why
                self.changed()
        elif known is not None and not silent_s:
            del self._blocked[id(skill)]
            if self.unavailable.get(skill.name) is known:
                del self.unavailable[skill.name]
                self.changed()

    @staticmethod
    def _reason(skill: LoadedSkill, kind: UnavailableKind, why: BaseException | str) -> Unavailable:
        owner = type(skill.instance)
        return unavailable(kind, why, folder=folder_of(owner), secrets=secrets_of(skill.instance))


def _from_thread(home: asyncio.AbstractEventLoop, function: Callable[..., None], *given: Any) -> None:
    if not home.is_closed():
        home.call_soon_threadsafe(function, *given)
