"""The process of a skill: started, watched, asked, and started again when it ends."""

import asyncio
import importlib.util
import json
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from agent_core.isolation import boot, messages
from agent_core.isolation.messages import (
    Failure,
    HomeCall,
    Loaded,
    Progress,
    Publish,
    Result,
    SetUp,
    Stopped,
)
from agent_core.skills.availability import unavailable
from agent_core.skills.home import NO_CALL, PRESENT_CALL, HomeCaller, PresentCall
from agent_core.skills.loading.exposure import LoadedSkill
from agent_core.skills.loading.folders import Stamp, stamp_of
from agent_core.skills.loading.loader import REQUIREMENTS, declared_skills
from agent_core.skills.results import to_json
from agent_core.skills.running.execution import ProgressSink, remote_skill
from agent_core.skills.running.triggers import LocalSink
from agent_core.skills.settings import variable_of
from agent_core.skills.skill import TriggerKind
from bus.processes import keep_running, lines_of, output_of
from chat.tasks import open_tasks
from contracts.devices.registration import Unavailable
from contracts.errors import CallError, ConfigError, ErrorCode
from contracts.rates import TokenBucket
from contracts.text import storable
from contracts.wire import Json
from spoke import limits
from spoke.isolation.environment import Environment
from spoke.nodes.processes import end_marked, has_systemd, started, threads_of_user, use_of

_log = logging.getLogger(__name__)

FRAMEWORK: Final = (
    *("agent_core", "contracts", "identity", "spoke", "strawberry_skills"),
    *("pydantic", "pydantic_core", "typing_extensions", "typing_inspection", "annotated_types"),
    "tzdata",
)
"""Modules of this installation that such a process can import; the others are its environment's."""

_Inbox = asyncio.Queue[messages.OfCall | str]


@dataclass(eq=False)
class SkillProcess:
    """The skills of one file or folder, in a process of their own.

    Attributes:
        entry: The file or folder.
        skills: What it offers, by name; known from the first time that it has loaded.
        changed: Called whenever skills are others, or can be called or not.
        is_own: Whether a skill of a name is this one's: another may have come before it.
        settled: Set once it has been set up, or has failed for the first time.
        data: Folder in which each skill has one of its own.
        environments: Folder of the environments of skills.
        variables: Gives those of ``.env``; it gets its own settings only.
        zone: Time zone of the home.
        home: Calls other skills for it.
        runs_triggers: Whether its methods run by themselves.
    """

    entry: Path
    _: KW_ONLY
    data: Path
    sink: LocalSink
    environments: Path
    variables: Callable[[], Mapping[str, str]] = dict
    zone: str = "UTC"
    home: HomeCaller | None = None
    runs_triggers: bool = True
    memory: int = limits.SKILL_MEMORY_BYTES
    processes: int = limits.SKILL_PROCESSES

    def __post_init__(self) -> None:
        self.skills: dict[str, LoadedSkill] = {}
        self.settled = asyncio.Event()
        self.changed: Callable[[], None] = lambda: None
        self.is_own: Callable[[str], bool] = lambda _: True
        self._failed: dict[str, Unavailable] = {}
        self._down: Unavailable | None = unavailable("process", "it has not started")
        self._environment = Environment(self.entry, self.environments)
        self._stdin: asyncio.StreamWriter | None = None
        self._names: frozenset[str] = frozenset()
        self._has_loaded = False
        self._hears: frozenset[tuple[str, str]] = frozenset()
        self._calls: dict[int, _Inbox] = {}
        self._within: dict[int, PresentCall] = {}
        self._home_calls: set[asyncio.Task[None]] = set()
        self._ids = count()
        self._pid = 0
        self._mark = f"skill {os.getpid()} {self.entry}"
        self._fault = ""
        self._last_line = ""
        self._loaded_from: list[Stamp] = []
        self._is_outdated = False

    @property
    def unavailable(self) -> dict[str, Unavailable]:
        """By skill that cannot be called now, why."""
        if self._down is None:
            return self._failed
        return dict.fromkeys(self.skills or declared_skills(self.entry), self._down)

    async def run(self) -> None:
        """Keep it running until cancelled."""
        wait_s, steady_s = limits.SKILL_RESTART_S, limits.STEADY_S
        await keep_running(self._run_once, self._wait, wait_s=wait_s, steady_s=steady_s, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        """Wait until it is to start again, or its files have changed."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, limits.SKILL_WATCH_S))
            if await asyncio.to_thread(self._files) != self._loaded_from:
                break

    def _wait(self, ended: str, wait_s: float, early: int) -> None:
        self._become(unavailable("process", ended))
        _log.warning(
            "the process of %s ended (%s); it starts again in %.0f s", self.entry.name, ended, wait_s
        )

    def _become(self, down: Unavailable | None) -> None:
        self._down = down
        self.settled.set()
        self.changed()

    async def _run_once(self) -> str:
        python = await self._python()
        self._fault = self._last_line = ""
        self._loaded_from = await asyncio.to_thread(self._files)
        has_scopes = await asyncio.to_thread(has_systemd)
        try:
            run = started(
                [*python, boot.__file__, json.dumps(await asyncio.to_thread(self._options))],
                folder=self.entry if self.entry.is_dir() else self.entry.parent,
                env={},
                mark=self._mark,
                stop_s=0,
                unit=f"strawberry-skill-{os.getpid()}-{next(self._ids)}" if has_scopes else None,
                properties=(f"MemoryMax={self.memory}", f"TasksMax={self.processes}", "MemorySwapMax=0"),
                stdin=PIPE,
                stderr=PIPE,
            )
            async with run as process, open_tasks(contained=True) as tasks:
                assert process.stdin is not None
                assert process.stdout is not None
                self._stdin, self._pid = process.stdin, process.pid
                self._names, self._hears, self._has_loaded = frozenset(), frozenset(), False
                output = tasks.create_task(self._log_output(output_of(process.stderr)))
                tasks.create_task(self._read(process.stdout, tasks), name="messages of a skill")
                tasks.create_task(self._watch(process.pid), name="limits of a skill")
                stop_listening = self.sink.listen(self._hear)
                try:
                    await self._send(self._start())
                    code = await process.wait()
                    # What it left behind may hold its output open.
                    await asyncio.shield(end_marked(self._mark, stop_s=0))
                    await asyncio.wait([output], timeout=limits.LAST_OUTPUT_S)
                finally:
                    stop_listening()
                    self._close()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(limits.SKILL_STOP_S):
                            await process.wait()
        except OSError as error:
            return f"it cannot be started: {error.strerror or error}"
        except asyncio.CancelledError:
            self._tell_calls("it is no longer there")
            raise
        finally:
            self._stdin = None
        if self._is_outdated:
            self._is_outdated = False
            return ""
        how = self._fault or (f"code {code}" if code >= 0 else f"signal {-code}")
        if not self._fault and self._last_line:
            how += f": {self._last_line}"
        self._tell_calls(how)
        return how

    def _tell_calls(self, how: str) -> None:
        for inbox in self._calls.values():
            inbox.put_nowait(how)

    async def _python(self) -> list[str]:
        """Wait until its packages are installed, and return the command of its Python."""
        while True:
            try:
                return self._environment.python
            except ConfigError as error:
                why = unavailable("packages", f"{error.message}. {error.hint}")
            if why != self._down:
                _log.warning("%s: %s", self.entry.name, why.reason)
                self._become(why)
            await asyncio.sleep(limits.PACKAGES_LOOK_S)

    def _files(self) -> list[Stamp]:
        files = [self.entry, *(self.entry / name for name in REQUIREMENTS)]
        with suppress(ConfigError):
            files.append(self._environment.lock_file)
        return [stamp_of(each) for each in files]

    def _options(self) -> dict[str, object]:
        modules = {}
        for name in FRAMEWORK:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                folder = Path(spec.origin).parent
                modules[name] = str(folder.parent if spec.submodule_search_locations else folder)
        threads = 0 if os.name == "nt" or os.geteuid() == 0 else threads_of_user()
        return {
            "modules": modules,
            # Beyond what the watch allows: it names the reason.
            "memory": self.memory * 3 // 2,
            # The system counts all threads of the user, and none of root's.
            "processes": threads + self.processes if threads else 0,
        }

    def _start(self) -> messages.Start:
        own = tuple(variable_of(name, "") for name in declared_skills(self.entry))
        variables = {name: value for name, value in self.variables().items() if name.startswith(own)}
        return messages.Start(
            entry=str(self.entry),
            data=str(self.data),
            variables=variables,
            zone=self.zone,
            runs_triggers=self.runs_triggers,
        )

    def _end(self, fault: str) -> None:
        """End it for a fault, with all of its group at once: one by one, they would multiply meanwhile."""
        if self._fault:
            return
        self._fault = fault
        with suppress(OSError):
            if sys.platform == "win32":
                os.kill(self._pid, signal.SIGTERM)
            else:
                os.killpg(self._pid, signal.SIGKILL)

    def _close(self) -> None:
        # At the end of its input it closes its skills and ends.
        if self._stdin is not None:
            self._stdin.close()
            self._stdin = None

    async def _send(self, message: messages.ToChild) -> None:
        if self._stdin is not None:
            if self._stdin.transport.get_write_buffer_size() > limits.SKILL_INPUT_BYTES:
                self._end("it does not read its calls")
            with suppress(OSError):
                self._stdin.write(messages.encoded(message))
                await self._stdin.drain()

    def _hear(self, kind: TriggerKind, source: str, value: Json) -> None:
        """Tell it what it waits for, its own events too; what it does not read in time is lost."""
        if self._stdin is None or (kind, source) not in self._hears:
            return
        if self._stdin.transport.get_write_buffer_size() < limits.SKILL_UNREAD_BYTES:
            self._stdin.write(messages.encoded(messages.Heard(source=(kind, source), value=value)))

    async def _invoke(self, skill: str, method: str, kwargs: dict[str, Json], progress: ProgressSink) -> Json:
        if self._down is not None:
            why = self._down.text
            raise CallError(ErrorCode.OFFLINE, "{skill} is unavailable: {reason}", skill=skill, reason=why)
        number, path = next(self._ids), f"{skill}.{method}"
        inbox = self._calls[number] = _Inbox()
        self._within[number] = PRESENT_CALL.get()
        try:
            await self._send(messages.Invoke(id=number, skill=skill, method=method, kwargs=kwargs))
            try:
                return await self._result(path, inbox, progress)
            except asyncio.CancelledError:
                await self._send(messages.Cancel(id=number))
                return await self._result(path, inbox, None)
        finally:
            del self._calls[number], self._within[number]

    async def _result(self, path: str, inbox: _Inbox, progress: ProgressSink | None) -> Json:
        while True:
            match await inbox.get():
                case Progress() as message:
                    if progress is not None:
                        await progress(message.value)
                    await self._send(messages.Taken(id=message.id))
                case Result() as message:
                    return message.value
                case Failure() as message:
                    raise messages.error_of(message)
                case Stopped():
                    raise asyncio.CancelledError
                case str() as how:
                    text = "{path} may have run: its process ended ({how})"
                    raise CallError(ErrorCode.OUTCOME_UNKNOWN, text, path=path, how=how)

    async def _read(self, stream: asyncio.StreamReader, tasks: asyncio.TaskGroup) -> None:
        """Act on what the process says, until its end or a fault."""
        rate = limits.SKILL_PUBLISHED_PER_SECOND
        published = TokenBucket(burst=10 * rate, per_second=rate)
        with suppress(asyncio.IncompleteReadError, OSError):
            while not self._fault:
                try:
                    frame = await messages.next_frame(stream)
                    self._accept(messages.from_child().validate_json(frame), published, tasks)
                except Exception as error:
                    # Whatever it sends concerns this process only.
                    if isinstance(error, asyncio.IncompleteReadError | OSError):
                        raise
                    text = storable(str(error).partition("\n")[0])
                    self._end(f"it sent a message that cannot be read ({text[:200]})")
        async for _ in output_of(stream):
            pass
        await asyncio.sleep(limits.LAST_OUTPUT_S)
        self._end("it closed its pipe")

    def _accept(self, message: messages.FromChild, published: TokenBucket, tasks: asyncio.TaskGroup) -> None:
        match message:
            case Loaded():
                if self._has_loaded:
                    raise ValueError("its skills twice")
                self._has_loaded = True
                self.skills = {
                    offer.registration.skill: remote_skill(
                        offer.registration, concurrency=offer.concurrency, invoke=self._invoke
                    )
                    for offer in message.skills
                }
                self._names = frozenset(self.skills)
                self._failed = dict(message.unavailable)
                self._hears = frozenset(message.hears)
                for kind, source in message.hears:
                    if kind == "value" and source in self.sink.values:
                        self._hear(kind, source, self.sink.values[source])
                self.changed()
            case SetUp():
                # Each is registered at the hub.
                if not published.take():
                    self._end("its state changed too often")
                known = {name: why for name, why in self._failed.items() if name not in self._names}
                now = {name: why for name, why in message.unavailable.items() if name in self._names}
                self._failed = known | now
                self._become(None)
            case HomeCall():
                if message.skill not in self._names:
                    raise ValueError("a call of another skill")
                if len(self._home_calls) >= limits.SKILL_HOME_CALLS:
                    self._refuse(message)
                    return
                task = tasks.create_task(self._call_home(message))
                self._home_calls.add(task)
                task.add_done_callback(self._home_calls.discard)
            case Publish(publication=publication):
                if publication.skill not in self._names:
                    raise ValueError("a value of another skill")
                if not published.take():
                    self._end("it published too much")
                if self.is_own(publication.skill):
                    self.sink(replace(publication, value=to_json(publication.value)))
            case _:
                inbox = self._calls.get(message.id)
                if inbox is not None and inbox.qsize() < 2:
                    inbox.put_nowait(message)

    def _refuse(self, call: HomeCall) -> None:
        """Answer a call that is one too many, as long as the process reads."""
        if self._stdin is None:
            return
        if self._stdin.transport.get_write_buffer_size() >= limits.SKILL_UNREAD_BYTES:
            raise ValueError("too many calls at once")
        text = "{skill} calls too many others at once"
        busy = CallError(ErrorCode.BUSY, text, skill=call.skill, hint="Wait for some of them.")
        self._stdin.write(messages.encoded(messages.failure_of(call.id, busy)))

    async def _call_home(self, call: HomeCall) -> None:
        """Make a call for a skill, with the rights of the call in which it makes it."""
        reason = ""
        if self.home is None or (call.within is not None and call.within not in self._within):
            reason = "the call in which it is made has ended"
        elif not self.is_own(call.skill):
            reason = "another skill of its name is offered"
        if self.home is None or reason:
            await self._send(messages.failure_of(call.id, CallError(ErrorCode.REFUSED, reason)))
            return
        try:
            within = self._within[call.within] if call.within is not None else NO_CALL
            made = self.home(call.skill, within, call.path, call.args, call.kwargs)
            value = await asyncio.wrap_future(made)
            await self._send(Result(id=call.id, value=value))
        except CallError as error:
            await self._send(messages.failure_of(call.id, error))
        except Exception as error:  # noqa: BLE001 - it must not wait for ever
            _log.exception("a call of %s failed", call.skill)
            await self._send(messages.failure_of(call.id, CallError(ErrorCode.SKILL_ERROR, str(error))))

    async def _log_output(self, chunks: AsyncIterator[bytes]) -> None:
        """Log what the process writes, as far as a log can take it."""
        log = logging.getLogger(f"strawberry.skills.{self.entry.stem}")
        rate, volume = limits.SKILL_OUTPUT_LINES, limits.SKILL_OUTPUT_BYTES
        pace = TokenBucket(burst=10 * rate, per_second=rate)
        left = TokenBucket(burst=volume, per_second=volume / 5)

        async def counted() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                if left.take(len(chunk)):
                    yield chunk
                else:
                    # Read on: a pipe that is not read to its end is never closed.
                    self._end("it printed too much")

        async with aclosing(lines_of(counted())) as lines:
            async for line in lines:
                if text := storable(line.strip()[: limits.SKILL_LINE]):
                    self._last_line = text
                    if pace.take():
                        log.info("%s", text)

    async def _watch(self, pid: int) -> None:
        """Wait until the process has ended, or it and what it has started take too much."""
        before = self._loaded_from
        while not self._fault:
            await asyncio.sleep(limits.SKILL_WATCH_S)
            processes, memory = await asyncio.to_thread(use_of, pid)
            if not processes:
                break
            files = await asyncio.to_thread(self._files)
            if files != self._loaded_from and files == before and not self._calls:
                self._is_outdated = True
                self._become(unavailable("process", "it is loaded again"))
                self._close()
                await asyncio.sleep(limits.SKILL_STOP_S)
                break
            before = files
            if processes > self.processes:
                self._end(f"it had {processes} processes, more than {self.processes}")
            elif memory > self.memory:
                self._end(f"it took {memory // 1024**2:,} MiB, more than {self.memory // 1024**2:,}")
        # What it has started may hold its pipes open, by which it seems to run.
        await end_marked(self._mark, stop_s=0)
