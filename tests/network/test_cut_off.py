"""Two spokes on machines of their own, cut off and back: every call is right.

Everything goes over TLS, as between the machines of a home.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.directory import Home
from tests.e2e.house import House, Spoke, wait_for
from tests.network.wires import Machine, Network, why_not
from tests.ports import free_port

pytestmark = pytest.mark.slow

SKILL = '''
"""Writes down what really ran."""
import os
import time
from pathlib import Path

from spoke import Skill, skill_method

FILE = Path(__file__).with_name("journal.txt")


class JournalSkill(Skill):
    """Keeps a journal."""

    @skill_method()
    def write(self, text: str, wait_for: str = "") -> str:
        """Write a line, and wait until there is a file of that name."""
        self._note(text)
        while wait_for and not FILE.with_name(wait_for).exists():
            time.sleep(0.02)
        self._note(f"done {text}")
        return f"wrote {text}"

    def _note(self, line):
        file = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, f"{line}\\n".encode())
        os.close(file)
'''
BACK_S = 120.0
"""How long a machine may take to be back; never what is asserted."""


@dataclass
class Town:
    """The hub on its machine, and spokes on theirs."""

    network: Network
    house: House
    https_port: int
    machines: dict[str, Machine] = field(default_factory=dict)

    def start(self, name: str, machine: Machine) -> Spoke:
        """Start a spoke on a machine; does not wait for it."""
        added: dict[str, Any] = self.house.json("devices", "add", name, "--trust-skills")
        home = self.house.directory / added["id"]
        skills = home / "skills"
        skills.mkdir(parents=True)
        (skills / "journal.py").write_text(SKILL)
        url = f"https://{self.network.hub.address}:{self.https_port}"
        spoke = Spoke(added["id"], name, home=home, skills=skills, token=added["token"], hub=url)
        self.machines[spoke.id] = machine
        with self.network.inside(machine):
            self.house.start(
                spoke.id,
                *("spoke", "run", "--hub", url, "--hub-key", added["hub_key"], "--skills", str(skills)),
                home=home,
                HUB_DEVICE_TOKEN=spoke.token,
            )
        return spoke

    def call(self, spoke: Spoke, text: str, wait_for: str = "") -> str:
        """Call and give the answer: the value, or the error's code."""
        body = {
            "device": spoke.id,
            "skill": "JournalSkill",
            "method": "write",
            "kwargs": {"text": text, "wait_for": wait_for},
        }
        request = urllib.request.Request(
            f"{self.house.url}/api/skills/call",
            json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {Home(self.house.home).token_file.read_text().strip()}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=BACK_S) as answer:
                return str(json.load(answer)["result"])
        except urllib.error.HTTPError as error:
            with error:
                return str(json.load(error)["code"])


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path
) -> Iterator[tuple[Town, Spoke, Spoke]]:
    """A hub and two spokes; made once, since each test leaves it as it was."""
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        house = stack.enter_context(House(tmp_path_factory.mktemp("town") / "house", sandbox=sandbox_files))
        with network.inside(network.hub):
            https, mqtts = free_port(), free_port()
            house.start_up("--lan", "--https-port", str(https), "--mqtts-port", str(mqtts), "--no-spoke")
            town = Town(network, house, https)
            one, two = (town.start(name, network.plug_in(name)) for name in ("attic", "cellar"))
            for spoke in (one, two):
                house.wait_until_online(spoke)
        yield town, one, two


@pytest.fixture
def town(built: tuple[Town, Spoke, Spoke]) -> Iterator[Town]:
    """The town, seen from the hub's machine."""
    with built[0].network.inside(built[0].network.hub):
        yield built[0]


@pytest.fixture
def spokes(built: tuple[Town, Spoke, Spoke]) -> tuple[Spoke, Spoke]:
    """Its two spokes, which are online."""
    return built[1], built[2]


@pytest.mark.parametrize("how", ["cut off", "unplugged"])
def test_calls_that_are_open_while_both_machines_are_away_for_a_moment_are_answered(
    town: Town, spokes: tuple[Spoke, Spoke], how: str
) -> None:
    away = town.network.cut_off if how == "cut off" else town.network.unplugged
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(town.call, spoke, how, f"may end {how}") for spoke in spokes]
        with ExitStack() as stack:
            for spoke in spokes:
                wait_for(partial(_has_written, spoke, how), what="the call to begin")
            for spoke in spokes:
                stack.enter_context(away(town.machines[spoke.id]))
            # The method ends meanwhile; its result has no way to the hub.
            for spoke in spokes:
                (spoke.skills / f"may end {how}").touch()
                wait_for(partial(_has_written, spoke, f"done {how}"), what="the method to end")
            assert [call.result() for call in calls if call.done()] == []
        assert [call.result(timeout=BACK_S) for call in calls] == [f"wrote {how}"] * 2
    assert [spoke.journal().count(how) for spoke in spokes] == [1, 1]
    _works(town, *spokes)


def test_a_machine_that_stays_cut_off_counts_as_gone_and_comes_back_by_itself(
    town: Town, spokes: tuple[Spoke, Spoke]
) -> None:
    lost, other = spokes
    with ThreadPoolExecutor() as threads, town.network.cut_off(town.machines[lost.id]):
        # Sent to a machine that no packet reaches, and none tells that: only the keepalive does.
        call = threads.submit(town.call, lost, "half open")
        wait_for(lambda: town.house.state_of(lost) == "offline", what="the loss to show", patience=BACK_S)
        assert town.call(lost, "never") == "offline"
        assert town.call(other, "meanwhile") == "wrote meanwhile"
        assert call.result(timeout=BACK_S) == "outcome_unknown"
    wait_for(lambda: town.house.state_of(lost) == "online", what="it to be back", patience=BACK_S)
    _works(town, *spokes)
    assert lost.journal().count("half open") <= 1
    assert "never" not in lost.journal()


def _has_written(spoke: Spoke, text: str) -> bool:
    return text in spoke.journal()


def _works(town: Town, *spokes: Spoke) -> None:
    """All answer, and what they write stands there once."""
    for spoke in spokes:
        text = f"again {len(spoke.journal())}"
        assert town.call(spoke, text) == f"wrote {text}"
        assert spoke.journal().count(text) == 1
