"""The usual automations of a home: each made by one request, without a model, some over a kill of the hub.

The house has no model at all. A row of the table is a watcher, the values that then come, and what the device
wrote down, in order.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.house import House, Spoke, wait_for

SKILL = '''
from pathlib import Path
from spoke import Skill, skill_method

FILE = Path(__file__).with_name("journal.txt")

class HomeSkill(Skill):
    """All that is in the house."""

    @skill_method()
    def sense(self, name: str, value: float | bool | str) -> None:
        """Publish a value."""
        self.state(name, value)

    @skill_method()
    def act(self, what: str) -> None:
        """Write down what is done."""
        with FILE.open("a") as file:
            file.write(what + "\\n")

    @skill_method(confirm=True)
    def valve(self, what: str) -> None:
        """Move the main valve."""
        self.act(what)
'''

NOW = datetime.now(UTC)
NIGHT = f'time between "{(NOW.hour - 1) % 24:02}:00" and "{(NOW.hour + 2) % 24:02}:00"'
DAY = f'time between "{(NOW.hour + 3) % 24:02}:00" and "{(NOW.hour + 5) % 24:02}:00"'
TODAY = f'weekday == "{NOW:%A}"'.lower()
MIDNIGHT_IS_AT = (180 - 15 * NOW.hour) % 360 - 180
"""A longitude at which it is night now; on the equator the sun is down then all the year."""


def act(what: str, **more: Any) -> dict[str, Any]:
    return {"call": "devices.house.HomeSkill.act", "arguments": {"what": what}, **more}


@dataclass
class Automation:
    """A watcher, the values that come, and what is done and told."""

    name: str
    predicate: str | None
    then: list[dict[str, Any]]
    values: list[tuple[str, Any]]
    does: list[str] = field(default_factory=list)
    tells: list[str] = field(default_factory=list)
    more: Mapping[str, Any] = field(default_factory=dict)


TABLE = [
    Automation(
        "motion light with delay",
        "motion",
        [act("hall on"), act("hall off", after="8s")],
        [("motion", True), ("motion", False)],
        ["hall on", "hall off"],
    ),
    Automation(
        "freezer alarm",
        "freezer > -10",
        [{"notify": "The freezer is at {freezer} °C"}],
        [("freezer", -18), ("freezer", -5.5)],
        tells=["The freezer is at -5.5 °C"],
    ),
    Automation(
        "freezer alarm again while it is warm",
        "freezer2 > -10",
        [{"notify": "warm"}, {"notify": "still warm", "after": "8s", "if_still": True}],
        [("freezer2", -5)],
        tells=["warm", "still warm"],
    ),
    Automation(
        "door open at night",
        f"door and {NIGHT}",
        [{"notify": "The door is open"}, act("hall light")],
        [("door", True)],
        ["hall light"],
        ["The door is open"],
    ),
    Automation("door open by day tells nothing", f"door and {DAY}", [act("wrong")], [("door", True)]),
    Automation("sunset blinds", 'sun == "down"', [act("blinds down")], [], ["blinds down"]),
    Automation(
        "light at dusk only with motion",
        'movement and sun == "down"',
        [act("path light")],
        [("movement", True)],
        ["path light"],
    ),
    Automation(
        "washing machine done, by power",
        'watts < 5 and max(watts, "1h") > 100',
        [{"notify": "The washing machine is done"}],
        [("watts", 2), ("watts", 800), ("watts", 1)],
        tells=["The washing machine is done"],
    ),
    Automation(
        "leak closes the valve",
        "leak",
        [
            {"call": "devices.house.HomeSkill.valve", "arguments": {"what": "valve closed"}},
            {"notify": "Water on the floor: the valve is closed"},
        ],
        [("leak", True)],
        ["valve closed"],
        ["Water on the floor: the valve is closed"],
    ),
    Automation(
        "everyone is away",
        'ann == "away" and ben == "away"',
        [act("heating eco"), act("all lights off")],
        [("ann", "away"), ("ben", "away")],
        ["heating eco", "all lights off"],
    ),
    Automation(
        "somebody comes home",
        'changed(cleo) and cleo == "home"',
        [act("heating on")],
        [("cleo", "away"), ("cleo", "home")],
        ["heating on"],
    ),
    Automation(
        "vacation: lights as if somebody was in",
        f'vacation and {NIGHT} and sun == "down"',
        [act("lamp on"), act("lamp off", after="2s", if_still=True)],
        [("vacation", True)],
        ["lamp on", "lamp off"],
    ),
    Automation("weekday alarm", f"{TODAY} and {NIGHT}", [act("radio on")], [], ["radio on"]),
    Automation(
        "alarm at a time",
        None,
        [act("coffee")],
        [],
        ["coffee"],
        more={"schedule": "every minute"},
    ),
    Automation(
        "window open too long while heating",
        'window and heating for "2s"',
        [act("heating off")],
        [("heating", True), ("window", True)],
        ["heating off"],
    ),
    Automation(
        "humidity fan with run-on",
        "humidity > 70",
        [act("fan on"), act("fan off", after="2s")],
        [("humidity", 50), ("humidity", 80)],
        ["fan on", "fan off"],
    ),
    Automation(
        "battery low",
        "battery < 15",
        [{"notify": "Change the battery of the remote: {battery} %"}],
        [("battery", 9)],
        tells=["Change the battery of the remote: 9 %"],
    ),
    Automation("doorbell", "changed(bell)", [act("chime")], [("bell", 1), ("bell", 2)], ["chime"]),
    Automation(
        "garage left open",
        'garage for "8s"',
        [{"notify": "The garage is open"}],
        [("garage", True)],
        tells=["The garage is open"],
    ),
    Automation(
        "a button, twice the same call",
        "button == 1",
        [act("toggle"), act("toggle", after="1s")],
        [("button", 0), ("button", 1)],
        ["toggle", "toggle"],
    ),
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, Spoke]]:
    with House(tmp_path_factory.mktemp("house")) as house:
        (house.home / "strawberry.toml").write_text(
            f"[household]\nlatitude = 0.0\nlongitude = {MIDNIGHT_IS_AT}.0\n"
        )
        house.start_broker()
        house.start_hub()
        yield house, house.add_spoke("house", {"home.py": SKILL})


def told(house: House) -> list[str]:
    lines = house.cli("events", "--kind", "notification", "--last", "200", "--json").stdout.splitlines()
    return [json.loads(line)["data"]["text"] for line in lines]


def test_the_usual_automations_run_without_a_model(house: tuple[House, Spoke]) -> None:
    home, spoke = house
    for each in TABLE:
        names = sorted({name for name, _ in each.values})
        made = home.ask(
            "/api/watchers",
            {
                "name": each.name,
                "topics": {name: f"devices/{spoke.id}/state/HomeSkill/{name}" for name in names},
                "then": each.then,
                **({"predicate": each.predicate} if each.predicate else {}),
                **each.more,
            },
        )
        assert made["state"] == "active", made
    for each in TABLE:
        for name, value in each.values:
            given = {"name": name, "value": value}
            call = {"device": spoke.id, "skill": "HomeSkill", "method": "sense", "kwargs": given}
            home.ask("/api/skills/call", call)
    at_once = {
        step["arguments"]["what"]
        for each in TABLE
        for step in each.then
        if each.does and "call" in step and "after" not in step and "for " not in (each.predicate or "")
    }
    wait_for(lambda: at_once - {"coffee"} <= set(spoke.journal()), what="what is done at once")
    # In the delays of the light and of the freezer, and before the garage was open for long enough.
    home.kill("hub")
    home.start_again("hub")
    wait_for(home.healthy, what="the hub")
    expected = sorted(line for each in TABLE for line in each.does if line != "coffee")
    tells = sorted(line for each in TABLE for line in each.tells)
    # More than once is as wrong as not at all; the schedule comes again each minute.

    def once() -> list[str]:
        return sorted(line for line in spoke.journal() if line != "coffee")

    wait_for(lambda: once() == expected and "coffee" in spoke.journal(), what="all, once", patience=150)
    wait_for(lambda: set(tells) <= set(told(home)), what="what the automations tell")
    assert once() == expected
    for text in tells:
        assert told(home).count(text) == 1, text
    shown = home.json("watchers", "list")
    assert {each["model_calls"] for each in shown} == {0}


def test_one_is_made_by_one_command_and_shown_in_words(house: tuple[House, Spoke]) -> None:
    home, spoke = house
    done = home.cli(
        *("watchers", "add", "Tank", "--topic", "devices.house.HomeSkill.level", "--predicate", "level > 95"),
        *("--notify", "Tank at {level} %", "--do", "devices.house.HomeSkill.act what=drain"),
        *("--if-still", "20m", "--notify", "Still full"),
    )
    assert done.returncode == 0, done.stderr
    assert (
        "does         When Home level (house) goes above 95: tell me “Tank at {level} %”, then Home: Act "
        "(What drain) (house), then if it is still so after 20 min, tell me “Still full”.\n"
    ) in done.stdout
    given = {"name": "level", "value": 96}
    call = {"device": spoke.id, "skill": "HomeSkill", "method": "sense", "kwargs": given}
    home.ask("/api/skills/call", call)
    wait_for(lambda: "drain" in spoke.journal(), what="the call")
    assert "next step" in home.cli("watchers", "show", "Tank").stdout
    sentence = "tell me when the garage is on for 2 minutes"
    asked = home.cli("watchers", "add", sentence)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "When Home garage (house" in asked.stderr
    made = home.cli("watchers", "add", sentence, "--notify", "It is open", "--yes")
    assert "does         When Home garage (house) is on for 2 min: tell me “It is open”." in made.stdout, made
    late = home.cli("watchers", "add", "Late", "--predicate", 'time > "22:00"', "--after", "20m")
    assert "a delay stands before what it delays" in late.stderr


def test_the_examples_of_the_documentation_can_be_made(house: tuple[House, Spoke]) -> None:
    home, _ = house
    home.add_spoke("nas", {}, samples=True)
    text = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    section = text[text.index("## Watchers") : text.index("## Captures")]
    for example in re.findall(r"```json\n(.*?)```", section, re.DOTALL):
        made = home.ask("/api/watchers", {**json.loads(example)})
        assert made["state"] in ("active", "draft"), made

    def is_seen() -> bool:
        watcher = home.json("watchers", "show", "disk")
        return watcher["truth"] is not None

    wait_for(is_seen, what="the disk of a device with the sample skills")
