"""``make bench``: measure everything, and print it as a table and as JSON.

Progress goes to standard error. A part that fails, or lacks a server, says so in its row, and the
others go on.
"""

import argparse
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.part import PARTS, ROWS
from benchmarks.table import Row, as_json, as_table, not_measured

_PATIENCE_S: Final = 1_200
"""How long one part may take; speech takes the longest, some eight minutes on two cores."""

_GRACE_S: Final = 10
"""How long a part that is ended may take to end its own processes."""

_INTERRUPTED: Final = 130


class _Interrupt:
    """Ctrl-C: ends the part that runs, in its own way, and lets no other begin."""

    def __init__(self) -> None:
        self.asked = False
        self._part: subprocess.Popen[bytes] | None = None

    def __call__(self, *_: object) -> None:
        self.asked = True
        if self._part is not None:
            self._part.terminate()

    def follow(self, part: "subprocess.Popen[bytes]") -> None:
        """Take the part that runs now."""
        self._part = part
        if self.asked:
            part.terminate()


def main() -> int:
    """Run what the command line asks for.

    Returns:
        The exit code: 0, 1 where something could not be measured, 130 after Ctrl-C.
    """
    options = _parser().parse_args()
    interrupt = _Interrupt()
    signal.signal(signal.SIGINT, interrupt)
    rows: list[Row] = []
    for name in options.only or PARTS:
        made = _run(name, interrupt, quick=options.quick)
        if interrupt.asked:
            break
        rows += made
    if rows:
        _print(rows, options.json)
    if interrupt.asked:
        return _INTERRUPTED
    # A server that is not installed is no failure; a part that broke is one.
    return int(any(row.problem.startswith("failed") for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Strawberry on this machine.",
        epilog="Parts: " + "; ".join(f"{name} ({about})" for name, about in PARTS.items()) + ".",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON here, not after the table")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", help="only these parts")
    parser.add_argument(
        "--quick", action="store_true", help="a few repetitions: shows that it runs, not how fast"
    )
    return parser


def _run(name: str, interrupt: _Interrupt, *, quick: bool) -> list[Row]:
    print(f"{name}: {PARTS[name]} …", file=sys.stderr, flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"strawberry-bench-{name}-", ignore_cleanup_errors=True) as place:
        rows = _measured(name, Path(place), interrupt, quick=quick)
    print(f"{name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return rows


def _measured(name: str, directory: Path, interrupt: _Interrupt, *, quick: bool) -> list[Row]:
    command = [sys.executable, "-m", "benchmarks.part", name, str(directory), *(["--quick"] if quick else [])]
    problem = ""
    # In a session of its own it hears of Ctrl-C from here alone, and so do the processes that it
    # started. What they print is no part of the result.
    with subprocess.Popen(command, stdout=sys.stderr, start_new_session=True) as process:
        interrupt.follow(process)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            problem = f"failed: not done after {_PATIENCE_S} s"
            _end(process)
    try:
        rows: list[Row] = pickle.loads((directory / ROWS).read_bytes())
    except OSError:
        problem = problem or f"failed: its process ended with code {process.returncode}"
        return [not_measured(f"{name}: {PARTS[name]}", problem)]
    return rows


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a part, and give it time to end what it has started."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _print(rows: list[Row], file: Path | None) -> None:
    print(as_table(rows), flush=True)
    if file is None:
        print(f"\n{as_json(rows)}", flush=True)
    else:
        file.write_text(as_json(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
