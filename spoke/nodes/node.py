"""One node: its process, state and health, from start to stop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bus.processes import keep_running, output_of
from contracts.errors import FileProblem
from contracts.phrases import MEMBER, Phrase, with_phrases
from contracts.wire import Json
from spoke import limits
from spoke.nodes.manifest import Manifest, read_manifest
from spoke.nodes.processes import Log, end_marked, started

_log = logging.getLogger(__name__)

State = Literal["stopped", "running", "waiting", "failed", "broken"]
"""``waiting``: it ended and is started again in a moment; ``failed``: it ended and stays so; ``broken``: its
settings cannot be read."""


@dataclass(frozen=True)
class NodeStatus:
    """How a node is.

    Attributes:
        reason: Why it does not run, or that it crashes again and again.
        health: By its command; ``unknown`` where it has none or was not asked yet.
        health_topic: The topic by which the hub sees whether it works, on `health_link`.
        since: Of this state, RFC 3339.
        restarts: Since it was last started by hand.
        phrases: What the reason was made of, for its translation.
    """

    name: str
    state: State
    description: str = ""
    reason: str = ""
    health: Literal["healthy", "unhealthy", "unknown"] = "unknown"
    health_topic: str | None = None
    health_link: str | None = None
    health_every_s: float | None = None
    since: str | None = None
    restarts: int = 0
    pid: int | None = None
    protected: bool = False
    buildable: bool = False
    phrases: dict[str, Json] = field(default_factory=dict)


Tell = Callable[[NodeStatus], None]
"""Called with the status of a node whenever it changes."""


class Node:
    """One node that was started, until it is stopped.

    Args:
        changed: Called whenever its status is another one.
    """

    def __init__(
        self, folder: Path, *, log: Log, mark: str, unit: str | None, changed: Callable[[], None]
    ) -> None:
        self.status = NodeStatus(folder.name, "waiting", since=_now())
        self.begun = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.mark = mark
        self.protected = False
        self._folder = folder
        self._log = log
        self._unit = unit
        self._changed = changed
        self._is_hung = False

    @property
    def is_ending(self) -> bool:
        return self.task is not None and self.task.cancelling() > 0

    async def run(self) -> None:
        """Keep the program running as its settings say, until cancelled."""
        await keep_running(self._run_once, self._wait, wait_s=limits.NODE_RESTART_S, steady_s=limits.STEADY_S)

    async def _run_once(self) -> str | None:
        """Run the program to its end; return why it ended, None where it stays so."""
        if self.status.state == "waiting" and self.begun.is_set():
            self.status = replace(self.status, restarts=self.status.restarts + 1)
        try:
            manifest = read_manifest(self._folder)
            self.protected = manifest.protected
            code = await self._once(manifest)
        except FileProblem as problem:
            self._become("failed", problem.message)
            return None
        except OSError as error:
            self._become("failed", Phrase("cannot be started: {reason}", reason=error.strerror or error))
            return None
        ended = (
            Phrase("ended with code {code}", code=code)
            if code >= 0
            else Phrase("was ended by signal {signal}", signal=-code)
        )
        if self._is_hung:
            return Phrase(
                "was ended: its health command failed {number} times in a row", number=limits.HUNG_CHECKS
            )
        if manifest.restart == "never" or (manifest.restart == "on-failure" and code == 0):
            self._become("stopped" if code == 0 else "failed", ended)
            return None
        return ended

    def _wait(self, ended: str, wait_s: float, early: int) -> None:
        level = logging.WARNING
        if early >= limits.CRASH_LOOP_STARTS:
            level, ended = (
                logging.ERROR,
                Phrase("{ended}, for the {early}th time in a row", ended=ended, early=early),
            )
        self._become(
            "waiting", Phrase("{ended}; it is started again in {seconds:.0f} s", ended=ended, seconds=wait_s)
        )
        _log.log(level, "node %s: %s", self._folder.name, self.status.reason)

    async def _once(self, manifest: Manifest) -> int:
        """Run the program to its end; return its exit code."""
        run = started(
            manifest.command,
            folder=self._folder,
            env=manifest.variables,
            mark=self.mark,
            stop_s=manifest.stop_s,
            unit=self._unit and f"{self._unit}-{self.status.restarts}",
        )
        self._is_hung = False
        async with run as process, asyncio.TaskGroup() as tasks:
            self._become("running", pid=process.pid, health="unknown")
            name = self._folder.name
            reading = tasks.create_task(self._read(output_of(process.stdout)), name=f"output of {name}")
            checking = tasks.create_task(self._check(manifest), name=f"health of {name}")
            try:
                return await process.wait()
            finally:
                self.status = replace(self.status, pid=None)
                checking.cancel()
                # What it left behind may hold its output open.
                await asyncio.shield(end_marked(self.mark, stop_s=manifest.stop_s))
                await asyncio.wait([reading], timeout=limits.LAST_OUTPUT_S)
                reading.cancel()

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            self._log.write(chunk)

    async def _check(self, manifest: Manifest) -> None:
        health = manifest.health
        if health is None or health.command is None:
            return
        has_worked, failed = False, 0
        while failed < limits.HUNG_CHECKS or manifest.restart == "never":
            await asyncio.sleep(health.every_s)
            found: Literal["healthy", "unhealthy"] = "unhealthy"
            with suppress(OSError, TimeoutError):
                run = started(
                    health.command,
                    folder=self._folder,
                    env=manifest.variables,
                    mark=f"{self.mark} health",
                    stop_s=0,
                )
                async with asyncio.timeout(health.every_s), run as process:
                    async for _ in output_of(process.stdout):
                        pass
                    found = "healthy" if await process.wait() == 0 else "unhealthy"
            # One that starts slowly must not be ended before it has ever worked.
            has_worked = has_worked or found == "healthy"
            failed = failed + 1 if has_worked and found == "unhealthy" else 0
            if found != self.status.health:
                self.status = replace(self.status, health=found)
                self._changed()
        self._is_hung = True
        await end_marked(self.mark, stop_s=manifest.stop_s)

    def _become(self, state: State, reason: str = "", **more: Any) -> None:
        since = self.status.since if state == self.status.state else _now()
        phrases = with_phrases({"reason": reason}).get(MEMBER, {})
        self.status = replace(self.status, state=state, reason=reason, phrases=phrases, since=since, **more)
        self.begun.set()
        self._changed()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
