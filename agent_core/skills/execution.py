"""One call of one method: in a thread or in a task, to its end."""

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from agent_core.skills.arguments import check_result
from agent_core.skills.leash import Leash
from agent_core.skills.loaded import LoadedMethod
from agent_core.skills.results import to_json
from agent_core.skills.skill import SkillCancelled, set_cancel_flag
from agent_core.skills.workers import Workers
from contracts.errors import CallError, ErrorCode, StrawberryError
from contracts.wire import Json

ProgressSink = Callable[[Json], Awaitable[None]]
"""Takes what a generator yields, in the event loop."""

_LONGEST_MESSAGE = 500


@dataclass(frozen=True)
class Returned:
    """The method came to its end."""

    value: Json


@dataclass(frozen=True)
class Failed:
    """The method raised, or what it returned cannot be sent."""

    error: CallError


@dataclass(frozen=True)
class Stopped:
    """The method let itself be stopped before its end."""


Outcome = Returned | Failed | Stopped


@dataclass(frozen=True)
class Invocation:
    """What is called.

    Attributes:
        path: ``Skill.method``, for messages.
        method: The method.
        args: Python values by position.
        kwargs: Python values by name.
        progress: Where yielded values go; None drops them.
        max_bytes: Bound of the result, and of each yielded value.
    """

    path: str
    method: LoadedMethod
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    progress: ProgressSink | None
    max_bytes: int


class Execution:
    """A running call. It never raises: how it ended is its outcome."""

    def __init__(self, invocation: Invocation, *, log: logging.Logger) -> None:
        self._invocation = invocation
        self._log = log
        self._flag = threading.Event()
        self._work: asyncio.Future[Outcome] | None = None
        self._leash: Leash | None = None

    def start(self, tasks: asyncio.TaskGroup, workers: Workers) -> None:
        """Begin: an ``async`` method in a task, any other in a thread."""
        context = contextvars.copy_context()
        context.run(set_cancel_flag, self._flag)
        if is_async(self._invocation.method):
            coroutine = self._in_task()
            self._work = tasks.create_task(coroutine, name=self._invocation.path, context=context)
        else:
            loop = asyncio.get_running_loop()
            self._work = workers.submit(lambda: context.run(self._in_thread, loop))

    @property
    def path(self) -> str:
        """What is called: ``Skill.method``."""
        return self._invocation.path

    @property
    def work(self) -> asyncio.Future[Outcome]:
        """Done when the method is, however it ended."""
        if self._work is None:
            raise RuntimeError("the execution was not started")
        return self._work

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it runs."""
        if not self.work.done():
            return None
        return Stopped() if self.work.cancelled() else self.work.result()

    def stop(self) -> None:
        """Ask the method to stop; ``work`` tells when it has."""
        self._flag.set()
        if isinstance(self._work, asyncio.Task):
            self._work.cancel()

    def abandon(self) -> None:
        """Drop an ``async`` method that did not stop, at its next ``await``; a thread cannot be dropped."""
        if self._leash is not None:
            self._leash.cut()
        self.stop()

    async def _in_task(self) -> Outcome:
        call = self._invocation
        try:
            running: Any = call.method.function(*call.args, **call.kwargs)
            self._leash = Leash(self._follow(running) if inspect.isasyncgen(running) else running)
            return Returned(self._result(await self._leash))
        except asyncio.CancelledError:
            return Stopped()
        except BaseException as error:  # noqa: BLE001 - whatever an author's code raises is this call's failure
            return self._failed(error)

    async def _follow(self, generator: AsyncGenerator[Any, Any]) -> Any:
        last: Any = None
        async with aclosing(generator):
            async for last in generator:
                if self._invocation.progress is not None:
                    await self._invocation.progress(self._as_json(last))
        return last

    def _in_thread(self, loop: asyncio.AbstractEventLoop) -> Outcome:
        call = self._invocation
        try:
            if self._flag.is_set():
                return Stopped()
            value: Any = call.method.function(*call.args, **call.kwargs)
            if inspect.isgenerator(value):
                value = self._drain(value, loop)
            return Returned(self._result(value))
        except BaseException as error:  # noqa: BLE001 - whatever an author's code raises is this call's failure
            return self._failed(error)

    def _drain(self, generator: Generator[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
        last: Any = None
        while True:
            try:
                last = next(generator)
            except StopIteration as end:
                return last if end.value is None else end.value
            if self._flag.is_set():
                generator.close()
                raise SkillCancelled
            if self._invocation.progress is not None:
                # Waiting for it slows a generator down to what the bus takes.
                sent = self._send(self._invocation.progress, self._as_json(last))
                asyncio.run_coroutine_threadsafe(sent, loop).result()

    async def _send(self, progress: ProgressSink, value: Json) -> None:
        await progress(value)

    def _result(self, value: object) -> Json:
        result = self._as_json(value)
        check_result(self._invocation.method.contract, result)
        return result

    def _as_json(self, value: object) -> Json:
        what = f"the result of {self._invocation.path}"
        return to_json(value, max_bytes=self._invocation.max_bytes, what=what)

    def _failed(self, error: BaseException) -> Outcome:
        path = self._invocation.path
        if isinstance(error, SkillCancelled):
            return Stopped()
        if isinstance(error, CallError):
            return Failed(error)
        if isinstance(error, StrawberryError):
            return Failed(CallError(ErrorCode.SKILL_ERROR, error.message, hint=error.hint))
        # The traceback stays here: it shows paths and values that are nobody else's business.
        self._log.warning("%s failed", path, exc_info=error)
        text = f"{type(error).__name__}: {error}".rstrip(": ").replace("\n", " ")
        return Failed(CallError(ErrorCode.SKILL_ERROR, text[:_LONGEST_MESSAGE]))


def is_async(method: LoadedMethod) -> bool:
    """Whether the method runs in the event loop."""
    return inspect.iscoroutinefunction(method.function) or inspect.isasyncgenfunction(method.function)
