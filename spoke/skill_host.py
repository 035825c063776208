"""The skills of this device: loads them, registers them, runs their calls."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import tzinfo
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from zoneinfo import ZoneInfo

from pydantic_core import to_json

from agent_core.models.entries import KEYS_FILE, read_keys
from agent_core.skills.home import PRESENT_CALL, HomeCaller, PresentCall
from agent_core.skills.loading.exposure import LoadedSkill, LoadProblem, expose
from agent_core.skills.loading.folders import GOES_ON, SkillFolders
from agent_core.skills.loading.loader import holds_skills
from agent_core.skills.results import SkillSink
from agent_core.skills.running.runner import NotCancelled, RunnerSettings, SkillRunner
from agent_core.skills.running.triggers import LocalSink
from agent_core.skills.skill import SkillContext, attach
from bus.rpc import ProgressSink
from chat.tasks import happens, open_tasks
from contracts.devices.registration import Registration, Unavailable
from contracts.devices.rpc import Call
from contracts.errors import CallError, ConfigError, ErrorCode, StillRunning
from contracts.names import HUB_SKILLS, INSTALLATION_SKILL
from contracts.wire import Json
from spoke import limits
from spoke.installing.skill import InstallationSkill
from spoke.integrations import enabled, find
from spoke.isolation.skill_process import SkillProcess
from spoke.settings import SpokeSettings

_log = logging.getLogger(__name__)
_AUDIT = logging.getLogger("strawberry.audit")

_SAMPLES: Final = Path(__file__).parent / "samples"


def sample_files(chosen: bool | Sequence[str]) -> list[Path]:
    """Return the files of sample skills: all or none of them, or those with these names.

    Raises:
        ConfigError: There is no sample of a name.
    """
    samples = {entry.stem: entry for entry in sorted(_SAMPLES.iterdir()) if holds_skills(entry)}
    names = samples if chosen is True else chosen or ()
    for name in names:
        if name not in samples:
            raise ConfigError(
                "there is no sample {name!r}", name=name, hint=f"The samples are {', '.join(samples)}."
            )
    return [samples[name] for name in names]


OWN_INSTANCE: Final = "spoke"
"""Instance that a call of this device names in place of a process of the hub."""


class SkillHost:
    """Runs calls of skills. As a context manager it sets the skills up and closes them.

    Attributes:
        expect: Called with the names that may publish from now on, before skills are set up.
        changed: Called after the registrations have changed.
    """

    def __init__(
        self,
        folders: SkillFolders,
        own: Sequence[LoadedSkill] = (),
        *,
        device: str,
        settings: RunnerSettings | None = None,
        sink: LocalSink | None = None,
        zone: tzinfo | None = None,
        make_process: Callable[[Path], SkillProcess] | None = None,
    ) -> None:
        self._own = {skill.name for skill in own}
        self._folders = folders
        # What of the folders is in place; while they are loaded again, they are ahead of it.
        self._found = folders.found
        found = (skill for skill in folders.found.skills if skill.name not in self._own)
        self._runner = SkillRunner([*own, *found], settings=settings, sink=sink, zone=zone)
        # By skill whose version before stays, why the new one cannot be set up.
        self._kept: dict[str, Unavailable] = {}
        self._not_loaded: dict[str, Unavailable] = {}
        self._make_process = make_process
        self._processes: dict[Path, tuple[SkillProcess, asyncio.Task[None]]] = {}
        self._owners: dict[str, SkillProcess | None] = dict.fromkeys(self._runner.skills)
        self._refused: set[tuple[str, str]] = set()
        self._stack = AsyncExitStack()
        self.expect: Callable[[Iterable[str]], None] = lambda _: None
        self.changed: Callable[[], None] = lambda: None
        self._device = device
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_stopping = False

    @classmethod
    async def load(
        cls, settings: SpokeSettings, *, device: str, sink: SkillSink, home: HomeCaller | None = None
    ) -> Self:
        """Load the skills in the folders of the settings; a broken one is logged and skipped."""
        local = LocalSink(sink)

        def make_context(skill: str) -> SkillContext:
            data = settings.directory / "data" / skill
            return SkillContext(data, local, _variables(settings.skills), home)

        folders = SkillFolders(
            settings.skills,
            samples=lambda: [*map(find, enabled(settings.directory)), *sample_files(settings.samples)],
            make_context=make_context,
        )
        # Importing runs the authors' code, which may be slow.
        await asyncio.to_thread(folders.load)
        own = [expose(InstallationSkill(settings.home))[0]]
        if settings.nodes.is_dir():
            # Few devices have any.
            from spoke.nodes.skill import NodesSkill

            nodes = NodesSkill(settings.nodes)
            attach(nodes, make_context(NodesSkill.__name__))
            own.append(expose(nodes)[0])
        make_process = partial(
            SkillProcess,
            data=settings.directory / "data",
            environments=settings.environments,
            sink=local,
            variables=lambda: _variables(settings.skills),
            zone=settings.household.time_zone,
            home=home,
            runs_triggers=settings.runner.runs_triggers,
        )
        return cls(
            folders,
            own,
            device=device,
            settings=settings.runner,
            sink=local,
            zone=ZoneInfo(settings.household.time_zone),
            make_process=make_process,
        )

    async def __aenter__(self) -> Self:
        self._runner.life.changed = self._note_changes
        await self._runner.__aenter__()
        self._tasks = await self._stack.enter_async_context(open_tasks(contained=True))
        await self._follow_processes()
        # The runner has logged its own, with tracebacks.
        _report([each for each in self.problems if each not in self._runner.problems])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.__aexit__(kind, error, trace)
        await self._stack.aclose()

    async def _follow_processes(self) -> None:
        """Start the processes of skills that have come, end those of skills that have gone."""
        wanted = self._folders.found.isolated if self._make_process is not None else []
        for entry in self._processes.keys() - set(wanted):
            process, task = self._processes.pop(entry)
            task.cancel()
            process.changed = lambda: None
            process.is_own = lambda _: False
            self._forget(process, but=())
        waiting = []
        for entry in wanted:
            if entry not in self._processes and self._make_process is not None:
                process = self._make_process(entry)
                process.changed = partial(self._offer, process)
                process.is_own = partial(self._is_of, process)
                task = self._tasks.create_task(process.run(), name=f"skill {entry.name}")
                self._processes[entry] = process, task
                waiting.append(self._tasks.create_task(process.settled.wait()))
        if waiting:
            await asyncio.wait(waiting, timeout=limits.SKILL_START_S)

    def _forget(self, process: SkillProcess, *, but: Iterable[str]) -> None:
        """Offer skills of a process no longer."""
        for name in [each for each, owner in self._owners.items() if owner is process and each not in but]:
            del self._owners[name]
            self._not_loaded.pop(name, None)
            if name in self._runner.skills:
                self._runner.remove(name)

    def _is_of(self, process: SkillProcess, name: str) -> bool:
        return self._owners.get(name) is process

    def _offer(self, process: SkillProcess) -> None:
        """Offer the skills of a process as they are now."""
        failed = process.unavailable
        self._forget(process, but=(*process.skills, *failed))
        for name in {*process.skills, *failed}:
            if name in HUB_SKILLS or self._owners.setdefault(name, process) is not process:
                self._refuse(name, str(process.entry))
                continue
            for before in (self._not_loaded, self._runner.unavailable):
                before.pop(name, None)
            if name in process.skills:
                self._runner.skills[name] = process.skills[name]
            self._runner.life.troubles.pop(name, None)
            if name in failed and failed[name].kind == "task":
                self._runner.life.troubles[name] = {"": failed[name]}
            elif name in failed:
                place = self._runner.unavailable if name in process.skills else self._not_loaded
                place[name] = failed[name]
        self._note_changes()

    def _refuse(self, name: str, where: str) -> None:
        """Log once that a skill is not offered because another has its name."""
        if (name, where) not in self._refused:
            self._refused.add((name, where))
            _log.warning("not offered: %s: %s is there already (give one another name)", where, name)

    def _note_changes(self) -> None:
        self.expect(self.publishing)
        self.changed()

    @property
    def problems(self) -> list[LoadProblem]:
        kept = (_goes_on(name, why) for name, why in self._kept.items())
        return [*self._found.problems, *self._runner.problems, *kept]

    @property
    def registrations(self) -> list[Registration]:
        """The registrations to publish; complete once the context is entered."""
        skills = self._runner.skills
        kept = {name: Unavailable(kind="saved", reason=why.reason) for name, why in self._kept.items()}
        failed = self._found.outdated | kept | self._runner.life.reasons
        loaded = [
            skill.registration.model_copy(update={"unavailable": failed[name]})
            if name in failed
            else skill.registration
            for name, skill in skills.items()
            if name != INSTALLATION_SKILL
        ]
        not_loaded = self._found.unavailable | self._not_loaded
        return [
            *loaded,
            *(
                Registration(skill=name, unavailable=why, methods=[])
                for name, why in not_loaded.items()
                if name not in skills
            ),
        ]

    @property
    def available(self) -> tuple[str, ...]:
        """Names of the skills that can be called."""
        hidden = {INSTALLATION_SKILL, *self._runner.unavailable}
        return tuple(name for name in self._runner.skills if name not in hidden)

    @property
    def publishing(self) -> tuple[str, ...]:
        # This includes skills that are being set up again.
        return tuple(self._runner.skills)

    async def follow(self) -> None:
        """Load skills again when their files are saved, until cancelled; calls that run go on."""
        while True:
            await asyncio.sleep(limits.SKILLS_LOOK_S)
            await self._runner.settle()
            if await asyncio.to_thread(self._folders.has_changed):
                await self._reload()
                self.changed()

    async def _reload(self) -> None:
        changes = await asyncio.to_thread(self._folders.load)
        problems = changes.problems
        # First, for a folder whose skills run in a process from now on has their names.
        for name in changes.removed:
            self._kept.pop(name, None)
            if name in self._owners and self._owners[name] is None and name not in self._own:
                del self._owners[name]
                self._runner.remove(name)
                _log.info("%s is no longer there", name)
        await self._follow_processes()
        for process, _ in list(self._processes.values()):
            if process.settled.is_set():
                self._offer(process)
        came, put = {id(each) for each in changes.put}, list[LoadedSkill]()
        for skill in self._folders.found.skills:
            # A name may be free that another had.
            if id(skill) in came or skill.name not in self._owners:
                if self._owners.setdefault(skill.name, None) is None:
                    put.append(skill)
                else:
                    self._refuse(skill.name, skill.name)
        self.expect({*self.publishing, *(skill.name for skill in put)})
        for skill in put:
            if skill.name in self._own:
                continue
            self._kept.pop(skill.name, None)
            if why := await self._runner.replace(skill):
                self._kept[skill.name] = why
                problems = [*problems, _goes_on(skill.name, why)]
            elif waits := self._runner.unavailable.get(skill.name):
                _log.warning("%s was loaded: %s", skill.name, waits.text)
            else:
                _log.info("%s was loaded", skill.name)
        self._found = self._folders.found
        _report(problems)

    def admit(self, call: Call, skill: str, method: str) -> None:
        """Check whether a call may run, regardless of its signer.

        Raises:
            CallError: ``busy`` while the spoke stops, ``unknown_skill``, ``refused`` for an actor without
                the right, ``needs_confirmation``.
        """
        path = f"{skill}.{method}"
        if self._is_stopping:
            raise CallError(ErrorCode.BUSY, "its spoke is being stopped", device=self._device)
        flags = self._runner.find(skill, method)[1].contract.flags
        if call.actor.read_only and not flags.read_only:
            raise CallError(
                ErrorCode.REFUSED,
                "{user} has read-only access; {name} modifies state",
                user=call.actor.user,
                name=path,
                hint="Ask a user with full access.",
                device=self._device,
            )
        if flags.confirm and not call.confirmed:
            raise CallError(
                ErrorCode.NEEDS_CONFIRMATION,
                f"{path} needs a confirmation",
                hint="Call it from 'strawberry chat' or 'strawberry call', which ask you.",
                device=self._device,
            )

    async def execute(self, call: Call, skill: str, method: str, progress: ProgressSink) -> Json:
        """Run a call and write one line to the audit log.

        Raises:
            CallError: Where there is no result.
            StillRunning: The call was cancelled, and its method did not stop.
        """
        began = time.monotonic()
        outcome = "stopped"
        self._running += 1
        self._idle.clear()
        try:
            self.admit(call, skill, method)
            result = await self._run(call, skill, method, progress)
            outcome = "ok"
            return result
        except CallError as error:
            outcome = error.code.value
            raise
        except StillRunning:
            outcome = "still running"
            raise
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
            self._record(call, f"{skill}.{method}", outcome, took_s=time.monotonic() - began)

    async def stop(self, *, grace_s: float) -> None:
        """Refuse new calls, and give running ones this long to end."""
        self._is_stopping = True
        if not await happens(self._idle, within_s=grace_s):
            _log.warning("stopping %d calls that still run after %.0f s", self._running, grace_s)

    async def _run(self, call: Call, skill: str, method: str, progress: ProgressSink) -> Json:
        PRESENT_CALL.set(PresentCall(None if call.instance == OWN_INSTANCE else call.id, method))
        is_completed = method == "change_settings" and skill in self._runner.unavailable
        try:
            result = await self._runner.run(
                skill, method, call.args, call.kwargs, confirmed=call.confirmed, progress=progress
            )
            if is_completed:
                self.changed()
            return result
        except NotCancelled as unfinished:
            if unfinished.is_running:
                raise StillRunning(f"{skill}.{method}") from None
            # The cancel came too late: report what really happened.
            return unfinished.result()

    def _record(self, call: Call, path: str, outcome: str, *, took_s: float) -> None:
        if not _AUDIT.isEnabledFor(logging.INFO):
            return
        actor = call.actor
        through = " ".join(
            f"{name}={value}"
            for name in ("device", "agent", "watcher", "timer", "skill", "turn")
            if (value := getattr(actor, name)) is not None
        )
        # A PIN would be found by its hash.
        arguments = hashlib.sha256(to_json(self._runner.shown(path, call.args, call.kwargs))).hexdigest()[:16]
        _AUDIT.info(
            "%s call=%s user=%s %s arguments=%s confirmed=%s outcome=%s ms=%.0f",
            path,
            call.id,
            actor.user,
            through or "directly",
            arguments,
            "yes" if call.confirmed else "no",
            outcome,
            took_s * 1000,
        )


def _variables(folders: Iterable[Path]) -> dict[str, str]:
    """Return the variables of ``.env`` in folders of skills; one that cannot be read is logged."""
    found: dict[str, str] = {}
    for folder in folders:
        if not (folder / KEYS_FILE).is_file():
            continue
        try:
            found |= read_keys(folder, {})
        except ConfigError as error:
            _log.warning("%s (%s)", error, error.hint)
    return found


def _goes_on(name: str, why: Unavailable) -> LoadProblem:
    return LoadProblem(name, why.text, what=GOES_ON.format(name))


def _report(problems: Iterable[LoadProblem]) -> None:
    for problem in problems:
        hint = problem.hint and f" ({problem.hint})"
        _log.warning("%s: %s: %s%s", problem.what, problem.path, problem.message, hint)
