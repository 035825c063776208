"""A forked ``strawberry`` command behaves to its parent as a new interpreter does."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.forkserver import COMMAND

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks commands")


def test_it_is_forked_and_its_output_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("strawberry ")
    assert subprocess.run([*COMMAND, "no-such"], capture_output=True).returncode == 2


def test_it_has_the_environment_that_it_is_given(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = subprocess.run(
        [*COMMAND, "devices", "list"],
        env={**os.environ, "STRAWBERRY_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 1
    assert str(home) in done.stdout


async def test_it_can_be_ended_by_a_signal_also_as_a_process_of_asyncio(tmp_path: Path) -> None:
    words = [*COMMAND, "broker", "run", "--mqtt-port", "0"]
    environment = {**os.environ, "STRAWBERRY_HOME": str(tmp_path / "home")}
    running = await asyncio.create_subprocess_exec(
        *words, env=environment, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert running.stdout is not None
    assert b"127.0.0.1" in await running.stdout.readline()
    assert psutil.Process(running.pid).ppid() == os.getpid()
    assert "tests.forkserver" in psutil.Process(running.pid).cmdline()
    assert os.getsid(running.pid) == os.getpgid(running.pid) == running.pid
    running.kill()
    assert await running.wait() == -signal.SIGKILL


def test_it_sees_a_terminal_and_is_interrupted_there(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    words = [*COMMAND, "broker", "run", "--mqtt-port", "0"]
    environment = {**os.environ, "STRAWBERRY_HOME": str(tmp_path / "home")}
    with subprocess.Popen(words, env=environment, stdin=slave, stdout=slave, stderr=slave) as running:
        os.close(slave)
        assert b"127.0.0.1" in os.read(master, 1000)
        running.send_signal(signal.SIGINT)
    os.close(master)
    assert running.returncode in (0, 130)


def test_a_directory_that_is_missing_is_an_error_of_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        subprocess.run([*COMMAND, "--version"], cwd=tmp_path / "missing")


def test_a_command_with_variables_of_the_interpreter_is_a_new_one(tmp_path: Path) -> None:
    profile = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run([*COMMAND, "--version"], env=profile, capture_output=True, text=True)
    assert "import time:" in done.stderr
