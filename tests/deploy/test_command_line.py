"""The command line itself, before any hub is asked."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from broker.files import only_one

COMMAND = [sys.executable, "-m", "deploy.cli.main"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRAWBERRY", "HUB_"))}
    return {**kept, "STRAWBERRY_HOME": str(tmp_path / "home"), "PYTHONPATH": str(Path(__file__).parents[2])}


def run(
    environment: dict[str, str], *words: str, shell: str = '"$@"', text: str | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", "-c", shell, "sh", *COMMAND, *words],
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_tells_its_version(environment: dict[str, str]) -> None:
    assert run(environment, "--version").stdout == f"strawberry {version('strawberry-home')}\n"


def test_what_goes_for_every_command_may_stand_before_and_behind_it(environment: dict[str, str]) -> None:
    for words in (("--json", "doctor"), ("doctor", "--json")):
        assert run(environment, *words).stdout.startswith('[{"check": "python"')
    assert "Traceback" in run(environment, "--debug", "devices", "list").stderr
    assert "Traceback" not in run(environment, "devices", "list").stderr


@pytest.mark.parametrize("words", [["chat"], ["exec", "-"], ["devices", "list"]])
def test_a_closed_standard_input_is_an_empty_one(environment: dict[str, str], words: list[str]) -> None:
    done = run(environment, *words, "--hub", "http://127.0.0.1:9", shell='"$@" <&-')
    assert "Traceback" not in done.stderr


def test_a_closed_standard_output_is_no_reason_to_fail(environment: dict[str, str]) -> None:
    done = run(environment, "--version", shell='"$@" >&-')
    assert (done.returncode, done.stderr) == (0, "")


def test_letters_that_the_locale_does_not_know_are_no_error(environment: dict[str, str]) -> None:
    ascii_only = {**environment, "PYTHONIOENCODING": "ascii", "STRAWBERRY_TOKEN": "x"}
    done = run(ascii_only, "devices", "list", "--hub", "Küche")
    assert done.returncode == 1
    assert done.stderr.startswith("strawberry: 'K\\xfcche' is not the address of a hub")
    named = {**ascii_only, "STRAWBERRY_HOME": environment["STRAWBERRY_HOME"] + "ü"}
    assert "\\xfc" in run(named, "doctor").stdout


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://host:port", "mqtt://127.0.0.1:1883"])
def test_an_address_that_is_none_is_told_before_a_token_is_missed(
    environment: dict[str, str], url: str
) -> None:
    done = run(environment, "devices", "list", "--hub", url)
    assert done.returncode == 1
    assert "is not the address of a hub" in done.stderr


@pytest.mark.parametrize("words", [["chat", ""], ["devices", "rename", "pc", " "]])
def test_an_empty_text_is_refused(environment: dict[str, str], words: list[str]) -> None:
    done = run({**environment, "STRAWBERRY_TOKEN": "x"}, *words, "--hub", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "empty" in done.stderr or "needs a name" in done.stderr


def test_a_home_that_cannot_be_made_is_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run({**environment, "STRAWBERRY_HOME": str(tmp_path / "file" / "home")}, "up", "--no-spoke")
    assert done.returncode == 1
    assert done.stderr.startswith(f"strawberry: {tmp_path / 'file'}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "folder", "what"),
    [
        (["up", "--http-port", "0", "--mqtt-port", "0"], "hub", "a hub"),
        (["hub", "--http-port", "0"], "hub", "a hub"),
        (["broker", "run", "--mqtt-port", "0"], "broker", "a broker"),
    ],
)
def test_one_home_is_for_one_hub_and_one_broker_whatever_their_ports(
    environment: dict[str, str], words: list[str], folder: str, what: str
) -> None:
    home = Path(environment["STRAWBERRY_HOME"])
    with only_one(home / folder, what="a test", hint=""):
        done = run(environment, *words)
    assert done.returncode == 1
    assert f"strawberry: {what} runs with {home / folder} already (process {os.getpid()})" in done.stderr
