"""A hub whose event loop hangs: it ends, says where, and is there again."""

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.house import House, wait_for

pytestmark = pytest.mark.slow


def test_a_hub_that_hangs_says_where_and_starts_again_but_not_one_that_was_stopped(
    tmp_path: Path, sandbox_files: Path
) -> None:
    program = [sys.executable, "-m", "tests.e2e.hanging"]
    with House(tmp_path / "house", sandbox=sandbox_files, program=program) as home:
        home.start_up("--no-spoke")
        home.send("up", signal.SIGSTOP)
        time.sleep(8)  # more than the watch allows a loop
        home.send("up", signal.SIGCONT)
        wait_for(home.healthy, what="the hub to go on")

        home.send("up", signal.SIGUSR1)
        wait_for(lambda: home.log("up").count("Ready") == 2 or home.ended("up"), what="the next one")
        assert home.healthy()
        assert home.json("devices", "list") == []
        assert home.log("up").count("the event loop has not turned") == 1
        assert "in wait_without_end, from" in home.log("up")
