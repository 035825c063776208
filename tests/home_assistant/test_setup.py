"""A real Home Assistant set up by the command, taken over by a hub that runs, and seen by the doctor.

Then all commands of docs/home-assistant.md are run as they stand there.
"""

import asyncio
import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

from tests.docs.test_documents import ROOT, blocks_of
from tests.e2e.house import PATIENCE_S, House, wait_for
from tests.home_assistant.server import HomeAssistant

CONFIGURATION = """
input_boolean: {lamp: {name: Reading Lamp}}
light:
  - platform: template
    lights:
      kitchen:
        friendly_name: Kitchen Light
        value_template: "{{ states('input_boolean.lamp') }}"
        turn_on: {service: input_boolean.turn_on, target: {entity_id: input_boolean.lamp}}
        turn_off: {service: input_boolean.turn_off, target: {entity_id: input_boolean.lamp}}
template:
  - binary_sensor: [{name: Front Door, state: "{{ is_state('input_boolean.lamp', 'on') }}"}]
"""
SKILLS = """
from spoke import Skill

class LampSkill(Skill):
    \"\"\"A lamp.\"\"\"
    def turn_on(self) -> None:
        \"\"\"Switch it on.\"\"\"

class PlayerSkill(Skill):
    \"\"\"A player.\"\"\"
    def play(self) -> None:
        \"\"\"Start the music.\"\"\"
"""


async def test_a_running_hub_takes_over_what_setup_wrote_and_the_commands_of_the_page_work(
    home_assistant_directory: Path, tmp_path: Path, sandbox_files: Path
) -> None:
    async with HomeAssistant(home_assistant_directory, configuration=CONFIGURATION) as assistant:
        with House(tmp_path / "house", sandbox=sandbox_files) as house:
            settings = '[home_broker]\nurl = "bus"\n[home_assistant]\nexpose = "all"\n'
            (house.home / "strawberry.toml").write_text(settings)
            await assistant.call("input_boolean.turn_on", entity_id="input_boolean.lamp")
            await asyncio.to_thread(_set_up_while_it_runs, house, assistant)
            assert await assistant.state("input_boolean.lamp") == "off"
            shown = await asyncio.to_thread(_run_the_page, house, assistant)
        assert await assistant.state("input_boolean.lamp") == "on"
    assert "light/kitchen" in shown["bus"]
    assert "door" in shown["watchers"]
    assert shown["tokens"].startswith("ey")


def _set_up_while_it_runs(house: House, assistant: HomeAssistant) -> None:
    house.start_up("--no-spoke")
    assert _check(house) is None
    setup = ("setup", "home-assistant", "--url", assistant.url, "--token-stdin")
    done = house.cli(*setup, given=f"{assistant.token}\n")
    assert done.returncode == 0, done.stderr
    assert "Home Assistant 2024.3.3" in done.stdout
    assert "entities are exposed to Assist; all are used" in done.stdout
    wait_for(lambda: (_check(house) or {}).get("ok"), what="the hub to connect to Home Assistant")
    said = house.cli("chat", "turn off the reading lamp")
    assert "Turned off Reading Lamp." in said.stdout, said.stderr
    assert assistant.token not in house.log("up") + done.stdout + done.stderr


def _check(house: House) -> Any:
    """What the doctor says of Home Assistant; None where it says nothing."""
    found = json.loads(house.cli("doctor", "--json").stdout)
    checks = found["checks"] if isinstance(found, dict) else found
    return next((each for each in checks if each["check"] == "home assistant"), None)


def _run_the_page(house: House, assistant: HomeAssistant) -> dict[str, str]:
    """Run each command of the page in a shell; return what they printed, by their first words."""
    house.add_spoke("Kitchen", {"kitchen.py": SKILLS})
    path = f"{house.programs()}:{os.environ['PATH']}"
    environment = house.environment(house.home, {"PATH": path})
    blocks = blocks_of(ROOT / "docs" / "home-assistant.md", "sh")
    shown: dict[str, str] = {}
    for command in (line for block in blocks for line in block.splitlines()):
        word = command.split()[1]
        if word == "setup":
            shown[word] = _typed(
                command, environment, {"Address": assistant.url, "Long-lived": assistant.token}
            )
            assert "A running hub uses it at once." in shown[word]
            assert assistant.token not in shown[word]
            continue
        done = subprocess.run(
            ["bash", "-euc", command],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        shown[word] = done.stdout
    return shown


def _typed(command: str, environment: dict[str, str], answers: dict[str, str]) -> str:
    """Run a command in a terminal of its own, where a person answers; return what it showed."""
    ours, theirs = os.openpty()
    shown = ""
    try:
        # Passwords are asked for on the terminal that a session has.
        process = subprocess.Popen(
            ["setsid", "--ctty", "bash", "-euc", command],
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        for question, answer in answers.items():
            while not (question in shown and shown.endswith(": ")):
                piece = _read(ours)
                assert piece, shown
                shown += piece
            os.write(ours, f"{answer}\n".encode())
        while piece := _read(ours):
            shown += piece
        assert process.wait(PATIENCE_S) == 0, shown
    finally:
        os.close(ours)
    return shown


def _read(terminal: int) -> str:
    """Read what a terminal shows; nothing once its last program has ended."""
    ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
    assert ready, "the command shows nothing more"
    try:
        return os.read(terminal, 4_096).decode(errors="replace")
    except OSError:
        return ""
