"""The runner behind ``make bench``: what it prints is well formed. How fast anything is, no test asserts."""

import importlib
import inspect
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.measure import Effort
from benchmarks.part import PARTS, measure
from benchmarks.soak import memory_mb
from benchmarks.table import Reach, Row, as_json, as_table, not_measured

ROOT = Path(__file__).parents[2]
FIELDS = {"work", "project", "reference", "ratio", "unit", "reach", "reached", "problem"}


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_a_quick_run_prints_a_table_and_then_json() -> None:
    done = run("--quick", "--only", "command_line")

    assert done.returncode == 0, done.stderr
    table, _, document = done.stdout.partition("\n\n")
    assert table.startswith("work ")
    assert "strawberry chat: process start to request sent" in table
    (row,) = json.loads(document)
    assert set(row) == FIELDS
    assert row["project"] > 0
    assert row["ratio"] == pytest.approx(row["project"] / row["reference"])
    assert row["reach"] == "≤ 120 ms"


def test_a_part_that_fails_says_so_in_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Its home is in the way already, so this part cannot make one.
    (tmp_path / "hub").touch()

    (row,) = measure("command_line", tmp_path, Effort(quick=True))

    assert row.project is None
    assert row.problem.startswith("failed: FileExistsError")
    assert "Traceback" in capsys.readouterr().err
    assert row.problem in as_table([row])


def test_every_part_is_a_module_with_rows() -> None:
    for name in PARTS:
        assert inspect.iscoroutinefunction(importlib.import_module(f"benchmarks.{name}").rows)


@pytest.mark.parametrize(
    ("row", "text", "reached"),
    [
        (Row("a", 1.0, "ms", Reach(most=2)), "≤ 2 ms", True),
        (Row("a", 3.0, "ms", Reach(most=2)), "≤ 2 ms", False),
        (Row("a", 9.0, "ms", Reach(ratio_most=2.5), reference=3.0), "≤ 2.5 ×", False),
        (
            Row("a", 4000.0, "/s", Reach(ratio_least=0.3, least=3000), reference=9000.0),
            "≥ 0.3 ×, ≥ 3,000 /s",
            True,
        ),
        (
            Row("a", 2000.0, "/s", Reach(ratio_least=0.3, least=3000), reference=5000.0),
            "≥ 0.3 ×, ≥ 3,000 /s",
            False,
        ),
        (Row("a", 1.0, "ms"), "", None),
        (not_measured("a", "Mosquitto is not installed"), "", None),
    ],
)
def test_a_row_knows_whether_it_reaches_its_number(row: Row, text: str, reached: bool | None) -> None:
    made: list[dict[str, Any]] = json.loads(as_json([row]))

    assert made[0]["reach"] == text
    assert made[0]["reached"] is reached


def test_the_table_keeps_its_columns_in_line() -> None:
    rows = [Row("short", 12_345.0, "/s"), Row("a much longer name", 0.5, "ms", reference=0.25)]

    head, ruler, first, second = as_table(rows).splitlines()

    assert len(ruler.split()) == 6
    assert "12,345" in first
    assert first.index("/s") == second.index("ms") == head.index("unit")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages were written")
def test_memory_is_what_a_process_has_written_without_pages_of_files(tmp_path: Path) -> None:
    file = tmp_path / "read"
    with file.open("wb") as opened:
        opened.write(bytes(50 * 1024**2))
        os.fdatasync(opened.fileno())  # `os.fsync` does nothing in tests
    before = memory_mb(psutil.Process())
    with file.open("r+b") as read, mmap.mmap(read.fileno(), 0) as pages:
        assert sum(pages[:: mmap.PAGESIZE]) == 0
        assert memory_mb(psutil.Process()) - before < 5
    written = bytearray(b"x") * (20 * 1024**2)
    assert memory_mb(psutil.Process()) - before > 15
    del written


@pytest.mark.slow
def test_a_soak_shows_what_a_home_holds_over_time() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Memory is private (dirty pages).\n")
    head, _, *lines = (line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line[:1] == "|")
    assert (head[0], head[2], len(lines)) == ("minutes", "hub, MB", 16)
    first, last = (dict(zip(head, line, strict=True)) for line in (lines[0], lines[-1]))
    assert int(last["acts"]) > int(first["acts"])
    assert int(last["turns"]) > int(first["turns"])
    assert "\n0 of" in done.stdout
