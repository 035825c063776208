"""The skill runner: concurrency, time limits, confirmation and cancellation of calls."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from types import TracebackType
from typing import Self

from agent_core.schemas.arguments import secret_arguments, without_secrets
from agent_core.schemas.nearest import suggestion
from agent_core.skills.loading.exposure import LoadedMethod, LoadedSkill, LoadProblem
from agent_core.skills.results import MAX_RESULT_BYTES
from agent_core.skills.running.execution import Execution, ProgressSink
from agent_core.skills.running.lifecycle import Lifecycle, LifecycleSettings
from agent_core.skills.running.triggers import LocalSink, RunningTriggers
from agent_core.skills.settings import SETTINGS_HINT, SETTINGS_METHODS
from agent_core.skills.skill import Skill
from contracts.devices.registration import Unavailable
from contracts.errors import CallError, ErrorCode
from contracts.phrases import Phrase
from contracts.wire import Json

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunnerSettings(LifecycleSettings):
    """Bounds of a runner.

    Attributes:
        max_result_bytes: What a result, and each yielded value, may have as JSON.
        max_waiting: How many calls of one skill may wait for their turn; the next one is ``busy``.
        max_threads: How many plain methods run at the same time, of all skills together.
        runs_triggers: Whether methods run by themselves where their authors say so.
    """

    max_result_bytes: int = MAX_RESULT_BYTES
    max_waiting: int = 256
    max_threads: int = 64
    runs_triggers: bool = True


class NotCancelled(asyncio.CancelledError):
    """The caller gave up, but the method did not stop for it: it came to its end, or it still runs.

    Such a call must not be reported as cancelled; ``result`` gives its outcome.

    Attributes:
        is_running: Whether the method had not ended when its time to stop was over.
    """

    def __init__(self, execution: Execution) -> None:
        super().__init__(execution.path)
        self._execution = execution
        self.is_running = not execution.work.done()

    def result(self) -> Json:
        """Return what the method returned all the same.

        Raises:
            CallError: What it failed with; ``outcome_unknown`` while it still runs.
        """
        if self.is_running:
            raise CallError(
                ErrorCode.OUTCOME_UNKNOWN,
                "{path} was asked to stop and still runs",
                path=self._execution.path,
                hint="a plain method stops only where it calls check_cancelled()",
            )
        return self._execution.work.result()

    async def outcome(self) -> Json:
        """Wait until the method has ended, and return what it returned.

        Raises:
            CallError: What it failed with.
        """
        return await asyncio.shield(self._execution.work)


class _Gate:
    """A bound on how many calls run at a time, and how many wait."""

    def __init__(self, name: str, *, running: int, waiting: int) -> None:
        self._name = name
        self._places = asyncio.Semaphore(running)
        self._running = running
        self._max_waiting = waiting
        self._waiting = 0

    async def enter(self, deadline: float) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        if self._waiting >= self._max_waiting:
            raise self._busy()
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            raise self._busy() from None
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._places.release()

    def _busy(self) -> CallError:
        calls = "1 call" if self._running == 1 else f"{self._running} calls"
        message = Phrase(
            "{device} is busy with {calls}; this one did not run", device=self._name, calls=calls
        )
        return CallError(ErrorCode.BUSY, message, hint="try again later")


class SkillRunner:
    """Runs methods of skills. As a context it sets the skills up and closes them again.

    Attributes:
        skills: What can be called, by name; known once the context is entered.
        life: Sets them up, and knows why one cannot be used.
    """

    def __init__(
        self,
        skills: Iterable[LoadedSkill],
        *,
        settings: RunnerSettings | None = None,
        sink: LocalSink | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        self.skills: dict[str, LoadedSkill] = {skill.name: skill for skill in skills}
        self._settings = settings or RunnerSettings()
        self.life = Lifecycle(
            self._settings,
            is_offered=lambda skill: self.skills.get(skill.name) is skill,
            on_ready=self._begin,
        )
        self._gates: dict[str, _Gate] = {}
        self._threads = _Gate("this device", running=self._settings.max_threads, waiting=1_024)
        self._running: set[Execution] = set()
        self._retired: list[LoadedSkill] = []
        self._sink = sink
        self._zone = zone
        self._triggers: dict[int, RunningTriggers] = {}

    async def __aenter__(self) -> Self:
        await self.life.start(self.skills.values(), lambda: [*self.skills.values(), *self._retired])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.life.stop()
            for triggers in list(self._triggers.values()):
                await triggers.stop()
            await self._stop_all()
        finally:
            failed = {name for name, why in self.unavailable.items() if why.kind != "blocked"}
            for skill in (*self.skills.values(), *self._retired):
                if skill.name not in failed or skill in self._retired:
                    await self._close(skill)
                else:
                    self.life.discard(skill)

    @property
    def unavailable(self) -> dict[str, Unavailable]:
        return self.life.unavailable

    @property
    def problems(self) -> list[LoadProblem]:
        return [LoadProblem(name, why.text) for name, why in self.unavailable.items()]

    async def replace(self, skill: LoadedSkill) -> Unavailable | None:
        """Offer a skill, in place of the one of its name if there is one.

        Calls that run go on with what they began with; `settle` closes that when they have ended.

        Returns:
            Why the one before stays, if it does.
        """
        old = self.skills.get(skill.name)
        before = self.unavailable.get(skill.name)
        is_used = old is not None and (before is None or before.kind == "blocked")
        why = await self.life.set_up(skill)
        # Only the new version can be told what it lacks.
        lacks = why is not None and why.kind == "settings"
        if why is not None and old is not None and is_used and not lacks and not self._calls_of(old):
            # What it needs may be what the one before holds: a port, a pin, a device.
            await self._close(old)
            is_used = False
            why = await self.life.set_up(skill)
            if why is not None and await self.life.set_up(old) is None:
                is_used = True
                self._begin(old)
        if why is not None and is_used and not lacks:
            self.life.discard(skill)
            return why
        if old is not None and is_used:
            self._retire(old)
        elif old is not None:
            self.life.discard(old)
        self.life.troubles.pop(skill.name, None)
        self.skills[skill.name] = skill
        self._forget_gates(skill.name)
        self.life.note(skill, why)
        return None

    def remove(self, name: str) -> None:
        """Offer a skill no longer; see `replace`."""
        skill = self.skills.pop(name)
        self.life.troubles.pop(name, None)
        why = self.unavailable.pop(name, None)
        if why is None or why.kind == "blocked":
            self._retire(skill)
        else:
            self.life.discard(skill)
        self._forget_gates(name)

    def _begin(self, skill: LoadedSkill) -> None:
        if skill.triggers and self._settings.runs_triggers:
            self._triggers[id(skill)] = RunningTriggers(
                skill, sink=self._sink, call=self._run_itself, zone=self._zone
            )

    def _retire(self, skill: LoadedSkill) -> None:
        self._retired.append(skill)
        if (triggers := self._triggers.get(id(skill))) is not None:
            triggers.cancel()

    async def settle(self) -> None:
        """Close what is no longer offered, once its last call has ended."""
        for skill in list(self._retired):
            if not self._calls_of(skill):
                self._retired.remove(skill)
                await self._close(skill)

    async def threads_ended(self) -> None:
        """Wait until the plain methods that run have ended; for tests that move the clock."""
        if works := [each.work for each in self._running if not each.method.is_async]:
            await asyncio.wait(works)

    def _calls_of(self, skill: LoadedSkill) -> list[Execution]:
        return [each for each in self._running if any(each.method is own for own in skill.methods.values())]

    def _forget_gates(self, skill: str) -> None:
        # Running calls leave the gates of the old version: the new version may have other bounds.
        for name in [each for each in self._gates if each == skill or each.startswith(f"{skill}.")]:
            del self._gates[name]

    async def _stop_all(self) -> None:
        """Stop what runs, and leave behind what does not stop in time."""
        for execution in list(self._running):
            execution.stop()
        if running := [execution.work for execution in self._running]:
            await asyncio.wait(running, timeout=self._settings.stop_grace_s)
        for execution in self._running:
            _log.warning("%s did not stop within %g s", execution.path, self._settings.stop_grace_s)

    async def run(
        self,
        skill: str,
        method: str,
        args: Sequence[Json] = (),
        kwargs: Mapping[str, Json] | None = None,
        *,
        confirmed: bool = False,
        progress: ProgressSink | None = None,
    ) -> Json:
        """Call a method.

        A generator's yielded values are its progress; its result is what it returns, or else what it
        yielded last. Beyond the concurrency of the method and of the skill, calls wait for their turn.

        Cancelling it stops an ``async`` method at its next ``await``, a generator at its next ``yield``
        and a plain method where it calls ``check_cancelled()``.

        Args:
            skill: Name of the skill.
            method: Name of the method.
            args: JSON values by position.
            kwargs: JSON values by name.
            confirmed: Whether a person confirmed exactly this call.
            progress: Takes what a generator yields.

        Returns:
            The result as JSON.

        Raises:
            CallError: ``unknown_skill``, ``bad_arguments``, ``needs_confirmation``, ``busy``, ``timeout``,
                ``too_large``, ``skill_error``, or what the method itself raised as one.
            CancelledError: The caller gave up and the method stopped, or had not begun.
            NotCancelled: The caller gave up and the method did not stop for it.
        """
        while True:
            owner, called = self.find(skill, method)
            if called.contract.flags.confirm and not confirmed:
                raise CallError(
                    ErrorCode.NEEDS_CONFIRMATION,
                    "{name} needs a person's confirmation",
                    name=f"{skill}.{method}",
                    hint="Call it where questions can be answered, such as the chat.",
                )
            execution = self._execution(owner, called, args, kwargs or {}, progress)
            if await self._start(execution, owner):
                break
        result = await self._ended(execution)
        # What runs elsewhere is set up there, and says itself how that ended.
        if method == "change_settings" and skill in self.unavailable and isinstance(owner.instance, Skill):
            await self.life.complete(owner)
        return result

    def shown(self, path: str, args: Sequence[Json], kwargs: Mapping[str, Json]) -> list[Json]:
        """Return the arguments of a call without secrets."""
        skill, _, name = path.partition(".")
        found = self.skills[skill].methods.get(name) if skill in self.skills else None
        if found is None or not secret_arguments(found.contract):
            return [list(args), dict(kwargs)]
        return [[], without_secrets(found.contract, kwargs)]

    def find(self, skill: str, method: str) -> tuple[LoadedSkill, LoadedMethod]:
        """Look a method up.

        Raises:
            CallError: ``unknown_skill``, with the nearest names.
        """
        owner = self.skills.get(skill)
        if owner is None:
            hint = suggestion(skill, self.skills)
            raise CallError(ErrorCode.UNKNOWN_SKILL, "there is no skill {skill!r}", skill=skill, hint=hint)
        called = owner.methods.get(method)
        if called is None:
            hint = suggestion(method, owner.methods)
            raise CallError(
                ErrorCode.UNKNOWN_SKILL,
                "{skill} has no method {method!r}",
                skill=skill,
                method=method,
                hint=hint,
            )
        if (why := self.unavailable.get(skill)) and method not in SETTINGS_METHODS:
            raise CallError(
                ErrorCode.OFFLINE,
                "{skill} is unavailable: {reason}",
                skill=skill,
                reason=why.text,
                hint=SETTINGS_HINT if why.kind == "settings" else "",
            )
        return owner, called

    def _execution(
        self,
        owner: LoadedSkill,
        method: LoadedMethod,
        args: Sequence[Json],
        kwargs: Mapping[str, Json],
        progress: ProgressSink | None = None,
    ) -> Execution:
        positional, named = method.schema.coerce(args, kwargs)
        path, most = f"{owner.name}.{method.contract.name}", self._settings.max_result_bytes
        return Execution(path, method, positional, named, progress=progress, max_bytes=most, loop=owner.loop)

    async def _start(self, execution: Execution, owner: LoadedSkill) -> bool:
        """Begin a call once there is room for it; return False if its skill was replaced meanwhile."""
        with contextlib.ExitStack() as entering:
            for gate in self._gates_of(execution, owner):
                await gate.enter(execution.deadline)
                entering.callback(gate.leave)
            if self.skills.get(owner.name) is not owner:
                return False
            execution.start()
            entered = entering.pop_all()
        self._running.add(execution)

        def leave(work: asyncio.Future[Json]) -> None:
            if not work.cancelled():
                work.exception()  # retrieved: a result without a waiter is not logged as lost
            # Not before: a method that cannot be stopped keeps its place until it ends by itself.
            self._running.discard(execution)
            entered.close()

        execution.work.add_done_callback(leave)
        return True

    def _gates_of(self, call: Execution, owner: LoadedSkill) -> list[_Gate]:
        """Return the narrowest first, so that a call that waits there holds no place of the others."""
        gates: list[_Gate] = []
        if call.method.concurrency is not None:
            gates.append(self._gate(call.path, call.method.concurrency))
        gates.append(self._gate(owner.name, owner.concurrency))
        if not call.method.is_async:
            gates.append(self._threads)
        return gates

    def _gate(self, name: str, running: int) -> _Gate:
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = _Gate(name, running=running, waiting=self._settings.max_waiting)
        return gate

    async def _ended(self, execution: Execution) -> Json:
        work = execution.work
        try:
            left = execution.deadline - asyncio.get_running_loop().time()
            await asyncio.wait({work}, timeout=max(left, 0.0))
            if not work.done():
                execution.stop()
                await asyncio.wait({work}, timeout=self._settings.stop_grace_s)
                if not work.done() or work.cancelled():
                    raise _timed_out(execution)
        except asyncio.CancelledError:
            execution.stop()
            with contextlib.suppress(asyncio.CancelledError):  # asked twice: it says now what it knows
                await asyncio.wait({work}, timeout=self._settings.stop_grace_s)
            if work.cancelled():
                raise
            raise NotCancelled(execution) from None
        if work.cancelled():
            hint = "the skills are being closed"
            raise CallError(ErrorCode.CANCELLED, "{path} was stopped", path=execution.path, hint=hint)
        return work.result()

    async def _run_itself(self, skill: LoadedSkill, method: LoadedMethod, args: Sequence[Json]) -> Json:
        """Run what no one called, with the limits of a call."""
        execution = self._execution(skill, method, args, {})
        return await self._ended(execution) if await self._start(execution, skill) else None

    async def _close(self, skill: LoadedSkill) -> None:
        if (triggers := self._triggers.pop(id(skill), None)) is not None:
            await triggers.stop()
        await self.life.close(skill)


def _timed_out(execution: Execution) -> CallError:
    state = "was stopped" if execution.work.done() else "cannot be stopped: it still runs"
    return CallError(
        ErrorCode.TIMEOUT,
        "{path} took longer than {allowed:g} s and {state}",
        path=execution.path,
        allowed=execution.allowed_s,
        state=state,
        hint="the skill's author can allow more with timeout_s",
    )
