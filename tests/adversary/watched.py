"""A ``strawberry`` command whose event loops are watched: how long one works before it looks at its sockets.

Run as a module it is the command. Only work counts, so that a busy machine fails nothing: processor time of
the loop's thread and, apart, of the whole process, as another thread may hold the interpreter's lock.
"""

import json
import os
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

MODULE: Final = "tests.adversary.watched"

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
        stack: What it was at, where it took long enough to be looked at.
    """

    at: float
    work_s: float
    process_s: float
    stack: str = ""

    def __str__(self) -> str:
        return f"{1000 * self.work_s:.0f} ms ({1000 * self.process_s:.0f} ms in all threads)\n{self.stack}"


def rounds(home: Path, pid: int, *, since: float = 0) -> list[Round]:
    """Return the long rounds that a watched process has had since a time."""
    file = _file(home, pid)
    lines = file.read_text().splitlines() if file.exists() else []
    return [each for line in lines if (each := Round(**json.loads(line))).at >= since]


def longest(found: Iterable[Round]) -> Round:
    """Return the round of most work; one without any where there is none."""
    return max(found, key=lambda each: each.work_s, default=Round(0, 0, 0))


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
        threading.Thread(target=self._look, name="watch the loop", daemon=True).start()

    def begin(self) -> None:
        self._stack = ""
        self._begun = time.perf_counter(), time.thread_time(), time.process_time()

    def end(self) -> None:
        if self._begun is None:
            return
        (passed, work, process), self._begun = self._begun, None
        passed = time.perf_counter() - passed
        if passed >= _WORTH_S:
            self._write(passed, time.thread_time() - work, time.process_time() - process)

    def _write(self, passed: float, work: float, process: float) -> None:
        process = min(passed, process)
        if process >= _WORTH_S:
            done = Round(time.time(), work, process, self._stack)
            with self._file.open("a") as file:
                file.write(json.dumps(asdict(done)) + "\n")

    def _look(self) -> None:
        clock, written = time.pthread_getcpuclockid(self._thread), None
        while True:
            time.sleep(_LOOK_S)
            begun = self._begun
            if begun is None or (passed := time.perf_counter() - begun[0]) < _STACK_S:
                continue
            frame = sys._current_frames().get(self._thread)
            self._stack = "".join(traceback.format_list(traceback.extract_stack(frame)[-_DEPTH:]))
            if passed > _ENDLESS_S and begun is not written:
                written = begun
                self._write(passed, time.clock_gettime(clock) - begun[1], time.process_time() - begun[2])


def _file(home: Path, pid: int) -> Path:
    return home / f"rounds-{pid}.jsonl"


if __name__ == "__main__":
    watch_loops(Path(os.environ["STRAWBERRY_HOME"]))
    from deploy.cli.main import main

    raise SystemExit(main())
