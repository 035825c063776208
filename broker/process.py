"""A broker that is a program of its own: started, watched, started again, and ended with this process."""

import asyncio
import contextlib
import logging
import signal
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from broker import limits
from bus.ports import listen, try_port
from bus.processes import keep_running, lines_of, open_process, output_of, send_signal, terminate, tied
from contracts.addresses import reachable
from contracts.errors import ConfigError
from contracts.rates import TokenBuckets

__all__ = ["BrokerProcess", "free_ports"]

_log = logging.getLogger(__name__)

Endpoint = tuple[str, int]
"""Host, without brackets, and port."""


class BrokerProcess:
    """A program that is kept running.

    Args:
        name: Of the program, for people.
        endpoints: Where it listens once it is ready.
        errors: What its lines about an error contain.
        tells: What those of its lines contain that are logged while it runs.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        endpoints: Sequence[Endpoint],
        *,
        errors: Sequence[str],
        tells: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._command = command
        self._endpoints = endpoints
        self._errors = errors
        self._tells = tells
        self._telling = TokenBuckets(burst=1, per_second=1 / limits.NATS_TOLD_S)
        self._look: Final = f"Start it again with --debug to see the log of {name}."
        self._process: asyncio.subprocess.Process | None = None
        self._said: deque[str] = deque(maxlen=limits.BROKER_LOG_LINES)
        self._ended = asyncio.Event()
        self._was_ready = False
        self._told_to_end = False

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it while the context is open, which is entered when it listens.

        It is started again whenever it ends by itself. On Linux it is tied to the thread that enters, which
        has to be one that lives as long as the process.

        Raises:
            ConfigError: If it does not start.
        """
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._run(), name=f"run {self._name}")
            try:
                await self._wait_ready()
                yield
            except Exception as error:  # noqa: BLE001 - raised below as it is, not wrapped by the task group
                failure = error
            finally:
                watching.cancel()
        _log.info("%s stopped", self._name)
        if failure is not None:
            raise failure

    def restart(self) -> None:
        """End it, so that it starts again at once."""
        if self._process is not None and self.pid is not None:
            self._told_to_end = True
            terminate(self._process)

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            send_signal(self._process, number)

    async def _wait_ready(self) -> None:
        try:
            async with asyncio.timeout(limits.BROKER_START_S):
                for each in self._endpoints:
                    while not await _listens(*each):
                        if self._ended.is_set():
                            raise ConfigError(
                                f"{self._name} does not start: {self._cause()}", hint=self._look
                            )
                        await asyncio.sleep(limits.BROKER_LOOK_S)
        except TimeoutError:
            raise ConfigError(
                f"{self._name} does not listen after {limits.BROKER_START_S:.0f} s", hint=self._look
            ) from None
        self._was_ready = True

    async def _run(self) -> None:
        """Keep it running until cancelled, then end it politely; but not if it never listened."""

        async def run_once() -> str | None:
            try:
                await self._live()
            except OSError as error:  # no room for a process, or the program is just being updated
                self._said.append(f"error: {error}")
            self._ended.set()
            if not self._was_ready:
                return None  # `_wait_ready` raises with the cause
            told, self._told_to_end = self._told_to_end, False
            return "" if told else self._cause()

        def warn(cause: str, delay: float, _: int) -> None:
            _log.warning("%s ended and is started again in %.1f s: %s", self._name, delay, cause)

        await keep_running(
            run_once, warn, wait_s=limits.BROKER_RESTART_S, steady_s=limits.BROKER_HEALTHY_S, jitter=0
        )

    async def _live(self) -> None:
        """Start it, and stay until it has ended."""
        self._said.clear()
        starting = open_process(
            tied(self._command, open_files=limits.BROKER_OPEN_FILES),
            name=self._name,
            stop_s=limits.BROKER_STOP_S,
            stderr=asyncio.subprocess.PIPE,
        )
        async with starting as self._process:
            async for each in lines_of(output_of(self._process.stderr)):
                line = each.rstrip()
                self._said.append(line)
                is_told = any(mark in line and self._telling.take(mark) for mark in self._tells)
                _log.log(logging.WARNING if is_told else logging.DEBUG, "%s: %s", self._name, line)
            await self._process.wait()

    def _cause(self) -> str:
        """Return why it ended: its last line about an error, or else its exit code."""
        errors = [each for each in self._said if any(mark in each for mark in self._errors)]
        if errors:
            return errors[-1]
        code = self._process.returncode if self._process is not None else None
        if code is not None and code < 0:
            return f"by {signal.Signals(-code).name}"
        return f"with exit code {code}"


async def _listens(host: str, port: int) -> bool:
    try:
        await try_port(reachable(host), port)
    except OSError:
        return False
    return True


def free_ports(endpoints: Sequence[Endpoint], *, purpose: str = "MQTT") -> tuple[int, ...]:
    """Choose free ports where any will do, and make sure that the others are free.

    The programs themselves cannot say which one is in their way.

    Raises:
        PortTaken: If another program listens on one of the ports.
    """
    with contextlib.ExitStack() as held:
        # All are held until the last one is known: no two may get the same.
        sockets = [held.enter_context(listen(*each, purpose=purpose)) for each in endpoints]
        return tuple(each.getsockname()[1] for each in sockets)
