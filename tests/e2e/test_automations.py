"""The usual automations of a home: each made by one command, without a model, some over a kill of the hub.

The house has no model until the last test. A row of the table is a command of the documentation, the values
that then come, and what the device wrote down.
"""

import json
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contracts.answers.watchers import Step
from deploy.cli.client import HubClient
from hub_live.watchers.words.reading import title_of
from tests.e2e.house import House, Spoke, wait_for
from tests.e2e.test_gateway_choice import setup_of
from tests.model_server import Reply, Says, ScriptedModel, SeenRequest, calls

SKILL = '''
from pathlib import Path
from spoke import Skill, skill_method

FILE = Path(__file__).with_name("journal.txt")

def note(what):
    with FILE.open("a") as file:
        file.write(what + "\\n")


class HomeSkill(Skill):
    """All that is in the house."""

    labels = {"de": {
        "freezer": "Gefrierschrank", "movement": "Bewegung im Garten", "leak": "Leck", "heating": "Heizung",
        "garage": "Garage", "bell": "Klingel", "ann": "Ann", "ben": "Ben", "cleo": "Cleo",
    }}

    @skill_method()
    def sense(self, name: str, value: float | bool | str) -> None:
        """Publish a value."""
        self.state(name, value)

    @skill_method()
    def act(self, what: str) -> None:
        """Write down what is done."""
        note(what)


class LightSkill(Skill):
    @skill_method(sentences={
        "en": ["turn on [the] {light} light"], "de": ["schalte das Licht (im|am|auf der) {light} ein"],
    })
    def turn_on(self, light: str) -> None:
        note(f"{light} on")

    @skill_method(sentences={
        "en": ["turn off [the] {light} light"],
        "de": ["schalte das Licht (im|am|auf der) {light} aus", "schalte {light} Licht aus"],
    })
    def turn_off(self, light: str) -> None:
        note(f"{light} off")


class FanSkill(Skill):
    @skill_method(sentences={"en": ["turn on the fan"], "de": ["schalte den Lüfter ein"]})
    def turn_on(self) -> None:
        note("fan on")

    @skill_method(sentences={"en": ["turn off the fan"], "de": ["schalte den Lüfter aus"]})
    def turn_off(self) -> None:
        note("fan off")


class BlindSkill(Skill):
    @skill_method(sentences={"en": ["lower the blinds"], "de": ["lass die Jalousien herunter"]})
    def lower(self) -> None:
        note("blinds lowered")


class GateSkill(Skill):
    @skill_method()
    def toggle(self) -> None:
        note("gate")


class HeatingSkill(Skill):
    @skill_method(sentences={"en": ["set the heating to {mode}"], "de": ["stelle die Heizung auf {mode}"]})
    def set_mode(self, mode: str) -> None:
        note(f"heating {mode}")


class MediaSkill(Skill):
    @skill_method(sentences={"en": ["play the {what}"], "de": ["spiele (das|den) {what}"]})
    def play(self, what: str) -> None:
        note(f"{what} plays")


class WaterSkill(Skill):
    labels = {"de": {"pressure": "Wasserdruck"}}

    @skill_method(confirm=True, sentences={"en": ["close the valve"], "de": ["schließe das Ventil"]})
    def close_valve(self) -> None:
        note("valve closed")

    @skill_method(read_only=True)
    def pressure(self) -> float:
        return 1.5
'''

NOW = datetime.now(UTC)
NIGHT = f'time between "{(NOW.hour - 1) % 24:02}:00" and "{(NOW.hour + 2) % 24:02}:00"'
DAY = f'time between "{(NOW.hour + 3) % 24:02}:00" and "{(NOW.hour + 5) % 24:02}:00"'
TODAY = f'weekday == "{NOW:%A}"'.lower()
MIDNIGHT_IS_AT = (180 - 15 * NOW.hour) % 360 - 180
"""A longitude at which it is night now; on the equator the sun is down then all the year."""


DOCUMENT = Path(__file__).parents[2] / "docs" / "live.md"
ROW = re.compile(r"^\| .* \| `(strawberry watchers add .*)` \| (.*)\|$", re.MULTILINE)
ROWS = [(command, sentence.strip()) for command, sentence in ROW.findall(DOCUMENT.read_text("utf-8"))]
COMMANDS = {shlex.split(command)[3]: command for command, _ in ROWS}
"""By name, the table of the documentation."""
GERMAN = {
    "Hall light": "Bei Bewegung schalte das Licht im Flur ein und schalte es nach 8 Minuten wieder aus",
    "Freezer": "Sag mir Bescheid, wenn der Gefrierschrank über -10 steigt",
    "Chest freezer": "Melde dich, wenn die Truhe zu warm ist, und nach 8 Minuten noch einmal",
    "Night door": "Wenn die Tür zwischen 22 Uhr und 6 Uhr offen ist, melde mir, dass die Tür offen ist, und "
    "schalte das Licht auf der Terrasse ein",
    "Letter box": "Sag mir Bescheid, wenn Post da ist, aber nur tagsüber",
    "Blinds at dusk": "Wenn die Sonne untergeht, lass die Jalousien herunter",
    "Path light": "Wenn Bewegung im Garten erkannt wird und es dunkel ist, schalte das Licht am Weg ein",
    "Washing machine": "Sag mir Bescheid, wenn die Waschmaschine fertig ist",
    "Leak": "Wenn ein Leck erkannt wird, schließe das Ventil und melde mir, dass Wasser auf dem Boden ist",
    "All away": "Wenn Ann und Ben weg sind, stelle die Heizung auf Eco und schalte jedes Licht aus",
    "Cleo is home": "Wenn Cleo nach Hause kommt, stelle die Heizung auf Komfort",
    "Vacation": "Lass im Urlaub das Licht im Wohnzimmer nach Sonnenuntergang zwei Minuten lang an sein",
    "Wake up": "Spiele werktags um 7 das Radio",
    "Bins": "Erinnere mich am Montagabend daran, dass der Müll hinausmuss",
    "Window": "Wenn das Fenster offen ist und die Heizung 2 Minuten lang an ist, stelle die Heizung auf aus",
    "Bath fan": "Wenn die Luftfeuchtigkeit über 70 ist, schalte den Lüfter ein und nach 2 Minuten wieder aus",
    "Battery": "Melde dich, wenn die Batterie unter 15 fällt",
    "Doorbell": "Wenn es klingelt, spiele den Gong",
    "Garage": "Sag mir Bescheid, wenn die Garage seit 8 Minuten offen ist",
    "Gate": "Wenn der Knopf gedrückt wird, öffne das Tor für eine Minute",
    "Water pressure": "Sag mir Bescheid, wenn der Wasserdruck unter 2 bar fällt",
}
"""The sentences of the table in German, and below what is said in them of the values of its commands."""
WORDS = {"hall": "Flur", "porch": "Terrasse", "path": "Weg", "living": "Wohnzimmer", "every": "jedes"}
WORDS |= {"eco": "Eco", "comfort": "Komfort", "off": "aus", "radio": "Radio", "chime": "Gong"}
TESTED = (
    # The delays that it takes are of seconds, and its night and its Monday are now.
    (re.compile(r"""((?:--after |--if-still |for ")\d+)m"""), r"\1s"),
    (re.compile(r'time between "22:00" and "06:00"'), NIGHT),
    (re.compile(r'time between "08:00" and "18:00"'), DAY),
    (re.compile(r'weekday == "monday" and time >= "19:00"'), f'{TODAY} and time >= "00:00"'),
    (re.compile(r"every weekday at 7"), "every minute"),
)


@dataclass
class Automation:
    """The values that come, and what is done, at once and later, and told."""

    values: list[tuple[str, Any]] = field(default_factory=list)
    does: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    tells: list[str] = field(default_factory=list)


REPEATED = "radio plays"
TABLE = {
    "Hall light": Automation([("motion", True), ("motion", False)], ["hall on"], ["hall off"]),
    "Freezer": Automation([("freezer", -18), ("freezer", -5.5)], tells=["The freezer is at -5.5 °C"]),
    "Chest freezer": Automation([("chest", -5)], tells=["The chest is warm", "The chest is still warm"]),
    "Night door": Automation([("door", True)], ["porch on"], tells=["The door is open"]),
    "Letter box": Automation([("mail", 1), ("mail", 2)]),
    "Blinds at dusk": Automation(does=["blinds lowered"]),
    "Path light": Automation([("movement", True)], ["path on"]),
    "Washing machine": Automation(
        [("watts", 2), ("watts", 800), ("watts", 1)], tells=["The washing machine is done"]
    ),
    "Leak": Automation([("leak", True)], ["valve closed"], tells=["Water on the floor: the valve is closed"]),
    "All away": Automation([("ann", "away"), ("ben", "away")], ["heating eco", "every off"]),
    "Cleo is home": Automation([("cleo", "away"), ("cleo", "home")], ["heating comfort"]),
    "Vacation": Automation([("vacation", True)], ["living on"], ["living off"]),
    "Wake up": Automation(does=[REPEATED]),
    "Bins": Automation(tells=["Take the bins out"]),
    "Window": Automation([("heating", True), ("window", True)], later=["heating off"]),
    "Bath fan": Automation([("humidity", 50), ("humidity", 80)], ["fan on"], ["fan off"]),
    "Battery": Automation([("battery", 9)], tells=["Change the battery of the remote: 9 %"]),
    "Doorbell": Automation([("bell", 1), ("bell", 2)], ["chime plays"]),
    "Garage": Automation([("garage", True)], tells=["The garage is open"]),
    "Gate": Automation([("button", 0), ("button", 1)], ["gate"], ["gate"]),
    "Water pressure": Automation(tells=["The water pressure is 1.5 bar"]),
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path) -> Iterator[tuple[House, Spoke]]:
    with House(tmp_path_factory.mktemp("house"), sandbox=sandbox_files, debug=False) as house:
        (house.home / "strawberry.toml").write_text(
            f"[household]\nlatitude = 0.0\nlongitude = {MIDNIGHT_IS_AT}.0\n"
        )
        house.start_broker()
        house.start_hub()
        yield house, house.add_spoke("house", {"home.py": SKILL})


def told(house: House) -> list[str]:
    lines = house.cli("events", "--kind", "notification", "--last", "200", "--json").stdout.splitlines()
    return [json.loads(line)["data"]["text"] for line in lines]


def _made(home: House, name: str) -> Any:
    command = COMMANDS[name]
    for pattern, text in TESTED:
        command = pattern.sub(text, command)
    done = home.cli(*shlex.split(command)[1:], "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _parts(command: str) -> tuple[dict[str, str], dict[str, str], list[dict[str, Any]]]:
    """Return when a command's automation begins, its values by name, and its steps."""
    when: dict[str, str] = {}
    values: dict[str, str] = {}
    steps: list[dict[str, Any]] = []
    delay: dict[str, Any] = {}
    options = shlex.split(command)[4:]
    for option, text in zip(options[::2], options[1::2], strict=True):
        match option:
            case "--predicate" | "--schedule":
                when[option[2:]] = text
            case "--topic" | "--ask":
                values[text.rpartition(".")[2]] = text
            case "--after":
                delay = {"after": text}
            case "--if-still":
                delay = {"after": text, "if_still": True}
            case "--do":
                path, *given = text.split()
                steps.append({"call": path, "arguments": dict(each.split("=") for each in given), **delay})
            case "--notify":
                steps.append({"notify": text, **delay})
    return when, values, steps


def _untold(steps: list[dict[str, Any]], words: dict[str, str]) -> list[Step]:
    """Return steps whose texts may be others, with words of another language in what they call."""
    found = map(Step.model_validate, steps)
    return [
        each.model_copy(
            update={
                "notify": each.notify and "",
                "arguments": {name: words.get(str(value), value) for name, value in each.arguments.items()},
            }
        )
        for each in found
    ]


@pytest.mark.slow
def test_the_usual_automations_run_without_a_model(house: tuple[House, Spoke]) -> None:
    home, spoke = house
    assert COMMANDS.keys() == TABLE.keys()
    with ThreadPoolExecutor(4) as threads:
        for made in threads.map(partial(_made, home), TABLE):
            assert made["state"] == "active", made
    for each in TABLE.values():
        for name, value in each.values:
            given = {"name": name, "value": value}
            call = {"device": spoke.id, "skill": "HomeSkill", "method": "sense", "kwargs": given}
            home.ask("/api/skills/call", call)
    at_once = {line for each in TABLE.values() for line in each.does} - {REPEATED}
    wait_for(lambda: at_once <= set(spoke.journal()), what="what is done at once")
    # In the delays of the light and of the freezer, and before the garage was open for long enough.
    home.kill("hub")
    home.start_again("hub")
    wait_for(home.healthy, what="the hub")
    expected = sorted(line for each in TABLE.values() for line in each.does + each.later if line != REPEATED)
    tells = sorted(line for each in TABLE.values() for line in each.tells)
    # More than once is as wrong as not at all; the schedule comes again each minute.

    def once() -> list[str]:
        return sorted(line for line in spoke.journal() if line != REPEATED)

    wait_for(lambda: once() == expected and REPEATED in spoke.journal(), what="all, once", patience=150)
    wait_for(lambda: set(tells) <= set(told(home)), what="what the automations tell")
    assert once() == expected
    for text in tells:
        assert told(home).count(text) == 1, text
    assert "There is mail" not in told(home)
    shown = home.json("watchers", "list")
    assert {each["model_calls"] for each in shown} == {0}


AT_FIRST: dict[str, Any] = {
    **dict.fromkeys(("motion", "door", "movement", "leak", "window", "heating", "garage"), False),
    "freezer": -18,
    "humidity": 50,
    "battery": 90,
    "bell": 1,
    "ann": "home",
    "ben": "home",
    "cleo": "away",
    **dict.fromkeys(("chest", "mail", "watts", "vacation", "button"), 0),
}


def _answered(client: HubClient, body: dict[str, Any], headers: dict[str, str]) -> Iterator[dict[str, Any]]:
    for chunk in client.stream("/v1/chat/completions", body, headers):
        event = chunk.get("x_strawberry", {})
        if event.get("kind") == "confirmation":
            assert event["arguments"]["does"]
            client.request(
                "POST", f"/api/turns/{event['turn']}/confirmations/{event['id']}", {"approve": True}
            )
        yield chunk


def _made_in_the_chat(
    home: House, sentences: dict[str, str], words: dict[str, str], *, conversation: str = "{}"
) -> list[Any]:
    """Say sentences in the chat and say yes to each; return what is other than its command makes it.

    Args:
        home: Where it is said.
        sentences: With their commands.
        words: Those of German for values of the commands.
        conversation: Id of the conversation; ``{}`` stands for the number of the sentence.
    """
    for name, value in AT_FIRST.items():
        call = {"device": "house", "skill": "HomeSkill", "method": "sense"}
        home.ask("/api/skills/call", {**call, "kwargs": {"name": name, "value": value}})
    wrong, client, said = list[Any](), home.client, dict[str, Any]()
    for number, sentence in enumerate(sentences):
        body = {"model": "assistant", "stream": True, "messages": [{"role": "user", "content": sentence}]}
        headers = {
            "X-Strawberry-Confirm": "true",
            "X-Strawberry-Conversation": conversation.format(number),
        }
        said[sentence] = [event.get("x_strawberry", {}) for event in _answered(client, body, headers)]
    watchers = {each["title"][:60]: each for each in home.ask("/api/watchers")}
    for sentence, command in sentences.items():
        made = watchers.get(title_of(sentence)[:60])
        if made is None:
            wrong.append((sentence, said[sentence]))
            continue
        when, _, steps = _parts(command)
        then, wanted = _untold(made["then"], {}), _untold(steps, words if sentence in GERMAN.values() else {})
        if (then, {each: made.get(each) for each in when}, made["state"]) != (wanted, when, "active"):
            wrong.append((sentence, then, made["predicate"], made["schedule"], made["state"]))
        assert made["model_calls"] == 0
    return wrong


def _sentences(*, of_a_model: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for command, sentence in ROWS:
        if sentence.startswith("*") is of_a_model:
            found |= {sentence.strip("*"): command, GERMAN[shlex.split(command)[3]]: command}
    return found


def test_most_of_them_are_made_of_one_sentence_in_the_chat(house: tuple[House, Spoke]) -> None:
    sentences = _sentences(of_a_model=False)
    assert len(sentences) >= 28
    wrong = _made_in_the_chat(house[0], sentences, WORDS)
    assert not wrong, "\n".join(map(str, wrong))


def test_one_is_made_by_one_command_and_shown_in_words(house: tuple[House, Spoke]) -> None:
    home, spoke = house
    given = {"name": "level", "value": 0}
    call = {"device": spoke.id, "skill": "HomeSkill", "method": "sense", "kwargs": given}
    home.ask("/api/skills/call", call)
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
    given["value"] = 96
    home.ask("/api/skills/call", call)
    wait_for(lambda: "drain" in spoke.journal(), what="the call")
    assert "next step" in home.cli("watchers", "show", "Tank").stdout
    sentence = "tell me when the level is above 97 for 2 minutes"
    asked = home.cli("watchers", "add", sentence)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "When Home level (house, now 96) goes above 97 for 2 min" in asked.stderr
    made = home.cli("watchers", "add", sentence, "--notify", "It is open", "--yes")
    assert (
        "does         When Home level (house) goes above 97 for 2 min: tell me “It is open”." in made.stdout
    ), made
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
    examples = re.findall(r"^(?:\$ )?strawberry (watchers add .*--(?:topic|ask) .*)$", section, re.MULTILINE)
    assert len(examples) >= 3
    for example in examples:
        done = home.cli(*shlex.split(example), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["note"] == "", example


def test_the_others_are_made_of_one_sentence_by_a_model(
    house: tuple[House, Spoke], model: ScriptedModel
) -> None:
    home, _ = house
    planned = _sentences(of_a_model=True)
    assert len(planned) >= 14

    def reply(seen: SeenRequest) -> Reply:
        said = seen.said("user")[-1]
        # The context before it lists watchers, by their sentences.
        sentence = max(planned, key=said.rfind)
        if seen.tools != ["plan"]:
            watch = f"devices.hub.WatcherSkill.watch({sentence!r})"
            is_made = seen.messages[-1]["role"] == "tool"
            return Says(text="It is made.") if is_made else calls("python_exec", code=watch)
        when, values, steps = _parts(planned[sentence])
        # A model names what it was shown.
        assert all(f"{each} = " in said or f"{each}: " in said for each in values.values())
        return calls("plan", title=title_of(sentence), values=values, then=steps, **when)

    model.script = reply
    home.cli(*setup_of(model))
    wait_for(lambda: "now other" in home.log("hub"), what="the hub to take the model")
    # One conversation has one sandbox process.
    wrong = _made_in_the_chat(home, planned, {}, conversation="planned")
    assert not wrong, "\n".join(map(str, wrong))
