"""How skills become entities of Home Assistant, and what is published of them."""

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field, ValidationError

from agent_core.conversation import take_in
from agent_core.search.directory import RegisteredSkill
from agent_core.skills.loading.exposure import expose
from agent_core.skills.skill import Skill, Unit
from agent_core.tools.skill_calls import Consent
from chat.tasks import open_tasks
from contracts import topics
from contracts.answers.system import Discovery
from contracts.chat.messages import ChatRequest
from contracts.devices.presence import Heartbeat, State, WatcherState
from contracts.devices.registration import Appearance, Registration
from contracts.errors import InvalidMessage, NoModel, TooManyRequests
from hub_agent.tables import ExposureRow
from hub_home_assistant.outward.commands import read_command
from hub_home_assistant.outward.configs import Announcement, Command, Place
from hub_home_assistant.outward.exposures import Exposures
from hub_home_assistant.outward.hub import HubEntities
from hub_home_assistant.outward.publishing import Publishing
from hub_home_assistant.outward.rules import Entity, entities_of
from hub_live.topics import Sample
from hub_registry.access.accounts import User
from hub_registry.storage.store import open_store
from hub_registry.storage.tables import now
from tests.home_assistant.skills import (
    BlindSkill,
    CeilingFanSkill,
    DeskLampSkill,
    DoorSkill,
    PlayerSkill,
    StripLightSkill,
    ThermostatSkill,
)
from tests.home_assistant.test_outward import beside
from tests.hub_agent.home import linked
from tests.hub_registry.spokes import eventually

PLACE = Place.of("hub-0123456789abcdef", "main", "kitchen")


def registered(skill: Skill) -> RegisteredSkill:
    return RegisteredSkill.of(expose(skill)[0].registration, "digest")


def entities(skill: Skill, **values: Any) -> dict[str, Entity]:
    states: dict[str, State | None] = {
        name: None if value is None else State(value=value, at=now()) for name, value in values.items()
    }
    return {each.name: each for each in entities_of(registered(skill), states, {"reached"})}


def announced(*made: Entity) -> Announcement:
    announcement = Announcement(PLACE, {"name": "Kitchen"}, {"name": "Strawberry"})
    for entity in made:
        announcement.add_entity(entity)
    return announcement


def test_a_pair_that_dims_is_a_light_and_takes_its_states() -> None:
    found = entities(DeskLampSkill(), is_on=True, brightness=40, warm=False, gone=None)
    kinds = {name: each.component for name, each in found.items()}
    assert kinds == {"turn_on": "light", "tell": "button", "warm": "binary_sensor", "reached": "event"}
    light = announced(found["turn_on"])
    assert light.states == {
        "strawberry/main/kitchen/state/DeskLampSkill-turn_on": b"ON",
        "strawberry/main/kitchen/state/DeskLampSkill-turn_on/brightness": b"40",
    }
    [config] = light.components.values()
    assert (config["name"], config["brightness_scale"]) == ("Desk lamp", 100)
    assert config["unique_id"] == "strawberry_89abcdef_kitchen-light-DeskLampSkill-turn_on"


@pytest.mark.parametrize(
    ("skill", "values", "component", "shown", "commands"),
    [
        (
            BlindSkill(),
            {"position": 30},
            "cover",
            {"position": "30"},
            {
                ("", "OPEN"): ("open_blind", {}),
                ("", "CLOSE"): ("close_blind", {}),
                ("", "STOP"): ("stop", {}),
                ("position", "40"): ("set_position", {"percent": 40}),
                ("position", "up"): None,
                ("", "PRESS"): None,
            },
        ),
        # One that knows no position is wholly open or closed.
        (BlindSkill(), {"is_open": True}, "cover", {"": "open", "position": "100"}, {}),
        (
            DoorSkill(),
            {"locked": True},
            "lock",
            {"": "LOCKED"},
            {("", "LOCK"): ("lock", {}), ("", "UNLOCK"): ("unlock", {}), ("", "OPEN"): None},
        ),
        (
            ThermostatSkill(),
            {"temperature": 19.5, "target_temperature": 20, "mode": "auto"},
            "climate",
            {"current": "19.5", "target": "20", "mode": "auto"},
            {
                ("target", "21.5"): ("set_temperature", {"degrees": 21.5}),
                ("mode", "heat"): ("set_mode", {"mode": "heat"}),
                ("mode", "cool"): None,
            },
        ),
        (
            CeilingFanSkill(),
            {"is_on": False, "speed": 2},
            "fan",
            {"": "OFF", "speed": "2"},
            {("", "ON"): ("turn_on", {}), ("speed", "3"): ("set_speed", {"speed": 3}), ("speed", "x"): None},
        ),
        (
            StripLightSkill(),
            {"is_on": True, "color": "#FF0010"},
            "light",
            {"": "ON", "color": "#ff0010"},
            {("color", "#00ff00"): ("set_color", {"color": "#00ff00"}), ("color", "url(x)"): None},
        ),
    ],
)
def test_methods_and_states_that_belong_together_are_one_entity(
    skill: Skill,
    values: dict[str, Any],
    component: str,
    shown: dict[str, str],
    commands: dict[tuple[str, str], tuple[str, dict[str, Any]] | None],
) -> None:
    found = {
        name: each for name, each in entities(skill, **values).items() if name not in ("tell", "reached")
    }
    [entity] = [each for each in found.values() if each.component == component]
    others = {each.component for each in found.values()} - {component}
    assert others <= {"sensor"}, found
    made = announced(entity)
    topic = f"strawberry/main/kitchen/{{}}/{entity.object}"
    assert {
        each.removeprefix(topic.format("state")).strip("/"): text.decode()
        for each, text in made.states.items()
    } == shown
    for (part, payload), call in commands.items():
        command = made.commands["/".join(filter(None, (topic.format("set"), part)))]
        assert isinstance(command, Command)
        if call is not None:
            assert read_command(command, payload) == call
            continue
        with pytest.raises(InvalidMessage):
            read_command(command, payload)


def test_names_are_in_the_language_of_the_household() -> None:
    class CornerLampSkill(Skill):
        """A lamp."""

        labels: ClassVar = {"de": {"CornerLampSkill": "Ecklampe", "blink": "Blinken"}}

        def blink(self) -> None:
            """Blink."""

        def set_speed(self, percent: int) -> None:
            """Set it."""

        def wave(self) -> None:
            """Wave."""

    found = entities_of(registered(CornerLampSkill()), {}, set(), "de")
    assert [each.label for each in found] == ["Ecklampe Blinken", "Ecklampe Geschwindigkeit", "Ecklampe wave"]
    english = entities_of(registered(CornerLampSkill()), {}, set())
    assert [each.label for each in english] == ["Corner lamp blink", "Corner lamp speed", "Corner lamp wave"]


def test_a_thermostat_in_fahrenheit_has_its_bounds() -> None:
    class HallHeatingSkill(Skill):
        """A heating."""

        def set_temperature(self, degrees: float) -> None:
            """Heat."""

    class DenHeatingSkill(Skill):
        """One that publishes no unit."""

        def set_temperature(self, degrees: Annotated[float, Unit("°F"), Field(le=90)]) -> None:
            """Heat."""

    for skill, unit, most in ((HallHeatingSkill(), "°F", 95), (DenHeatingSkill(), None, 90)):
        states = {"temperature": State(value=68, unit=unit, at=now())}
        [config] = announced(*entities_of(registered(skill), states, set())).components.values()
        given = config["temperature_unit"], config["min_temp"], config["max_temp"]
        assert given == ("F", 41, most), skill


def test_a_cover_that_publishes_no_position_shows_where_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = None
    publishing = Publishing({}, *[nothing] * 5)  # type: ignore[arg-type]
    monkeypatch.setattr(publishing, "refresh", lambda _: None)
    [entity] = [each for each in entities(BlindSkill()).values() if each.component == "cover"]
    commands = announced(entity).commands
    orders = f"strawberry/main/kitchen/set/{entity.object}"
    for topic, text, position in (
        (orders, "CLOSE", b"0"),
        (f"{orders}/position", "40", b"40"),
        (orders, "STOP", b"40"),
        (orders, "OPEN", b"100"),
    ):
        command = commands[topic]
        assert isinstance(command, Command)
        publishing.assume(topic, command, text)
        made = Announcement(PLACE, {}, {}, publishing._assumed)
        made.add_entity(entity)
        assert made.states[f"{orders.replace('/set/', '/state/')}/position"] == position


def test_what_opens_a_door_needs_an_exposure_of_its_own() -> None:
    class CarSkill(Skill):
        """A garage."""

        def open_garage(self) -> None:
            """Open it."""

        def close_garage(self) -> None:
            """Close it."""

    for skill, opening in ((DoorSkill(), {"off"}), (CarSkill(), {"on", "set"}), (BlindSkill(), set())):
        [entity] = [each for each in entities(skill).values() if each.component in ("cover", "lock")]
        assert (entity.opening, entity.only_by_name) == (opening, False)


def test_what_asks_is_in_nothing_and_what_can_lose_something_is_only_there_by_name() -> None:
    found = entities(PlayerSkill())
    assert "sell" not in found
    assert "hidden" not in found
    assert [name for name, each in found.items() if each.only_by_name] == ["erase"]
    assert found["play"].label == "Start the music"


def test_states_are_text_that_home_assistant_takes() -> None:
    node = {"state": "running", "restarts": 2}
    found = entities(PlayerSkill(), playlist=["a", "b"], node=node, song="x" * 300, level=1.5)
    made = announced(*(found[name] for name in ("playlist", "node", "song", "level")))
    said = {topic.rpartition("-")[2]: payload.decode() for topic, payload in made.states.items()}
    assert {name: said[name] for name in ("playlist", "node", "level")} == {
        "playlist": "2",
        "node": "running",
        "level": "1.5",
    }
    assert len(said["song"]) == 255
    assert json.loads(said["node/attributes"]) == node
    level = made.components["sensor", "PlayerSkill-level"]
    assert level["state_class"] == "measurement"


def test_a_number_larger_than_any_that_home_assistant_has_is_text() -> None:
    made = announced(entities(PlayerSkill(), level=10**400)["level"])
    [config] = made.components.values()
    assert "state_class" not in config


def test_a_class_that_home_assistant_does_not_know_costs_only_the_class() -> None:
    state = State(value=3, unit="x", device_class="mood", at=now())
    [mood] = [
        each for each in entities_of(registered(PlayerSkill()), {"mood": state}, set()) if each.name == "mood"
    ]
    [config] = announced(mood).components.values()
    assert "device_class" not in config
    assert config["unit_of_measurement"] == "x"


@pytest.mark.parametrize(
    ("name", "verb", "payload", "call"),
    [
        ("play", "press", "PRESS", ("play", {})),
        ("set_volume", "set", "30.0", ("set_volume", {"level": 30})),
        ("set_source", "set", "disc", ("set_source", {"source": "disc"})),
        ("set_shuffle", "set", "OFF", ("set_shuffle", {"on": False})),
        ("play", "press", "ON", None),
        ("set_volume", "set", "loud", None),
        ("set_volume", "set", "NaN", None),
        ("set_volume", "set", f"1{'0' * 400}", None),
        ("set_volume", "set", "true", None),
        ("set_source", "set", "tape", None),
        ("set_shuffle", "set", "on", None),
    ],
)
def test_a_payload_is_a_call_or_is_refused(name: str, verb: Any, payload: str, call: Any) -> None:
    command = Command("kitchen.PlayerSkill.x", entities(PlayerSkill())[name], verb)
    if call is not None:
        assert read_command(command, payload) == call
        return
    with pytest.raises(InvalidMessage):
        read_command(command, payload)


def test_a_device_announces_itself_with_all_parts_and_names_those_that_went() -> None:
    found = entities(PlayerSkill())
    messages = announced(found["play"], found["set_volume"]).messages(
        "device", {("button", "PlayerSkill-stop")}
    )
    [(topic, payload)] = messages.items()
    assert topic == "homeassistant/device/strawberry_89abcdef_kitchen/config"
    config = json.loads(payload)
    assert set(config) == {"device", "origin", "components"}
    parts = config["components"]
    assert parts.pop("button-PlayerSkill-stop") == {"platform": "button"}
    assert {name: each["platform"] for name, each in parts.items()} == {
        "button-PlayerSkill-play": "button",
        "number-PlayerSkill-set_volume": "number",
    }


COMMON = {
    *("name", "unique_id", "object_id", "default_entity_id", "icon", "entity_category"),
    *("availability", "availability_mode", "json_attributes_topic"),
}
NEEDED_AND_KNOWN: dict[str, tuple[set[str], set[str]]] = {
    "binary_sensor": ({"state_topic"}, {"device_class"}),
    "button": ({"command_topic"}, {"device_class"}),
    "event": ({"state_topic", "event_types"}, {"device_class"}),
    "light": (
        {"command_topic"},
        {"state_topic", "brightness_command_topic", "brightness_state_topic", "brightness_scale"},
    ),
    "notify": ({"command_topic"}, set()),
    "number": (
        {"command_topic"},
        {"state_topic", "min", "max", "step", "unit_of_measurement", "device_class"},
    ),
    "select": ({"command_topic", "options"}, {"state_topic"}),
    "sensor": ({"state_topic"}, {"unit_of_measurement", "device_class", "state_class"}),
    "switch": ({"command_topic"}, {"state_topic", "device_class"}),
    "text": ({"command_topic"}, {"state_topic", "max", "value_template"}),
}
"""Fields of the components, as the documentation of Home Assistant's MQTT integration has them."""


def test_the_announcement_of_a_device_is_as_newer_versions_want_it() -> None:
    """They refuse all of it for one part that is not: 2024.3.3, which runs in the tests, knows none."""
    found = {**entities(DeskLampSkill(), is_on=True, brightness=40, warm=21.5, wet=False)}
    found |= entities(PlayerSkill(), song={"title": "x"})
    made = announced(*found.values())
    made.device["identifiers"] = [PLACE.node]
    parts_of_hub(discovery="device").extend(made)
    [(topic, payload)] = made.messages("device", {("button", "gone")}).items()
    assert re.fullmatch(r"homeassistant/device/[a-zA-Z0-9_-]+/config", topic)
    config = json.loads(payload)
    assert config["device"]["identifiers"]
    assert config["origin"]["name"] == "Strawberry"
    assert config["components"].pop("button-gone") == {"platform": "button"}
    seen = set()
    for name, part in config["components"].items():
        assert re.fullmatch(r"[a-zA-Z0-9_-]+", name)
        seen.add(component := part.pop("platform"))
        needed, known = NEEDED_AND_KNOWN[component]
        assert needed | {"unique_id"} <= part.keys() <= needed | known | COMMON, name
        assert part["default_entity_id"].partition(".")[0] == component
    assert seen == NEEDED_AND_KNOWN.keys()


@pytest.mark.parametrize(
    ("class_", "unit", "stays"),
    [
        ("temperature", "°C", True),
        ("temperature", "degrees", False),
        ("temperature", None, True),
        ("pm25", "µg/m³", True),
        ("ph", "x", False),
        ("monetary", "EUR", True),
    ],
)
def test_a_unit_that_its_class_does_not_have_costs_only_the_class(
    class_: str, unit: str | None, *, stays: bool
) -> None:
    state = State(value=3, unit=unit, device_class=class_, at=now())
    found = entities_of(registered(PlayerSkill()), {"level": state}, set())
    [config] = announced(*(each for each in found if each.name == "level")).components.values()
    assert config.get("unit_of_measurement") == unit
    assert ("device_class" in config) is stays


def test_the_range_of_a_number_is_never_empty() -> None:
    class HeaterSkill(Skill):
        """A heater."""

        def set_kelvin(self, kelvin: Annotated[int, Field(ge=200)]) -> None:
            """Heat."""

        def set_cold(self, cold: Annotated[int, Field(le=-10)]) -> None:
            """Cool."""

    found = entities(HeaterSkill())
    numbers = (found[name].appearance for name in ("set_kelvin", "set_cold"))
    assert [(each.least, each.most) for each in numbers] == [(200, 300), (-110, -10)]


@pytest.mark.parametrize(
    "field",
    [{"component": "camera"}, {"icon": "javascript:x"}, {"device_class": "A B"}, {"least": float("nan")}],
)
def test_what_a_skill_says_of_itself_is_bounded(field: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Registration.model_validate({"skill": "ASkill", "methods": [], "homeassistant": {"x": field}})
    assert Appearance.model_validate({"component": "button", "command_topic": "a"}) == Appearance(
        component="button"
    )


@pytest.fixture
async def exposures(tmp_path: Path) -> AsyncIterator[Exposures]:
    async with open_store(tmp_path / "hub.db") as store:
        yield Exposures(store)


async def test_the_nearest_decision_counts_also_after_a_restart(exposures: Exposures) -> None:
    await exposures.show("kitchen", user="ann")
    await exposures.hide("kitchen.LampSkill", user="ann")
    await exposures.show("kitchen.LampSkill.turn_on", user="ben")
    again = Exposures(exposures._store)
    await again.load()
    for known in (exposures, again):
        shown = {
            path: found.user
            for path in (
                "kitchen",
                "kitchen.PlayerSkill.play",
                "kitchen.LampSkill.tell",
                "kitchen.LampSkill.turn_on",
            )
            if (found := known.find(path)) is not None
        }
        assert shown == {
            "kitchen": "ann",
            "kitchen.PlayerSkill.play": "ann",
            "kitchen.LampSkill.turn_on": "ben",
        }
    await exposures.forget_person("ann")
    assert [each.path for each in exposures.all()] == ["kitchen.LampSkill.turn_on"]
    await exposures.hide("kitchen", user="ben")
    assert exposures.all() == []


def parts_of_hub(
    ask: Any = None, *, events: Any = None, discovery: Discovery = "entity", tasks: Any = None
) -> HubEntities:
    """Everything that the hub can show, exposed by Ann."""
    exposed: Any = SimpleNamespace(find=lambda path: ExposureRow(path=path, shown=True, user="ann", at=now()))
    publishing: Any = SimpleNamespace(
        exposures=exposed, discovery=discovery, tasks=tasks, refresh=lambda _: None
    )
    parts = HubEntities(registry_of_ann(), ask, events, publishing)
    state = WatcherState(name="warm", state="active", at=now())
    topic = topics.WATCHER.build(user="admin", watcher="w1")
    parts.hear_watcher(Sample("bus", topic, 0.0, state.model_dump_json().encode()))
    return parts


def test_the_hub_has_a_link_to_its_pages() -> None:
    publishing = parts_of_hub()._publishing
    nothing: Any = None
    place = partial(Place.of, "hub-0123456789abcdef", "main")
    made = Publishing({}, publishing.exposures, nothing, "entity", place, nothing)  # type: ignore[arg-type]
    made.extend, made.url = parts_of_hub().extend, "https://hub.local:8443/"
    announced = made._announce("hub")
    assert announced is not None
    assert announced.device["configuration_url"] == "https://hub.local:8443"


def test_a_device_that_publishes_ever_new_properties_fills_no_memory() -> None:
    nothing: Any = None
    publishing = Publishing({"pc": nothing}, *[nothing] * 5)  # type: ignore[arg-type]
    payload = b'{"v": 1, "kind": "state", "value": 1, "at": "2026-01-01T00:00:00Z"}'

    def hear(skill: str, name: str, payload: bytes) -> None:
        topic = topics.STATE.build(device="pc", skill=skill, property=name)
        publishing.hear_state(Sample("bus", topic, 0.0, payload))

    for number in range(3_000):
        hear(f"A{number % 3}Skill", f"p{number}", payload)
    assert sum(map(len, publishing._values.values())) == 1_000
    hear("A0Skill", "p0", payload.replace(b"1,", b'"' + bytes(70_000) + b'",', 2))
    assert publishing._values["pc", "A0Skill"]["p0"] is None
    hear("A1Skill", "later", payload)
    assert publishing._values["pc", "A1Skill"]["later"] is not None


def registry_of_ann() -> Any:
    async def get(user: str) -> User:
        return User(user, "Ann", "admin")

    return SimpleNamespace(hub_id="hub-1", accounts=SimpleNamespace(get=get))


async def test_what_is_asked_over_the_broker_is_text_of_strangers() -> None:
    asked: list[ChatRequest] = []

    async def ask(request: ChatRequest, _: Any) -> Any:
        asked.append(request)
        raise NoModel("that is enough")

    async with open_tasks() as tasks:
        with pytest.raises(NoModel):
            await parts_of_hub(ask, tasks=tasks)._turn("wipe the disk", "ann")
    consent = Consent(None)
    take_in(consent, (), reader=None, notes=asked[0].notes)
    assert consent.untrusted


async def test_a_circle_through_an_automation_slows_down_to_a_message_each_ten_seconds() -> None:
    asked: list[str] = []

    async def ask(request: ChatRequest, _: Any) -> Any:
        asked.append(request.message)
        # What the assistant does has the automation write again.
        with suppress(TooManyRequests):
            parts._say("and again")
        raise NoModel("that is enough")

    async with open_tasks() as tasks:
        parts = parts_of_hub(ask, tasks=tasks)
        parts._say("turn on the lamp")
        await eventually(lambda: parts._waiting == 0)
    assert len(asked) >= 20


async def test_another_area_announces_a_device_again_once_and_touches_no_availability(tmp_path: Path) -> None:
    heard: dict[str, list[bytes]] = defaultdict(list)

    def area(config: bytes) -> str | None:
        return json.loads(config)["device"].get("suggested_area", "none") if config else None

    def announced_in(name: str) -> bool:
        configs = [each for topic, each in heard.items() if topic.endswith("/config")]
        return len(configs) == 5 and all(area(each[-1]) == name for each in configs)

    async with beside(tmp_path / "home", None) as home, home.home.client() as client:
        asked = {"name": "home_assistant", "home_assistant": True}
        made = (await client.post("/api/clients", json=asked)).json()
        async with linked(home.home.login("home_assistant", made["password"])) as link:
            for branch in topics.HOME_BRANCHES:
                await link.subscribe(branch, lambda each: heard[each.topic].append(each.payload))
            await home.expose("kitchen.DeskLampSkill")
            await eventually(lambda: announced_in("Kitchen"))
            await eventually(lambda: "strawberry/main/kitchen/availability" in heard)
            heard.clear()
            await home.change(area="Cellar")
            await eventually(lambda: announced_in("Cellar"))
            await home.change(area="")
            await eventually(lambda: announced_in("none"))
            await home.change(area="Attic")
            await eventually(lambda: announced_in("Attic"))
            # All that it was told before this is heard by then.
            await home.hide("kitchen.DeskLampSkill")
            configs = {topic: each for topic, each in heard.items() if topic.endswith("/config")}
            await eventually(lambda: all(each[-1] == b"" for each in configs.values()))
    for sent in configs.values():
        # A device without an area takes one in Home Assistant, and need not go for that.
        assert [area(each) for each in sent] == [None, "Cellar", None, "none", "Attic", None]
    assert not [topic for topic in heard if "availability" in topic and heard[topic][0] != b""]


async def test_a_device_shows_its_battery_and_the_last_problem_of_a_command(tmp_path: Path) -> None:
    heard: dict[str, bytes] = {}
    async with beside(tmp_path / "home", None) as home, home.home.client() as client:
        asked = {"name": "home_assistant", "home_assistant": True}
        made = (await client.post("/api/clients", json=asked)).json()
        async with linked(home.home.login("home_assistant", made["password"])) as link:

            async def commanded(payload: bytes, problem: Callable[[str], bool]) -> None:
                await link.publish("strawberry/main/kitchen/set/PlayerSkill-set_volume", payload)
                await eventually(
                    lambda: problem(heard.get("strawberry/main/kitchen/state/problem", b"").decode())
                )

            for branch in topics.HOME_BRANCHES:
                await link.subscribe(branch, lambda each: heard.update({each.topic: each.payload}))
            await home.expose("kitchen")
            heartbeat = Heartbeat(seq=2, uptime_s=5, battery=42).model_dump_json().encode()
            await home.device.spoke.link.publish(topics.HEARTBEAT.build(device=home.device.id), heartbeat)
            await eventually(lambda: heard.get("strawberry/main/kitchen/state/battery") == b"42")
            [config] = [json.loads(heard[topic]) for topic in heard if topic.endswith("/battery/config")]
            assert (config["device_class"], config["entity_category"]) == ("battery", "diagnostic")
            await commanded(b"loud", lambda shown: "olume" in shown)
            await commanded(b"30", lambda shown: shown == "none")
