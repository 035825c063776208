"""One call of one method, in a thread, in a task or elsewhere, to its end."""

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NoReturn, TypeVar

from agent_core.schemas.arguments import bind, check_result
from agent_core.skills.availability import secrets_of, traceback_of, without
from agent_core.skills.loading.exposure import LoadedMethod, LoadedSkill
from agent_core.skills.results import to_json
from agent_core.skills.schema import MethodSchema
from agent_core.skills.skill import SkillCancelled, set_cancel_flag
from agent_core.skills.skill_loop import SkillLoop, Work, settle
from contracts.devices.registration import Method, Registration
from contracts.errors import CallError, ErrorCode, StrawberryError
from contracts.text import storable
from contracts.wire import Json

ProgressSink = Callable[[Json], Awaitable[None]]
"""Takes what a generator yields, in the event loop."""

Invocation = Callable[[str, str, dict[str, Json], ProgressSink], Awaitable[Json]]
"""Calls a method: skill, method, arguments by name, and what takes its progress."""

T = TypeVar("T")

_LONGEST_MESSAGE = 500


@dataclass(frozen=True)
class RemoteSchema(MethodSchema):
    """A contract without the types behind it."""

    def coerce(self, args: Sequence[Json], kwargs: Mapping[str, Json]) -> tuple[list[Any], dict[str, Any]]:
        return [], bind(self.contract, args, kwargs)


@dataclass(frozen=True)
class RemoteMethod(LoadedMethod):
    """A method whose function takes arguments by name, as a dictionary, and a sink of progress."""


@dataclass(eq=False)
class Execution:
    """One call of one method: its ``work`` ends with a result, with a ``CallError``, or cancelled.

    Attributes:
        path: ``Skill.method``, for messages.
        args: Python values by position.
        kwargs: Python values by name.
        progress: Takes yielded values; None drops them.
        max_bytes: Bound of the result, and of each yielded value.
        loop: Of the skill, where it has one of its own.
        deadline: When its time is over, in the clock of the running loop.
    """

    path: str
    method: LoadedMethod
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    _: KW_ONLY
    progress: ProgressSink | None
    max_bytes: int
    loop: SkillLoop | None = None
    deadline: float = field(init=False)
    _home: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _flag: threading.Event = field(default_factory=threading.Event, init=False)
    _work: asyncio.Future[Json] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.deadline = asyncio.get_running_loop().time() + self.allowed_s

    @property
    def allowed_s(self) -> float:
        return self.method.contract.timeout_ms / 1000

    def start(self) -> None:
        """Begin: an ``async`` method in a task, any other in a thread; both belong to who calls this.

        No task group: one that does not let itself be stopped would keep it from ending.
        """
        context = contextvars.copy_context()
        context.run(set_cancel_flag, self._flag)
        loop = self._home = asyncio.get_running_loop()
        if self.method.is_async and self.loop is not None:
            self._work = self.loop.submit(self._in_task(), name=self.path, context=context)
        elif self.method.is_async:
            self._work = loop.create_task(self._in_task(), name=self.path, context=context)
        else:
            self._work = in_thread(lambda: context.run(self._in_thread, loop), name=self.path)

    @property
    def work(self) -> asyncio.Future[Json]:
        """Done when the method is, however it ended."""
        if self._work is None:
            raise RuntimeError("the execution was not started")
        return self._work

    def stop(self) -> None:
        """Ask the method to stop; ``work`` is done when it has."""
        self._flag.set()
        if isinstance(self._work, asyncio.Task):
            self._work.cancel()
        elif isinstance(self._work, Work):
            self._work.stop()

    async def _in_task(self) -> Json:
        try:
            if isinstance(self.method, RemoteMethod):
                return self._result(await self.method.function(self.kwargs, self._pass_on))
            running: Any = self.method.function(*self.args, **self.kwargs)
            value = await (self._follow(running) if inspect.isasyncgen(running) else running)
            return self._result(value)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever an author's code raises is this call's failure
            self._fail(error)

    async def _pass_on(self, value: Json) -> None:
        if self.progress is None or self._home is None:
            return
        sent = self._send(self.progress, self._as_json(value))
        if asyncio.get_running_loop() is self._home:
            await sent
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sent, self._home))

    async def _follow(self, generator: AsyncGenerator[Any, Any]) -> Any:
        last: Any = None
        async with aclosing(generator):
            async for last in generator:
                await self._pass_on(last)
        return last

    def _in_thread(self, loop: asyncio.AbstractEventLoop) -> Json:
        if self._flag.is_set():
            raise asyncio.CancelledError
        try:
            value: Any = self.method.function(*self.args, **self.kwargs)
            if inspect.isgenerator(value):
                value = self._drain(value, loop)
            return self._result(value)
        except BaseException as error:  # noqa: BLE001 - whatever an author's code raises is this call's failure
            self._fail(error)

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
            if self.progress is not None:
                # Waiting for it slows a generator down to what the bus takes.
                sent = self._send(self.progress, self._as_json(last))
                asyncio.run_coroutine_threadsafe(sent, loop).result()

    async def _send(self, progress: ProgressSink, value: Json) -> None:
        await progress(value)

    def _result(self, value: object) -> Json:
        result = self._as_json(value)
        check_result(self.method.contract, result)
        return result

    def _as_json(self, value: object) -> Json:
        what = f"the result of {self.path}"
        return to_json(value, max_bytes=self.max_bytes, what=what)

    def _fail(self, error: BaseException) -> NoReturn:
        if isinstance(error, SkillCancelled):
            raise asyncio.CancelledError
        if isinstance(error, CallError):
            raise error
        if isinstance(error, StrawberryError):
            raise CallError(ErrorCode.SKILL_ERROR, error.message, hint=error.hint) from error
        # The traceback stays here: it shows paths and values that concern this device only.
        log = logging.getLogger(f"strawberry.skills.{self.path.partition('.')[0]}")
        instance = getattr(self.method.function, "__self__", None)
        log.warning("%s failed%s", self.path, traceback_of(error, instance))
        text = without(secrets_of(instance), str(error)).strip().replace("\n", " ") or f"{self.path} failed"
        # The name of a file may hold what no message can be sent with.
        text = storable(text[:_LONGEST_MESSAGE])
        raise CallError(ErrorCode.SKILL_ERROR, text, exception=type(error).__name__) from None


def in_thread(function: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run a function in a daemon thread of its own.

    ``asyncio.to_thread`` will not do: the interpreter waits for its threads when it ends, and a skill that
    never returns would keep the spoke from ending. How many there are is bounded by the caller.

    Returns:
        A future of the running loop; cancelling it does not stop the function.
    """
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def run() -> None:
        ended = concurrent.futures.Future[T]()
        try:
            ended.set_result(function())
        except asyncio.CancelledError:
            ended.cancel()
        except BaseException as error:  # noqa: BLE001 - the future has it
            ended.set_exception(error)
        settle(future, ended)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def remote_skill(registration: Registration, *, concurrency: int, invoke: Invocation) -> LoadedSkill:
    """Return a skill whose calls are passed on."""

    def method(contract: Method) -> RemoteMethod:
        async def function(arguments: dict[str, Json], progress: ProgressSink) -> Json:
            return await invoke(registration.skill, contract.name, arguments, progress)

        return RemoteMethod(RemoteSchema(contract, {}, {}), function, None)

    methods = {contract.name: method(contract) for contract in registration.methods}
    return LoadedSkill(registration.skill, object(), methods, registration, concurrency)
