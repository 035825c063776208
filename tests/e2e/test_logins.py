"""People and programs look into the bus, as they do with MQTT Explorer and on the command line."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.house import PATIENCE_S, House, Spoke
from tests.mosquitto import HINT, find_mosquitto
from tests.requirements import require

pytestmark = pytest.mark.slow


@pytest.fixture(params=["embedded", "mosquitto"])
def watched(
    request: pytest.FixtureRequest, tmp_path: Path, sandbox_files: Path, journal: dict[str, str]
) -> Iterator[tuple[House, Spoke]]:
    """A house with one spoke on a broker of each kind."""
    require(find_mosquitto() is not None, HINT)
    with House(tmp_path / "house", sandbox=sandbox_files) as house:
        house.start_up("--broker", request.param, "--no-spoke")
        yield house, house.add_spoke("Bedroom PC", journal)


def _printed_lines(house: House, *words: str) -> tuple[str, list[str]]:
    """Run ``broker login``; gives what it prints and the lines for the file of mosquitto_sub."""
    done = house.cli("broker", "login", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r"^  (-\w .+|--cafile .+)$", done.stdout, re.MULTILINE)


def _begin(
    house: House, program: str, lines: list[str], *words: str, into: Path | None = None
) -> "subprocess.Popen[str]":
    """Start a program with these lines where it looks for them, and nothing secret on its command line."""
    folder = house.directory / "config"
    folder.mkdir(exist_ok=True)
    (folder / program).write_text("\n".join(lines) + "\n")
    with contextlib.ExitStack() as stack:
        out = subprocess.PIPE if into is None else stack.enter_context(into.open("w"))
        process = subprocess.Popen(
            [program, *words],
            env=house.environment(house.home, {"XDG_CONFIG_HOME": str(folder)}),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        )
    house.begun.append(process)
    return process


def test_a_login_that_was_granted_it_chats_and_another_does_not(
    watched: tuple[House, Spoke],
) -> None:
    house, _ = watched
    for name, words in (("node-red", ["--chat"]), ("watcher", [])):
        _, lines = _printed_lines(house, name, *words)
        topic = f"hub/chat/{name}"
        exchange = (
            "-t",
            f"{topic}/request/1",
            "-e",
            f"{topic}/reply/1",
            "-m",
            "write me a poem",
            "-W",
            "60" if words else "1",
        )
        version = ("-V", "311" if "-I" in "".join(lines) else "5")
        out, _ = _begin(house, "mosquitto_rr", lines, *exchange, *version).communicate(timeout=PATIENCE_S)
        if words:
            assert "model" in out, "an honest answer: no model is configured"
        else:
            assert out == ""
    assert [row["chat"] for row in house.json("broker", "logins")] == [True, False]
