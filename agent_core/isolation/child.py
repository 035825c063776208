"""The process of a skill: loads it, sets it up, and runs the calls that come over the pipe."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from zoneinfo import ZoneInfo

from agent_core.isolation import messages
from agent_core.isolation.messages import Cancel, Failure, Heard, Invoke, Result, Start, Taken
from agent_core.skills.home import PRESENT_CALL, PresentCall
from agent_core.skills.loading.loader import load_entry
from agent_core.skills.results import Publication, to_json
from agent_core.skills.running.execution import ProgressSink
from agent_core.skills.running.runner import NotCancelled, RunnerSettings, SkillRunner
from agent_core.skills.running.triggers import LocalSink
from agent_core.skills.skill import SkillContext
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json

_log = logging.getLogger(__name__)


class _Pipe:
    """The pipe to the device, for any thread; also where states and events go."""

    def __init__(self, read: int, write: int) -> None:
        self._read = os.fdopen(read, "rb", buffering=64 * 1024)
        self._write = write
        self._lock = threading.Lock()

    def send(self, message: messages.FromChild) -> None:
        frame = memoryview(messages.encoded(message))
        with self._lock:
            while frame:
                frame = frame[os.write(self._write, frame) :]

    def next(self) -> messages.ToChild | None:
        """Return the next message; None at the end."""
        length = int.from_bytes(self._read.read(messages.HEAD), "big")
        body = self._read.read(length)
        return messages.to_child().validate_json(body) if body else None

    def publish(self, publication: Publication) -> None:
        self.send(messages.Publish(publication=publication))


class _Home:
    """Calls other skills of the home, through the device; see ``HomeCaller``."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._ids = count()
        self._open: dict[int, Future[Json]] = {}

    def __call__(
        self,
        skill: str,
        within: PresentCall,
        path: Sequence[str],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> Future[Json]:
        number, (args, kwargs) = next(self._ids), to_json([list(args), dict(kwargs)])
        answer = self._open[number] = Future()
        call = None if within.id is None else int(within.id)
        self._pipe.send(
            messages.HomeCall(
                id=number, skill=skill, within=call, path=list(path), args=list(args), kwargs=dict(kwargs)
            )
        )
        return answer

    def settle(self, message: Result | Failure) -> None:
        answer = self._open.pop(message.id, None)
        if answer is None or not answer.set_running_or_notify_cancel():
            return
        if isinstance(message, Result):
            answer.set_result(message.value)
        else:
            answer.set_exception(messages.error_of(message))


def run(read: int, write: int) -> None:
    """Serve until the pipe is closed."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    pipe = _Pipe(read, write)
    start = pipe.next()
    if isinstance(start, Start):
        asyncio.run(_serve(pipe, start))


async def _serve(pipe: _Pipe, start: Start) -> None:
    sink, home, data = LocalSink(pipe.publish), _Home(pipe), Path(start.data)
    found = load_entry(
        Path(start.entry),
        make_context=lambda skill: SkillContext(data / skill, pipe.publish, start.variables, home),
    )
    for each in found.problems:
        _log.warning("%s: %s: %s (%s)", each.what, each.path, each.message, each.hint)
    offers = [messages.Offer(registration=e.registration, concurrency=e.concurrency) for e in found.skills]
    waits = [trigger for each in found.skills for trigger, _ in each.triggers]
    hears: list[messages.Source] = [
        (each.kind, each.source) for each in waits if each.kind in ("event", "value")
    ]
    pipe.send(messages.Loaded(skills=offers, unavailable=found.unavailable, hears=hears))
    settings = RunnerSettings(runs_triggers=start.runs_triggers)
    async with SkillRunner(found.skills, settings=settings, sink=sink, zone=ZoneInfo(start.zone)) as runner:

        def tell() -> None:
            pipe.send(messages.SetUp(unavailable=runner.life.reasons))

        tell()
        runner.life.changed = tell
        await _Calls(pipe, runner, sink, home).serve()


@dataclass(eq=False)
class _Calls:
    """The calls that run."""

    pipe: _Pipe
    runner: SkillRunner
    sink: LocalSink
    home: _Home
    running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    taken: dict[int, asyncio.Event] = field(default_factory=dict)

    async def serve(self) -> None:
        """Run what comes until the pipe is closed."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            threading.Thread(target=self._read, args=(loop, tasks, ended), daemon=True).start()
            await ended.wait()
            for task in self.running.values():
                task.cancel()

    def _read(self, loop: asyncio.AbstractEventLoop, tasks: asyncio.TaskGroup, ended: asyncio.Event) -> None:
        # A thread, since pipes of Windows cannot be waited for in an event loop of the process that got them.
        while (message := self.pipe.next()) is not None:
            loop.call_soon_threadsafe(self._accept, tasks, message)
        loop.call_soon_threadsafe(ended.set)

    def _accept(self, tasks: asyncio.TaskGroup, message: messages.ToChild) -> None:
        match message:
            case Invoke():
                self.running[message.id] = tasks.create_task(self._run(message))
            case Cancel() if (running := self.running.get(message.id)) is not None:
                running.cancel()
            case Heard():
                self.sink.tell(*message.source, message.value)
            case Result() | Failure():
                self.home.settle(message)
            case Taken() if (taken := self.taken.get(message.id)) is not None:
                taken.set()

    async def _run(self, call: Invoke) -> None:
        taken = self.taken[call.id] = asyncio.Event()
        PRESENT_CALL.set(PresentCall(str(call.id), call.method))

        async def progress(value: Json) -> None:
            taken.clear()
            self.pipe.send(messages.Progress(id=call.id, value=value))
            await taken.wait()

        try:
            self.pipe.send(await self._outcome(call, progress))
        finally:
            del self.running[call.id], self.taken[call.id]

    async def _outcome(self, call: Invoke, progress: ProgressSink) -> messages.FromChild:
        try:
            try:
                value = await self.runner.run(
                    call.skill, call.method, kwargs=call.kwargs, confirmed=True, progress=progress
                )
            except NotCancelled as unfinished:
                value = await unfinished.outcome()
            return Result(id=call.id, value=value)
        except asyncio.CancelledError:
            return messages.Stopped(id=call.id)
        except CallError as error:
            if error.exception == MemoryError.__name__:
                # The next allocation may be one of ours.
                os.write(2, b"out of memory\n")
                os._exit(1)
            return messages.failure_of(call.id, error)
        except Exception as error:  # noqa: BLE001 - the call is answered whatever happened
            _log.exception("%s.%s failed", call.skill, call.method)
            return Failure(id=call.id, code=ErrorCode.SKILL_ERROR, message=str(error)[: messages.LONGEST])
