"""A ``strawberry`` command whose event loops are watched: how long one works before it looks at its sockets.

Run as a module it is the command. A busy machine fails nothing. What counts is processor time of the loop's
thread; apart, that of the whole process, as another thread may hold the interpreter's lock; and the time in
which the loop's thread slept, for a lock, a name or a process, while the thread that watches it ran and no
other worked or waited for a processor. Waiting for the disk does not count, as it depends on the machine.
"""

import json
import os
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

MODULE: Final = "tests.adversary.watched"

MOST_S: Final = 0.25
"""How long a loop may work, or wait for anything but its sockets, before it looks at them again."""

_WORTH_S: Final = 0.025
"""Shorter rounds of the loop are not written down, however many there are."""
_LOOK_S: Final = 0.02
_STACK_S: Final = 0.1
"""A round that takes longer has its stack taken."""
_ENDLESS_S: Final = 2.0
"""A round that takes longer is written down before it ends."""
_DEPTH: Final = 16


@dataclass(frozen=True)
class Round:
    """What a loop did between two looks at its sockets.

    Attributes:
        at: When it ended, in seconds since the epoch.
        work_s: Processor time of the loop's thread.
        process_s: Processor time of all threads, but never more than passed.
        waited_s: Time in which the loop's thread slept, and not for the work of another.
        stack: What it was at, where it took long enough to be looked at.
    """

    at: float
    work_s: float
    process_s: float
    waited_s: float = 0
    stack: str = ""

    @property
    def blocked_s(self) -> float:
        """How long the loop was kept from its sockets by what runs in it."""
        return self.work_s + self.waited_s

    def __str__(self) -> str:
        work, waited, process = (1000 * each for each in (self.work_s, self.waited_s, self.process_s))
        times = f"{work:.0f} ms of work, {waited:.0f} ms of waiting ({process:.0f} ms in all threads)"
        return f"{times}\n{self.stack}"


def rounds(home: Path, pid: int, *, since: float = 0) -> list[Round]:
    """Return the long rounds that a watched process has had since a time."""
    file = _file(home, pid)
    lines = file.read_text().splitlines() if file.exists() else []
    return [each for line in lines if (each := Round(**json.loads(line))).at >= since]


def longest(found: Iterable[Round]) -> Round:
    """Return the round that blocked its loop longest; an empty one where there is none."""
    return max(found, key=lambda each: each.blocked_s, default=Round(0, 0, 0))


def watch_loops(home: Path) -> None:
    """Watch every event loop that this process makes from now on."""

    class Selector(selectors.DefaultSelector):
        """The system's; it knows when a loop comes back to it."""

        _watch: _Watch | None = None

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
            if self._watch is None:
                self._watch = _Watch(_file(home, os.getpid()))
            self._watch.end()
            ready = super().select(timeout)
            self._watch.begin()
            return ready

    selectors.DefaultSelector = Selector


class _Watch:
    """Measures the rounds of one loop, in the thread of that loop."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._thread = threading.get_ident()
        self._begun: tuple[float, float, float] | None = None
        self._stack = ""
        self._waited = 0.0
        self._stat = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
        if sys.platform == "linux":
            threading.Thread(target=self._look, name="watch the loop", daemon=True).start()

    def begin(self) -> None:
        self._stack, self._waited = "", 0.0
        self._begun = time.perf_counter(), time.thread_time(), time.process_time()

    def end(self) -> None:
        if self._begun is None:
            return
        (passed, work, process), self._begun = self._begun, None
        passed = time.perf_counter() - passed
        if passed >= _WORTH_S:
            self._write(passed, time.thread_time() - work, time.process_time() - process)

    def _write(self, passed: float, work: float, process: float) -> None:
        process, waited = min(passed, process), max(0.0, self._waited)
        if process + waited >= _WORTH_S:
            done = Round(time.time(), work, process, waited, self._stack)
            with self._file.open("a") as file:
                file.write(json.dumps(asdict(done)) + "\n")

    def _look(self) -> None:
        clock, written = time.pthread_getcpuclockid(self._thread), None
        seen, at, busy = None, 0.0, 0.0
        while True:
            time.sleep(_LOOK_S)
            begun = self._begun
            if begun is None:
                continue
            was_seen, last, was_busy = begun is seen, at, busy
            delay = _delay()
            seen, at, busy = begun, time.perf_counter(), time.process_time() + (delay or 0.0)
            if delay is not None and was_seen and self._sleeps() and self._begun is begun:
                # A look that comes late tells of the machine.
                self._waited += min(at - last, 2 * _LOOK_S) - max(0.0, busy - was_busy)
            passed = at - begun[0]
            if passed < _STACK_S:
                continue
            frame = sys._current_frames().get(self._thread)
            self._stack = "".join(traceback.format_list(traceback.extract_stack(frame)[-_DEPTH:]))
            if passed > _ENDLESS_S and begun is not written:
                written = begun
                self._write(passed, time.clock_gettime(clock) - begun[1], time.process_time() - begun[2])

    def _sleeps(self) -> bool:
        """Return whether the loop's thread neither runs, nor could, nor waits for the disk."""
        return self._stat.read_text().rpartition(")")[2].split()[0] == "S"


def _delay() -> float | None:
    """Return how long the threads have waited for a processor, in seconds; None if that is not counted."""
    ran = waited = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            times = (thread / "schedstat").read_text().split()
            ran, waited = ran + int(times[0]), waited + int(times[1])
    return waited / 1e9 if ran else None


def _file(home: Path, pid: int) -> Path:
    return home / f"rounds-{pid}.jsonl"


if __name__ == "__main__":
    watch_loops(Path(os.environ["STRAWBERRY_HOME"]))
    from deploy.cli.main import main

    raise SystemExit(main())
