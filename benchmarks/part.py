"""One part of the benchmarks, in a process of its own: what another part left behind does not slow it.

``python -m benchmarks.part NAME DIRECTORY [--quick]`` leaves the rows, pickled, in ``DIRECTORY/rows``.
"""

import argparse
import asyncio
import importlib
import pickle
import signal
import sys
import traceback
from pathlib import Path
from typing import Final

from benchmarks.measure import Effort
from benchmarks.table import Row, not_measured

PARTS: Final = {
    "bus": "signed calls beside a raw paho echo",
    "sandbox": "python_exec and the sandbox's processes",
    "http_calls": "skill calls over HTTP beside a bare FastAPI echo",
    "replicas": "skill calls over HTTP through three replicas beside one",
    "clients": "many clients of one hub",
    "home": "hub and spoke as processes of their own",
    "agent": "a turn without its model",
    "command_line": "from typing to the request",
    "start": "strawberry up, and mistakes that keep it from starting",
    "search": "search_skills",
    "sentences": "everyday sentences beside plain hassil",
    "database": "PostgreSQL beside SQLite",
    "registry": "a thousand spokes",
    "large_registry": "ten thousand spokes",
    "captures": "ten thousand messages a second into a file",
    "spoke": "one headless spoke",
    "isolation": "skills in processes of their own",
    "wheels": "what an installation downloads",
    "watchers": "200 watchers while nothing happens",
    "home_assistant": "2,000 entities of Home Assistant",
    "web": "the web UI in a browser",
    "large_home": "pages of a home with 1,000 skills",
    "voice": "speech, from sound that is made",
    "adversary": "a person, while a device does its worst",
}
"""Every module with rows, in the order of the table."""

ROWS: Final = "rows"


def measure(name: str, directory: Path, effort: Effort) -> list[Row]:
    """Run one part; one that fails says so in its row."""
    try:
        module = importlib.import_module(f"benchmarks.{name}")
        rows: list[Row] = asyncio.run(module.rows(directory, effort))
    except ModuleNotFoundError as error:
        return [not_measured(f"{name}: {PARTS[name]}", f"the package {error.name} is not installed")]
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one part, the others go on
        traceback.print_exc()
        return [not_measured(f"{name}: {PARTS[name]}", f"failed: {type(error).__name__}: {error}")]
    return rows


def main() -> None:
    """Measure the part that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PARTS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    # Told to stop, it unwinds, and so ends the processes that it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    made = measure(options.name, options.directory, Effort(quick=options.quick))
    (options.directory / ROWS).write_bytes(pickle.dumps(made))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
