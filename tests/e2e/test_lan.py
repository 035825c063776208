"""Other machines come in: over TLS with the home's own authority, or, spelled out, without."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from identity.certificates import own_names
from tests.e2e.house import PATIENCE_S, House, wait_for
from tests.ports import free_port

pytestmark = pytest.mark.slow

JOURNAL = {
    "journal.py": '''
from pathlib import Path

from spoke import Skill, skill_method


class JournalSkill(Skill):
    """Keeps a journal."""

    @skill_method()
    def write(self, text: str) -> str:
        """Write a line into the journal."""
        with Path(__file__).with_name("journal.txt").open("a") as file:
            file.write(text + "\\\\n")
        return f"wrote {text}"
'''
}


def _own_address() -> str:
    """An address of this machine that is not loopback: what other machines would use."""
    return next(
        (each for each in own_names()[1] if ":" not in each and not each.startswith("127.")), "127.0.0.1"
    )


@pytest.fixture
def home(tmp_path: Path, sandbox_files: Path) -> Iterator[House]:
    """A home of which nothing runs."""
    with House(tmp_path / "house", sandbox=sandbox_files) as house:
        yield house


class Other:
    """Another machine: a home directory of its own, which knows nothing but an address."""

    def __init__(self, house: House, name: str, url: str, *flags: str) -> None:
        self.home = house.directory / name
        self.skills = self.home / "skills"
        self.skills.mkdir(parents=True)
        (self.skills / "journal.py").write_text(JOURNAL["journal.py"])
        self._house, self._name, self._flags, self._url = house, name, flags, url

    def begin_joining(self) -> None:
        """Start ``spoke join``."""
        join = ("spoke", "join", self._url, "--name", "Kitchen Pi", *self._flags, "--debug")
        self._house.start(f"{self._name}-join", *join, home=self.home)

    def shown(self) -> tuple[str, str]:
        """Code and fingerprint as they stand on its screen."""
        log = f"{self._name}-join"
        wait_for(
            lambda: "fingerprint" in self._house.log(log) or self._house.ended(log),
            what="the code to be shown",
        )
        words = self._house.log(log).split()
        return words[words.index("code") + 1], words[words.index("fingerprint") + 1]

    def joined(self) -> int:
        """The exit code of ``spoke join``."""
        return self._house.processes[f"{self._name}-join"].wait(timeout=PATIENCE_S)

    def run(self) -> None:
        """Start the spoke with what was stored."""
        run = ("spoke", "run", "--skills", str(self.skills), *self._flags, "--debug")
        self._house.start(self._name, *run, home=self.home)

    @property
    def enrolment(self) -> dict[str, object]:
        """What it stored."""
        stored: dict[str, object] = json.loads((self.home / "spoke" / "enrolment.json").read_text())
        return stored

    def wait_until_it_serves(self) -> None:
        """Wait until a skill of it can be called."""

        def served() -> bool:
            self._house.ended(self._name)
            return self._house.cli("call", "Kitchen Pi", "JournalSkill.write", "text=x").returncode == 0

        wait_for(served, what="the other machine to serve")


def _start_lan(house: House, *flags: str) -> tuple[str, int]:
    """Start everything with --lan; gives the address for other machines and the port of MQTT over TLS."""
    https, mqtts = free_port(), free_port()
    house.start_up("--lan", "--https-port", str(https), "--mqtts-port", str(mqtts), "--no-spoke", *flags)
    return f"https://{_own_address()}:{https}", mqtts


@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
def test_a_machine_joins_by_code_over_tls_with_the_homes_own_authority(home: House, broker: str) -> None:
    url, mqtts = _start_lan(home, "--broker", broker)
    said = home.log("up")
    assert url in said
    assert "strawberry spoke join" in said
    other = Other(home, "kitchen", url)
    other.begin_joining()
    code, fingerprint = other.shown()

    (waiting,) = home.json("devices", "approve")
    assert (waiting["name"], waiting["fingerprint"]) == ("Kitchen Pi", fingerprint)
    done = home.cli("devices", "approve", code.lower(), "--trust-skills", given="y\n")
    assert done.returncode == 0, done.stderr
    assert fingerprint in done.stderr
    assert other.joined() == 0, home.log("kitchen-join")

    other.run()
    other.wait_until_it_serves()
    assert [device["trusted"] for device in home.json("devices", "list")] == [True]
    stored = other.enrolment
    assert stored["ca"] == (home.home / "certs" / "ca.pem").read_text()
    brokers = stored["brokers"]
    assert isinstance(brokers, list)
    assert f"mqtts://{_own_address()}:{mqtts}" in brokers
    assert all(each.startswith("mqtts://") for each in brokers), "a token never goes in the clear"


def test_giving_up_to_join_is_clean(home: House) -> None:
    url, _ = _start_lan(home)
    other = Other(home, "kitchen", url)
    other.begin_joining()
    other.shown()
    home.send("kitchen-join", signal.SIGINT)
    assert other.joined() == 130
    assert "Traceback" not in home.log("kitchen-join")


def test_the_local_spoke_stays_on_loopback(home: House) -> None:
    https, mqtts = free_port(), free_port()
    home.start_up("--lan", "--https-port", str(https), "--mqtts-port", str(mqtts))
    stored = json.loads((home.home / "spoke" / "enrolment.json").read_text())
    assert stored["brokers"][0] == f"mqtt://127.0.0.1:{home.mqtt_port}"
    assert home.json("call", "hub", "CalculatorSkill.calculate", "expression=6*7") is not None
