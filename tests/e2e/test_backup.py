"""A backup of a home that runs, restored after all of it was lost."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.e2e.house import PATIENCE_S, House, wait_for

pytestmark = pytest.mark.slow

WORDS = "four words for you\n"


def test_a_home_that_was_lost_comes_back_and_its_device_connects_by_itself(
    house: House, journal: dict[str, str], tmp_path: Path
) -> None:
    pc = house.add_spoke("Office PC", journal)
    lost = house.json("tokens", "add", "lost phone", "--scope", "chat")["token"]
    file = tmp_path / "home.age"
    made = house.cli("backup", str(file), given=WORDS)
    assert made.returncode == 0, made.stderr
    for name in ("hub", "broker"):
        house.send(name, signal.SIGTERM)
        house.processes[name].wait(PATIENCE_S)
        house.processes.pop(name)
    for part in house.home.iterdir():
        if part.name != "sandbox":
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    done = house.cli("restore", str(file), "--yes", "--passphrase-file", "-", given=WORDS)
    assert done.returncode == 0, done.stderr
    house.start_broker()
    house.start_hub()
    house.wait_until_online(pc)
    called = house.cli("call", "office_pc", "JournalSkill.write", "text=back")
    wait_for(lambda: pc.journal() == ["back"], what=f"the call: {called.stderr}")
    refused = house.cli("skills", "list", STRAWBERRY_TOKEN=lost)
    assert "revoked" in refused.stderr
