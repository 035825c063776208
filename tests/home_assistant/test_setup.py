"""A real Home Assistant set up by the command, taken over by a hub that runs, and seen by the doctor."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.e2e.house import House, wait_for
from tests.home_assistant.server import HomeAssistant

LAMP = "input_boolean: {lamp: {name: Reading Lamp}}"


async def test_a_running_hub_takes_over_what_setup_wrote(
    home_assistant_directory: Path, tmp_path: Path, sandbox_files: Path
) -> None:
    async with HomeAssistant(home_assistant_directory, configuration=LAMP) as assistant:
        with House(tmp_path / "house", sandbox=sandbox_files) as house:
            await asyncio.to_thread(_set_up_while_it_runs, house, assistant)
        assert await assistant.state("input_boolean.lamp") == "on"


def _set_up_while_it_runs(house: House, assistant: HomeAssistant) -> None:
    house.start_up("--no-spoke")
    assert _check(house) is None
    setup = ("setup", "home-assistant", "--url", assistant.url, "--token-stdin")
    done = house.cli(*setup, given=f"{assistant.token}\n")
    assert done.returncode == 0, done.stderr
    assert "Home Assistant 2024.3.3" in done.stdout

    def is_connected() -> bool:
        check = _check(house)
        return check is not None and check["ok"]

    wait_for(is_connected, what="the hub to connect to Home Assistant")
    said = house.cli("chat", "turn on the reading lamp")
    assert "Turned on Reading Lamp." in said.stdout, said.stderr
    assert assistant.token not in house.log("up") + done.stdout + done.stderr


def _check(house: House) -> Any:
    """What the doctor says of Home Assistant; None where it says nothing."""
    found = json.loads(house.cli("doctor", "--json").stdout)
    checks = found["checks"] if isinstance(found, dict) else found
    return next((each for each in checks if each["check"] == "home assistant"), None)
