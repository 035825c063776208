"""The process of a skill: started, watched, asked, and started again when it ends."""

import asyncio
import importlib.util
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import psutil

from agent_core.isolation import boot
from agent_core.isolation.messages import (
    Cancel,
    Failure,
    FromChild,
    Invoke,
    Loaded,
    OfCall,
    Progress,
    Publication,
    Result,
    SetUp,
    Start,
    Stopped,
    Taken,
    ToChild,
    encoded,
    from_child,
    next_frame,
)
from agent_core.skills.availability import unavailable
from agent_core.skills.loader import LoadedSkill, LoadProblem, declared_skills
from agent_core.skills.remote import remote_skill
from agent_core.skills.results import to_json
from agent_core.skills.skill import SkillSink
from bus.processes import keep_running, lines_of, output_of
from contracts.devices.registration import Unavailable
from contracts.errors import CallError, ErrorCode
from contracts.rates import TokenBucket
from contracts.text import storable
from contracts.wire import Json
from spoke import limits
from spoke.nodes.processes import end_marked, has_systemd, started

_log = logging.getLogger(__name__)

FRAMEWORK: Final = (
    *("agent_core", "contracts", "identity", "spoke", "strawberry_skills"),
    *("pydantic", "pydantic_core", "typing_extensions", "typing_inspection", "annotated_types"),
)
"""Modules of this installation that such a process can import; the others are its environment's."""


@dataclass
class _Call:
    inbox: asyncio.Queue[OfCall] = field(default_factory=asyncio.Queue)
    ended: str = ""


class SkillProcess:
    """The skills of one file or folder, in a process of their own.

    Attributes:
        entry: The file or folder.
        skills: What it offers, by name; known from the first time that it has loaded.
        problems: What of it does not work.
        reason: Why it does not run now; empty while it does.
        changed: Called whenever skills or reason are others.
        settled: Set once it has been set up, or has ended for the first time.

    Args:
        data: Folder in which each skill has one of its own.
        python: Gives the command of the Python of its environment.
    """

    def __init__(
        self,
        entry: Path,
        *,
        data: Path,
        sink: SkillSink,
        python: Callable[[], Awaitable[list[str]]],
        memory: int = limits.SKILL_MEMORY_BYTES,
        processes: int = limits.SKILL_PROCESSES,
    ) -> None:
        self.entry = entry
        self.skills: dict[str, LoadedSkill] = {}
        self.problems: list[LoadProblem] = []
        self.reason = "it has not started"
        self._failed: dict[str, Unavailable] = {}
        self.settled = asyncio.Event()
        self._data = data
        self._sink = sink
        self._python = python
        self.changed: Callable[[], None] = lambda: None
        self._memory = memory
        self._processes = processes
        self._stdin: asyncio.StreamWriter | None = None
        self._names: frozenset[str] = frozenset()
        self._calls: dict[int, _Call] = {}
        self._ids = count()
        self._pid = 0
        self._mark = f"skill {os.getpid()} {entry}"
        self._fault = ""
        self._last_line = ""

    @property
    def unavailable(self) -> dict[str, Unavailable]:
        """By skill that cannot be called now, why."""
        if not self.reason:
            return self._failed
        why = unavailable("process", self.reason)
        return dict.fromkeys(self.skills or declared_skills(self.entry), why)

    async def run(self) -> None:
        """Keep it running until cancelled."""
        await keep_running(
            self._run_once, self._wait, wait_s=limits.SKILL_RESTART_S, steady_s=limits.STEADY_S
        )

    def _wait(self, ended: str, wait_s: float, early: int) -> None:
        self.reason = ended
        _log.warning(
            "the process of %s %s; it is started again in %.0f s", self.entry.name, self.reason, wait_s
        )
        self.settled.set()
        self.changed()

    async def _run_once(self) -> str:
        self._fault = self._last_line = ""
        try:
            command, has_scopes = await self._command(), await asyncio.to_thread(has_systemd)
            run = started(
                command,
                folder=self.entry if self.entry.is_dir() else self.entry.parent,
                env={},
                mark=self._mark,
                stop_s=0,
                unit=f"strawberry-skill-{os.getpid()}-{next(self._ids)}" if has_scopes else None,
                properties=(f"MemoryMax={self._memory}", f"TasksMax={self._processes}", "MemorySwapMax=0"),
                stdin=PIPE,
                stderr=PIPE,
            )
            async with run as process, asyncio.TaskGroup() as tasks:
                assert process.stdin is not None
                assert process.stdout is not None
                self._stdin, self._names, self._pid = process.stdin, frozenset(), process.pid
                output = tasks.create_task(self._log_output(output_of(process.stderr)))
                work = [
                    output,
                    tasks.create_task(self._read(process.stdout)),
                    tasks.create_task(self._watch(process.pid)),
                ]
                try:
                    await self._send(Start(entry=str(self.entry), data=str(self._data)))
                    code = await process.wait()
                    # What it left behind may hold its output open.
                    await asyncio.shield(end_marked(self._mark, stop_s=0))
                    await asyncio.wait([output], timeout=limits.LAST_OUTPUT_S)
                finally:
                    for task in work:
                        task.cancel()
        except OSError as error:
            return f"cannot be started: {error.strerror or error}"
        finally:
            self._stdin = None
        how = self._fault or (f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}")
        if not self._fault and self._last_line:
            how += f": {self._last_line}"
        self._give_up(how)
        return how

    async def _command(self) -> list[str]:
        threads = 0 if os.name == "nt" or os.geteuid() == 0 else await asyncio.to_thread(_threads_of_user)
        options = {
            "modules": _framework(),
            # Beyond what the watch allows: it names the reason.
            "memory": self._memory * 3 // 2,
            "processes": threads + self._processes if threads else 0,
        }
        return [*(await self._python()), boot.__file__, json.dumps(options)]

    def _end(self, fault: str) -> None:
        if not self._fault:
            self._fault = f"was ended: {fault}"
            _kill(self._pid)

    def _give_up(self, how: str) -> None:
        for call in self._calls.values():
            call.ended = how
            call.inbox.put_nowait(Stopped(id=0))

    async def _send(self, message: ToChild) -> None:
        if self._stdin is None:
            return
        with suppress(OSError):
            self._stdin.write(encoded(message))
            await self._stdin.drain()

    async def _invoke(
        self,
        skill: str,
        method: str,
        kwargs: dict[str, Json],
        progress: Callable[[Json], Awaitable[None]],
    ) -> Json:
        if self._stdin is None or self.reason:
            why = unavailable("process", self.reason).text
            raise CallError(ErrorCode.OFFLINE, "{skill} is unavailable: {reason}", skill=skill, reason=why)
        number, call = next(self._ids), _Call()
        self._calls[number] = call
        try:
            await self._send(Invoke(id=number, skill=skill, method=method, kwargs=kwargs))
            try:
                return await self._follow(f"{skill}.{method}", call, progress)
            except asyncio.CancelledError:
                await self._send(Cancel(id=number))
                return await self._follow(f"{skill}.{method}", call, None)
        finally:
            del self._calls[number]

    async def _follow(
        self, path: str, call: _Call, progress: Callable[[Json], Awaitable[None]] | None
    ) -> Json:
        """Return the result of a call."""
        while True:
            message = await call.inbox.get()
            if call.ended:
                raise CallError(
                    ErrorCode.OUTCOME_UNKNOWN,
                    "{path} may have run: its process {how}",
                    path=path,
                    how=call.ended,
                )
            match message:
                case Progress():
                    if progress is not None:
                        await progress(message.value)
                    await self._send(Taken(id=message.id))
                case Result():
                    return message.value
                case Failure():
                    raise CallError(
                        message.code,
                        "{text}",
                        text=storable(message.message),
                        hint=storable(message.hint),
                        exception=storable(message.exception),
                    )
                case Stopped():
                    raise asyncio.CancelledError

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Act on what the process says, until its end or a fault."""
        published = TokenBucket(
            burst=10 * limits.SKILL_PUBLISHED_PER_SECOND, per_second=limits.SKILL_PUBLISHED_PER_SECOND
        )
        with suppress(asyncio.IncompleteReadError, OSError):
            while not self._fault:
                try:
                    message = from_child().validate_json(await next_frame(stream))
                    self._accept(message, published)
                except (ValueError, CallError) as error:
                    text = storable(str(error).partition("\n")[0])
                    self._end(f"it sent a message that cannot be read ({text[:200]})")
        await asyncio.sleep(limits.LAST_OUTPUT_S)
        self._end("it closed its pipe")

    def _accept(self, message: FromChild, published: TokenBucket) -> None:
        match message:
            case Loaded():
                if self._names:
                    raise ValueError("its skills twice")
                self._offer(message)
            case SetUp():
                self.problems += [LoadProblem(**each.model_dump()) for each in message.problems]
                self._failed |= message.unavailable
                self.reason = ""
                self.settled.set()
                self.changed()
            case Publication():
                if message.skill not in self._names:
                    raise ValueError("a value of another skill")
                if not published.take():
                    self._end("it published too much")
                self._publish(message)
            case _:
                call = self._calls.get(message.id)
                if call is not None and call.inbox.qsize() < 2:
                    call.inbox.put_nowait(message)

    def _offer(self, loaded: Loaded) -> None:
        self.problems = [LoadProblem(**each.model_dump()) for each in loaded.problems]
        self._failed = dict(loaded.unavailable)
        self.skills = {
            offer.registration.skill: remote_skill(
                offer.registration, concurrency=offer.concurrency, invoke=self._invoke
            )
            for offer in loaded.skills
        }
        self._names = frozenset(self.skills)

    def _publish(self, message: Publication) -> None:
        value = to_json(message.value)
        match message.kind:
            case "state":
                self._sink.publish_state(
                    message.skill,
                    message.name,
                    value,
                    unit=message.unit,
                    device_class=message.device_class,
                )
            case "clear":
                self._sink.clear_state(message.skill, message.name)
            case "event":
                self._sink.publish_event(message.skill, message.name, value)

    async def _log_output(self, chunks: AsyncIterator[bytes]) -> None:
        """Log what the process writes, as far as a log can take it."""
        log = logging.getLogger(f"strawberry.skills.{self.entry.stem}")
        rate = limits.SKILL_OUTPUT_LINES
        pace, volume = (
            TokenBucket(burst=10 * rate, per_second=rate),
            TokenBucket(burst=limits.SKILL_OUTPUT_BYTES, per_second=limits.SKILL_OUTPUT_BYTES / 5),
        )

        async def counted() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                if not volume.take(len(chunk)):
                    self._end("it printed too much")
                    return
                yield chunk

        async with aclosing(lines_of(counted())) as lines:
            async for line in lines:
                if text := storable(line.strip()[: limits.SKILL_LINE]):
                    self._last_line = text
                    if pace.take():
                        log.info("%s", text)

    async def _watch(self, pid: int) -> None:
        """Wait until the process and what it has started take too much."""
        while not self._fault:
            await asyncio.sleep(limits.SKILL_WATCH_S)
            processes, memory = await asyncio.to_thread(_use_of, pid)
            if not processes:
                break
            if processes > self._processes:
                self._end(f"it had {processes} processes, more than {self._processes}")
            elif memory > self._memory:
                self._end(f"it took {memory // 1024**2:,} MiB, more than {self._memory // 1024**2:,}")
        # What it has started may hold its pipes open, by which it seems to run.
        await end_marked(self._mark, stop_s=0)


def _framework() -> dict[str, str]:
    """Return the folder of each module that a skill's process may import from here."""
    found = {}
    for name in FRAMEWORK:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            found[name] = str(origin.parent.parent if spec.submodule_search_locations else origin.parent)
    return found


async def this_python() -> list[str]:
    """Return the command of a Python without packages."""
    return [sys.executable, "-I", "-S", "-u"]


def _kill(pid: int) -> None:
    """End a process with all of its group at once: one after the other, they would multiply meanwhile."""
    with suppress(OSError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL)


def _use_of(pid: int) -> tuple[int, int]:
    """Return how many processes there are from this one on, and the memory of all of them."""
    processes = memory = 0
    with suppress(psutil.Error):
        main = psutil.Process(pid)
        for each in (main, *main.children(recursive=True)):
            with suppress(psutil.Error):
                used = each.memory_info()
                processes += 1
                memory += used.rss - getattr(used, "shared", 0)
    return processes, memory


def _threads_of_user() -> int:
    user, threads = os.getuid(), 0
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.uids().real == user:
                threads += each.num_threads()
    return threads
