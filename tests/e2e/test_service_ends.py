"""However a process is told to end, it ends: with its skills, its goodbye, and soon."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.house import PATIENCE_S, House, wait_for

pytestmark = pytest.mark.slow

SIGNALS = [signal.SIGTERM, signal.SIGHUP]
_SOON_S = 120
"""Far less than what would be waited for without the signal (300 s), far more than a busy machine needs."""


DEAF_SKILL = '''
import asyncio
from pathlib import Path

from spoke import Skill


class DeafSkill(Skill):
    """Ignores that it is cancelled."""

    async def listen(self) -> None:
        """Never end."""
        Path(__file__).with_name("begun").touch()
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass
'''


def test_a_coroutine_that_ignores_its_cancellation_keeps_no_spoke_from_ending(house: House) -> None:
    pc = house.add_spoke("Bedroom PC", {"deaf.py": DEAF_SKILL})
    house.begin("call", pc.id, "DeafSkill.listen")
    wait_for((pc.skills / "begun").exists, what="the call to begin")
    house.send(pc.id, signal.SIGTERM)
    assert house.processes[pc.id].wait(_SOON_S) == 0
    wait_for(lambda: house.state_of(pc) == "offline", what="the goodbye")
    assert "DeafSkill.listen did not stop within 2 s" in house.log(pc.id)


def test_a_second_ctrl_c_does_not_wait_for_the_skill(house: House, journal: dict[str, str]) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    house.begin("call", pc.id, "JournalSkill.slowly", "text=job", "seconds=300")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")
    house.send(pc.id, signal.SIGINT)
    wait_for(lambda: "being stopped" in _refusal(house, pc.id), what="it to take no more calls")
    house.send(pc.id, signal.SIGINT)
    house.processes[pc.id].wait(_SOON_S)
    assert "calls still ran after" not in house.log(pc.id), "the grace was cut short"
    wait_for(lambda: house.state_of(pc) == "offline", what="the goodbye or the will")


def _refusal(house: House, device: str) -> str:
    return house.cli("call", device, "JournalSkill.write", "text=late").stderr


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_hub_that_is_told_to_end_in_mid_call_keeps_nobody_waiting(
    house: House, journal: dict[str, str], number: signal.Signals
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    call = house.begin("call", pc.id, "JournalSkill.slowly", "text=job", "seconds=2")
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")
    house.send("hub", number)
    assert house.processes["hub"].wait(_SOON_S) == 0
    call.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in house.log("hub")
    wait_for(lambda: "job done" in pc.journal(), what="the job, which goes on where it is")
    house.start_hub()
    house.wait_until_online(pc)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_first_start_is_stopped_while_the_sandbox_is_made(tmp_path: Path, number: signal.Signals) -> None:
    with House(tmp_path / "house") as home:
        ports = ("--http-port", str(home.http_port), "--mqtt-port", str(home.mqtt_port))
        home.start("up", "up", *ports)
        wait_for(lambda: "sandbox" in home.log("up") or home.ended("up"), what="the sandbox to be made")
        home.send("up", number)
        assert home.processes["up"].wait(_SOON_S) == 0
        assert "Ready" not in home.log("up")
        assert "Traceback" not in home.log("up")
        assert not list((home.home / "sandbox").glob(".new*"))


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "house") as home:
        yield home


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("after_s", [0.05, 0.2, 0.4, 0.7, 1.0])
def test_a_spoke_is_stopped_at_any_moment_of_its_start(
    lonely: House, number: signal.Signals, after_s: float
) -> None:
    # Nobody answers there: it would go on trying.
    lonely.start("spoke", "spoke", "run", "--hub", lonely.url, HUB_DEVICE_TOKEN="none")
    time.sleep(after_s)
    lonely.send("spoke", number)
    # Before Python has got to our handlers, a signal ends it by itself; there is nothing to put in order.
    assert lonely.processes["spoke"].wait(_SOON_S) in (0, 1, 130, -number)
    lonely.start("again", "spoke", "run", "--hub", lonely.url, HUB_DEVICE_TOKEN="none")
    wait_for(
        lambda: "cannot be reached" in lonely.log("again") or lonely.ended("again"), what="the next start"
    )
    lonely.send("again", number)
    assert lonely.processes["again"].wait(_SOON_S) == 0


def test_a_first_start_with_a_hub_that_hangs_is_stopped_at_once(house: House) -> None:
    added = house.json("devices", "add", "Kitchen Pi")
    house.send("hub", signal.SIGSTOP)
    home = house.directory / "pi"
    house.start("pi", "spoke", "run", "--hub", house.url, home=home, HUB_DEVICE_TOKEN=added["token"])
    wait_for(lambda: (home / "spoke" / "lock").exists() or house.ended("pi"), what="the spoke")
    house.send("pi", signal.SIGTERM)
    assert house.processes["pi"].wait(_SOON_S) == 0
