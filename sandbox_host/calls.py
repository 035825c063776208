"""The calls of one run: counted, slowed down, bounded, and cancelled with it."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from contracts.errors import CallError, ErrorCode, InvalidMessage
from contracts.rates import TokenBucket
from contracts.wire import Json
from sandbox_host.limits import MOST_REFUSALS, RunLimits
from sandbox_host.messages import Call, CallAnswer, error_body

CallHandler = Callable[[str, list[Json], dict[str, Json]], Awaitable[Json]]
"""Makes one call: path, positional and named arguments in, JSON value out; raises ``CallError``."""

_log = logging.getLogger(__name__)


class Calls:
    """The calls of one run."""

    def __init__(
        self,
        handler: CallHandler,
        *,
        limits: RunLimits,
        tasks: asyncio.TaskGroup,
        answer: Callable[[CallAnswer], None],
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._tasks = tasks
        self._answer = answer
        self._free = asyncio.Semaphore(limits.calls_in_flight)
        self._pace = TokenBucket(burst=limits.calls_per_second, per_second=limits.calls_per_second)
        self._open: set[asyncio.Task[None]] = set()
        self._count = 0
        self._last_id = 0
        self._pending = 0

    def accept(self, call: Call, size: int) -> None:
        """Begin a call, or answer that it is one too many.

        Args:
            call: The call.
            size: Bytes of the line it came in.

        Raises:
            InvalidMessage: If no honest program sends such a call: an id used before, or a flood.
        """
        if call.id <= self._last_id:
            raise InvalidMessage(f"call {call.id} came after call {self._last_id}")
        self._last_id = call.id
        self._count += 1
        # Not the line: it holds them as text, in which every quote takes one byte more.
        if (given := len(call.given.encode())) > self._limits.argument_bytes:
            raise InvalidMessage(f"a call with {given} bytes of arguments")
        if self._pending + size > self._limits.pending_bytes:
            raise InvalidMessage(f"calls of more than {self._limits.pending_bytes} bytes at once")
        if self._count > self._limits.calls + MOST_REFUSALS:
            raise InvalidMessage(f"{self._count} calls in one run")
        if self._count > self._limits.calls:
            text = f"this program has made all the {self._limits.calls} calls that it may make"
            self.refuse(call, ErrorCode.BUSY, text, "ask for more at once, or go on in another run")
            return
        if not call.names_a_method:
            text = f"{call.path[:80]!r} is not the path of a method"
            self.refuse(call, ErrorCode.UNKNOWN_SKILL, text, "call devices.<key>.<Skill>.<method>(...)")
            return
        try:
            args, kwargs = call.arguments()
        except InvalidMessage as error:
            text = f"the arguments of {call.path} are not plain data: {error.message}"
            self.refuse(call, ErrorCode.BAD_ARGUMENTS, text, "pass flat lists and dicts")
            return
        self._pending += size
        making = self._make(call, args, kwargs, size)
        task = self._tasks.create_task(making, name=f"sandbox call {call.path}")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    def refuse(self, call: Call, code: ErrorCode, message: str, hint: str = "") -> None:
        self._answer(CallAnswer(id=call.id, body=error_body(CallError(code, message, hint=hint))))

    def cancel(self) -> None:
        for task in self._open:
            task.cancel()

    async def _make(self, call: Call, args: list[Json], kwargs: dict[str, Json], size: int) -> None:
        try:
            async with self._free:
                if wait_s := self._pace.reserve():
                    await asyncio.sleep(wait_s)
                body = self._body(call.path, await self._handler(call.path, args, kwargs))
        except CallError as error:
            body = error_body(error)
        except Exception:  # noqa: BLE001 - whatever goes wrong here, the program gets an answer
            _log.exception("the handler of %s failed", call.path)
            body = error_body(CallError(ErrorCode.SKILL_ERROR, f"{call.path} failed inside Strawberry"))
        finally:
            self._pending -= size
        self._answer(CallAnswer(id=call.id, body=body))

    def _body(self, path: str, value: Json) -> str:
        try:
            body = json.dumps({"value": value}, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise CallError(
                ErrorCode.SKILL_ERROR, f"the result of {path} is not plain data: {error}"
            ) from None
        if len(body) > self._limits.answer_bytes:
            raise CallError(
                ErrorCode.TOO_LARGE,
                f"the result of {path} has {len(body)} bytes; {self._limits.answer_bytes} are the limit",
                hint="ask for less at once",
            )
        return body
