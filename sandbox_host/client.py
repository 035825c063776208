"""One sandbox process: started, spoken to line by line, and killed."""

import asyncio
import logging
import secrets
import signal
from collections import deque
from typing import Final

from bus.processes import kill, open_process, tied
from contracts.answers.skills import RunStatus
from contracts.errors import CallError, ErrorCode, InvalidMessage, SandboxError
from sandbox_host import messages
from sandbox_host.calls import CallHandler, Calls
from sandbox_host.install import Installed, bare_environment, private_cache
from sandbox_host.limits import (
    MAX_LINE_BYTES,
    MAX_REPORT_BYTES,
    MAX_STRAYS,
    MAX_UNSENT_BYTES,
    MEMORY_CHECK_SECONDS,
    RUN_SECONDS,
    STDERR_LINES_KEPT,
    Deadline,
    RunLimits,
)
from sandbox_host.messages import Call, CallAnswer, Done, Output, Ready, Run
from sandbox_host.result import RunResult

_log = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""A start takes a third of a second; a Raspberry Pi under load may need much longer."""


class Interpreter:
    """A sandbox process. It runs one program at a time and keeps its variables between them.

    Attributes:
        reason: Why it ended, in a few words; empty while it runs programs, or will soon.
    """

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self._process: asyncio.subprocess.Process | None = None
        # Set when it can run programs, and when it has ended.
        self._settled = asyncio.Event()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self._running: _Running | None = None
        self._strays = 0
        self.reason = ""

    @property
    def alive(self) -> bool:
        return not self.reason

    def start(self, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
        return tasks.create_task(self._keep(), name="sandbox process")

    def kill(self, reason: str) -> None:
        """End the process now, or as soon as it has been started.

        Args:
            reason: Why, in a few words; the first one given is kept.
        """
        self.reason = self.reason or reason
        if self._process is not None:
            kill(self._process)

    async def ready(self) -> None:
        """Wait until the process can run programs.

        Raises:
            SandboxError: If it ends first, or takes too long.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._settled.wait()
        except TimeoutError:
            self.kill("it did not start in time")
        if not self.alive:
            last = self._stderr[-1] if self._stderr else self.reason
            raise SandboxError(f"the sandbox did not start: {last}", hint="run `strawberry doctor`")

    async def run(
        self, code: str, handler: CallHandler, *, limits: RunLimits, deadline: Deadline | None = None
    ) -> RunResult:
        """Run one program.

        A run that is cancelled, or does not keep its limits, takes the process with it.

        Args:
            code: Python source; ``await`` may stand at its top level.
            handler: Makes the program's calls.
            limits: What it may use.
            deadline: Its clock; by default one of a minute.

        Returns:
            How it ended, with what it printed until then.

        Raises:
            SandboxError: If a program is running already, or the process has ended.
        """
        if self._running is not None or not self.alive:
            raise SandboxError("the sandbox process cannot run a program now", hint="open another session")
        if len(code.encode("utf-8", "replace")) > limits.code_bytes:
            problem = f"the program is larger than {limits.code_bytes} bytes"
            return RunResult(RunStatus.ERROR, problem=problem)
        clock = deadline or Deadline(RUN_SECONDS)
        try:
            async with asyncio.TaskGroup() as tasks:
                calls = Calls(handler, limits=limits, tasks=tasks, answer=self._send)
                running = self._running = _Running(limits, calls)
                self._send(
                    Run(
                        run=running.id,
                        code=code,
                        output=limits.output_bytes,
                        value=limits.value_bytes,
                        arguments=limits.argument_bytes,
                    )
                )
                watcher = tasks.create_task(self._watch_memory(running), name="sandbox memory")
                try:
                    async with clock.enforced():
                        await asyncio.wait([running.result])
                except TimeoutError:
                    self.kill("the last run was stopped at its time limit")
                    running.stop(RunStatus.TIMEOUT, f"the run was stopped after {clock.seconds:g} s")
                finally:
                    if running.open:
                        # Before its calls are: it would go on making others until the last of them has ended.
                        self.kill("the last run was cancelled")
                        running.stop(RunStatus.CRASHED, self.reason)
                    watcher.cancel()
                    calls.cancel()
            if self.alive and self._is_over(limits.memory_bytes):
                # It ended between two looks of the watcher.
                self.kill("the last run used up its memory")
            return running.result.result()
        finally:
            self._running = None

    async def _keep(self) -> None:
        """Start the process and read what it sends until it has ended."""
        try:
            async with private_cache(self._installed) as cache:
                if not self.alive:
                    return
                running = open_process(
                    tied(self._installed.command(), ends_by=signal.SIGKILL),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=bare_environment(cache),
                    limit=MAX_LINE_BYTES,
                )
                async with running as self._process:
                    try:
                        if not self.alive:
                            kill(self._process)
                        async with asyncio.TaskGroup() as tasks:
                            tasks.create_task(self._read_log(self._process), name="sandbox log")
                            await self._read_lines(self._process)
                    finally:
                        self._end("it was closed")
        except Exception as error:  # noqa: BLE001 - one bad process must not take the others with it
            _log.exception("a sandbox process failed")
            self.reason = self.reason or str(error) or type(error).__name__
        finally:
            self._settled.set()

    async def _read_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while (line := await process.stdout.readline()) and self.alive:
                self._take(line)
        except ValueError:
            self._abuse(f"a line of more than {MAX_LINE_BYTES} bytes")
        except InvalidMessage as error:
            self._abuse(error.message)
        # One that was killed on purpose has a reason already.
        if self.alive and not self._settled.is_set():
            _log.error("the sandbox did not start: %s", "\n".join(self._stderr) or "it ended without a word")
        self._end("the interpreter died" if self._running is None else "the interpreter died in the last run")

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last lines that Deno itself writes, for the day it does not start."""
        assert process.stderr is not None
        while piece := await process.stderr.read(4096):
            self._stderr.extend(piece.decode(errors="replace").splitlines())

    def _end(self, reason: str) -> None:
        """Kill the process, if it is still there, and end its run."""
        died = self.alive
        self.kill(reason)
        if self._running is not None:
            why = (
                "os._exit, os.system, a very deep recursion or very deep data end it" if died else self.reason
            )
            self._running.stop(RunStatus.CRASHED, f"the interpreter died: {why}")

    def _send(self, message: Run | CallAnswer) -> None:
        # The pipe's transport takes what the process does not read yet, so that no task here ever waits
        # for it: a process that waits until we read, while we wait until it reads, would wait for ever.
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(messages.write(message))
        if self._process.stdin.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._abuse("it does not take the answers to its calls")

    def _take(self, line: bytes) -> None:
        message = messages.read(line)
        running = self._running if self._running is not None and self._running.open else None
        if isinstance(message, Ready):
            if self._settled.is_set():
                raise InvalidMessage("it said ready twice")
            self._settled.set()
        elif running is None or not secrets.compare_digest(message.run.encode(), running.id.encode()):
            self._refuse_stray(message)
        elif isinstance(message, Call):
            running.calls.accept(message, len(line))
        elif isinstance(message, Output):
            running.add_output(message)
        else:
            self._finish(running, message, len(line))

    def _refuse_stray(self, message: Call | Output | Done) -> None:
        """Refuse a line of a run that is over, or never was."""
        self._strays += 1
        if self._strays > MAX_STRAYS:
            raise InvalidMessage("it goes on calling after its run")
        if isinstance(message, Call):
            refusal = CallError(ErrorCode.REFUSED, "the run of this call is over")
            _log.warning("refused %.100s: it belongs to no run", message.path)
            self._send(CallAnswer(id=message.id, body=messages.error_body(refusal)))

    def _finish(self, running: "_Running", done: Done, size: int) -> None:
        if size > running.limits.value_bytes + MAX_REPORT_BYTES:
            raise InvalidMessage(f"a report of {size} bytes")
        if done.left_over:
            self.kill("tasks of the last run could not be stopped")
        if done.status == "memory":
            # The variables that fill it would still be there, and no later run would have any room.
            self.kill("the last run used up its memory")
        running.finish(done)

    def _abuse(self, what: str) -> None:
        _log.warning("sandbox process killed: %s", what)
        self.kill("the last run broke the rules of the bridge")
        if self._running is not None:
            self._running.stop(RunStatus.ABUSE, f"the run was stopped: {what}")

    async def _watch_memory(self, running: "_Running") -> None:
        # The interpreter's own memory is capped by V8; this is for what lies outside of it, such as
        # buffers of the JavaScript engine and files in the in-memory file system.
        limit = running.limits.memory_bytes
        while True:
            await asyncio.sleep(MEMORY_CHECK_SECONDS)
            if self._is_over(limit):
                self.kill("the last run was stopped at its memory limit")
                running.stop(RunStatus.MEMORY, f"the run was stopped at {limit // 2**20} MB of memory")
                return

    def _is_over(self, memory_bytes: int) -> bool:
        import psutil

        assert self._process is not None
        try:
            return psutil.Process(self._process.pid).memory_info().rss > memory_bytes
        except psutil.NoSuchProcess:
            return False


class _Running:
    """The program that is running now."""

    def __init__(self, limits: RunLimits, calls: Calls) -> None:
        # Lines of another run cannot carry it: it is new for each run, and cannot be guessed.
        self.id = secrets.token_hex(8)
        self.limits = limits
        self.calls = calls
        self.result: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()
        self._output: list[str] = []
        self._output_bytes = 0
        self._cut = False

    @property
    def open(self) -> bool:
        return not self.result.done()

    def add_output(self, output: Output) -> None:
        """Keep a piece of what was printed.

        Raises:
            InvalidMessage: If it is more than the process was allowed to send.
        """
        # A byte that belongs to no character comes as a replacement character, of three bytes.
        self._output_bytes += len(output.text.replace("\ufffd", "?").encode())
        if self._output_bytes > self.limits.output_bytes:
            raise InvalidMessage(f"more output than the {self.limits.output_bytes} bytes of the cap")
        self._output.append(output.text)
        self._cut = self._cut or output.cut

    def finish(self, done: Done) -> None:
        """Settle the result of a program that ran to its end."""
        value, plain = None, True
        try:
            value = done.plain_value()
        except InvalidMessage:
            plain = False
        self._settle(
            RunResult(
                RunStatus(done.status),
                stdout=self._stdout(),
                value=value,
                repr=done.repr,
                plain=plain,
                traceback=done.traceback,
                truncated=done.cut or self._cut,
            )
        )

    def stop(self, status: RunStatus, problem: str) -> None:
        self._settle(RunResult(status, stdout=self._stdout(), problem=problem, truncated=self._cut))

    def _settle(self, result: RunResult) -> None:
        if self.open:
            self.result.set_result(result)

    def _stdout(self) -> str:
        text = "".join(self._output)
        return f"{text}\n[output cut at {self.limits.output_bytes} bytes]\n" if self._cut else text
