"""Entities that the Home Assistant in the tests does not have: floors, hostile names, Zigbee2MQTT alone."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hassil import parse_sentence
from hassil.sample import sample_sentence
from pydantic import SecretStr

from bus.link import LinkSettings
from contracts.devices.rpc import Actor
from contracts.errors import CallError, Forbidden
from deploy.cli.main import main
from hub_agent.calls.own_skills import Asking
from hub_agent.settings import HomeAssistantAccess, HomeLinkSettings
from hub_home_assistant.inward.client import services_in
from hub_home_assistant.inward.control import Control, Rules
from hub_home_assistant.inward.entities import Entity, Place, State
from hub_live.notifications import announce_missing_values
from tests.hub_agent.home import Home, linked, open_home, says
from tests.hub_home_assistant.recorded import TOKEN, Recorded, recorded
from tests.hub_live.test_world import DOOR, LAMP, ZIGBEE, announce
from tests.hub_registry.spokes import eventually
from tests.hub_server.test_http_direct_calls import call, post
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.requirements import require

AREAS = [
    {"area_id": "bed", "name": "Bedroom", "aliases": ["Schlafzimmer"], "floor_id": "up"},
    {"area_id": "hall", "name": "Hall", "aliases": []},
]
KINDS = (
    "binary_sensor", "climate", "cover", "fan", "input_boolean", "light", "lock", "media_player", "scene",
    "script", "sensor", "switch", "vacuum", "valve",
)  # fmt: skip
FLOORS = [{"floor_id": "up", "name": "Upstairs", "aliases": ["first floor"], "level": 1}]


def lamp(name: str, area: str | None = None, **entry: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "off", {"friendly_name": name}, {"area_id": area, "platform": "demo", "unique_id": name, **entry}


@pytest.fixture
async def assistant() -> AsyncIterator[Recorded]:
    entities = {
        "light.bed": lamp("Reading Lamp", "bed"),
        "light.ceiling_up": lamp("Ceiling", "bed"),
        "light.ceiling_down": lamp("Ceiling", "hall"),
        "light.odd": lamp("[a|b] {name} <rule> (x)\x1b[31m\u202e\n", "hall"),
        "light.ours": lamp("Our Lamp", platform="mqtt", unique_id="strawberry_1234_pc-light-lamp"),
        "light.hidden": lamp("Hidden Lamp", hidden_by="user"),
        "light.withheld": lamp("Withheld Lamp", "hall"),
        "light.dead": ("unavailable", {"friendly_name": "Dead Lamp"}, {"area_id": "hall"}),
        "light.status": lamp("Status Light", "hall", entity_category="diagnostic"),
        "sensor.far": ("50", {"device_class": "temperature", "unit_of_measurement": "°C"}, {}),
        "climate.hall": ("heat", {"friendly_name": "Heater", "current_temperature": 70}, {"area_id": "hall"}),
        "cover.left": ("closed", {"friendly_name": "Left", "device_class": "garage"}, {"hidden_by": "user"}),
        "cover.all": ("closed", {"friendly_name": "All Covers", "entity_id": ["cover.left"]}, {}),
        "light.group": (
            "off",
            {"friendly_name": "Everything", "entity_id": [f"light.far_{number}" for number in range(6)]},
            {},
        ),
    }
    withheld = {"light.withheld"}
    async with recorded(entities=entities, areas=AREAS, floors=FLOORS, withheld=withheld) as running:
        yield running


@pytest.fixture
async def home(assistant: Recorded, tmp_path: Path) -> AsyncIterator[Home]:
    access = HomeAssistantAccess(url=assistant.url, token=SecretStr(TOKEN))
    async with open_home(tmp_path / "home", home_assistant_access=access) as opened:
        await eventually(lambda: opened.hub.live.home_assistant.client.health().connected)
        await eventually(lambda: opened.hub.registry.search.sync() is None)
        yield opened


async def answer(home: Home, text: str, **more: Any) -> str:
    async with home.client() as client:
        response = await client.post("/v1/chat/completions", json=says(text, **more))
    return str(response.json()["choices"][0]["message"]["content"])


async def test_floors_are_places_and_the_same_name_is_told_apart_by_the_area(
    home: Home, assistant: Recorded
) -> None:
    assert (
        await answer(home, "turn on the lights on the first floor") == "Turned on Reading Lamp and Ceiling."
    )
    assert assistant.called[-1]["target"] == {"entity_id": ["light.bed", "light.ceiling_up"]}
    assert "2 entities are named" in await answer(home, "turn on the ceiling")
    await answer(home, "turn on the hall ceiling")
    assert assistant.called[-1]["target"] == {"entity_id": ["light.ceiling_down"]}
    assert await answer(home, "turn off the hall ceiling in 1 second") == "I will do that in 1 s."
    await eventually(lambda: assistant.called[-1]["service"] == "turn_off")
    async with home.client() as client:
        body = {"topic": "light/bed", "payload": "on", "link": "home_assistant"}
        assert (await client.post("/api/bus/publish", json=body)).status_code == 403
        found = await post(client, call("hub", "HomeAssistantSkill.find", floor="upstairs"))
    assert [each["floor"] for each in found[1]["entities"]] == ["Upstairs", "Upstairs"]


@pytest.mark.parametrize("language", ["en", "de"])
async def test_all_that_speech_to_text_listens_for_is_understood(tmp_path: Path, language: str) -> None:
    entities = {
        f"{domain}.one": ("on", {"friendly_name": f"My {domain}".replace("_", " ")}, {"area_id": "bed"})
        for domain in KINDS
    }
    async with (
        recorded(entities=entities, areas=AREAS, floors=FLOORS) as assistant,
        open_home(
            tmp_path / "home",
            home_assistant_access=HomeAssistantAccess(url=assistant.url, token=SecretStr(TOKEN)),
        ) as home,
    ):
        search = home.hub.registry.search
        await eventually(lambda: home.hub.live.home_assistant.client.health().connected)
        await eventually(lambda: search.sync() is None)
        await search.warm(language)
        missed: list[str] = []
        sentences = (await search.vocabulary(language, current=None)).sentences
        for sentence in sentences:
            if not all(each.is_number or each.values for each in sentence.slots.values()):
                continue  # free words
            for way in sorted(set(sample_sentence(parse_sentence(sentence.text), expand_lists=False))):
                text = way
                for slot, values in sentence.slots.items():
                    text = text.replace(f"{{{slot}}}", "30" if values.is_number else values.values[0])
                if await search.understand(text, language=language, current=None) is None:
                    missed.append(text)
        assert not missed


async def test_what_a_device_in_an_area_hears_means_what_is_there(home: Home, assistant: Recorded) -> None:
    device = await home.device("Bedside Pi")
    async with home.client() as client:
        await client.patch(f"/api/devices/{device.id}", json={"area": "Schlafzimmer"})
    async with home.client(device.token) as client:
        await client.post("/v1/chat/completions", json=says("turn on the ceiling"))
    assert assistant.called[-1]["target"] == {"entity_id": ["light.ceiling_up"]}


async def test_hostile_names_are_values_and_ours_and_hidden_ones_are_not_there(
    home: Home, assistant: Recorded
) -> None:
    said = await answer(home, "turn on [a|b] {name} <rule> (x) [31m")
    assert said == "Turned on [a|b] {name} <rule> (x) [31m."
    assert assistant.called[-1]["target"] == {"entity_id": ["light.odd"]}
    ids = set(home.hub.live.home_assistant.client.entities.by_id)
    assert ids == {
        "light.bed",
        "light.ceiling_up",
        "light.ceiling_down",
        "light.odd",
        "light.group",
        "light.dead",
        "light.status",
        "climate.hall",
        "sensor.far",
        "cover.all",
    }
    for sentence in ("turn on everything", "open all covers"):
        assert "I cannot ask here" in await answer(home, sentence)
    assert len(assistant.called) == 1
    # To close them is safe.
    assert await answer(home, "close all covers") == "Closing All Covers."


async def test_what_cannot_be_reached_is_named_and_left_out(home: Home, assistant: Recorded) -> None:
    said = await answer(home, "turn on the dead lamp")
    assert said.startswith("Dead Lamp cannot be reached.")
    assert assistant.called == []
    # Of an area, neither what is withheld from Assist nor the diagnosis of a device.
    said = await answer(home, "turn off the lights in the hall")
    assert said.startswith("Turned off Ceiling and")
    assert said.endswith("(x) [31m. Dead Lamp cannot be reached.")
    assert assistant.called[-1]["target"] == {"entity_id": ["light.ceiling_down", "light.odd"]}
    assert await answer(home, "what is the temperature in the hall") == "It is 70 °F."


async def test_who_watches_or_records_what_assist_does_not_have_is_told_once(home: Home) -> None:
    light = {"topic": "light/withheld", "link": "home_assistant"}
    why = (
        "light.withheld is not exposed to Assist in Home Assistant; "
        "the page Home Assistant can allow everything"
    )
    events, live = home.hub.live.events, home.hub.live
    async with home.client() as client:
        watcher = {"topics": {"lamp": {**light, "value": "state"}}, "predicate": "lamp == 'on'"}
        body = {"name": "lit", "instruction": "Tell me.", **watcher}
        assert (await client.post("/api/watchers", json=body)).json()["note"] == why
        wrong = {**body, "name": "wrong", "topics": {"lamp": {**light, "topic": "ligt/ceiling_down"}}}
        made = (await client.post("/api/watchers", json=wrong)).json()
        assert made["note"].endswith("ligt.ceiling_down yet; did you mean 'light.ceiling_down'?")
        await client.delete("/api/watchers/wrong")
        await client.post("/api/captures", json={"topics": [light], "path": "lamp.jsonl"})
        for _ in range(2):
            await announce_missing_values(live.without_values(), events)
        (told,) = await events.after(0, user="admin", kinds=["notification"])
        assert told.data["text"] == f"There are no values for lamp: {why}; lit: {why}."
        assert (await client.get("/api/health")).json()["without_values"] == 2
        await client.post("/api/watchers/lit/pause")
        assert (await client.get("/api/health")).json()["without_values"] == 1


async def test_only_admins_are_told_the_address(home: Home, assistant: Recorded) -> None:
    async with home.client() as client:
        assert "url" not in (await client.get("/api/health")).json()["home_assistant"]
        assert (await client.get("/api/home-assistant")).json()["address"] == assistant.url


async def test_a_refused_token_is_told_and_stands_in_no_log(
    assistant: Recorded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    access = HomeAssistantAccess(url=assistant.url, token=SecretStr("wrong-token-of-ann"))
    async with open_home(tmp_path / "home", home_assistant_access=access) as home:
        health = home.hub.live.home_assistant.client.health
        await eventually(lambda: health().error == "Home Assistant refuses the token")
        # The same settings are tried again at once, and others count at once.
        tried = assistant.refused
        home.hub.live.home_assistant.client.use(access)
        await eventually(lambda: assistant.refused > tried)
        home.hub.live.home_assistant.client.use(access.model_copy(update={"token": SecretStr(TOKEN)}))
        await eventually(lambda: health().connected)
        home.hub.live.home_assistant.client.use(None)
        await eventually(lambda: "HomeAssistantSkill" not in home.hub.registry.directory.hub.skills)
        assert health() is None
    assert "wrong-token-of-ann" not in caplog.text
    assert TOKEN not in caplog.text


async def test_a_connection_that_was_good_is_tried_again_at_once(
    assistant: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a reset the waits would come to more than an hour.
    monkeypatch.setattr("hub_home_assistant.limits.RECONNECT_S", (0.01, 10_000.0))
    monkeypatch.setattr("hub_home_assistant.limits.STEADY_S", 0.0)
    assistant.hangs_up = True
    access = HomeAssistantAccess(url=assistant.url, token=SecretStr(TOKEN))
    async with open_home(tmp_path / "home", home_assistant_access=access):
        await eventually(lambda: assistant.connected > 20)


async def test_a_notification_goes_to_an_entity_where_there_is_one_else_to_a_service(tmp_path: Path) -> None:
    async with recorded(entities={"notify.phone": ("unknown", {}, {})}) as assistant:
        access = HomeAssistantAccess(url=assistant.url, token=SecretStr(TOKEN))
        async with open_home(tmp_path / "home", home_assistant_access=access) as home:
            client = home.hub.live.home_assistant.client
            await eventually(lambda: home.hub.live.home_assistant.client.health().connected)
            for name in ("notify.phone", "notify.mobile_app_phone"):
                await client.notify(name, {"message": "Rain."})
    entity, service = assistant.called
    assert (entity["service"], entity["target"]) == ("send_message", {"entity_id": ["notify.phone"]})
    assert (service["domain"], service["service"], "target" in service) == (
        "notify",
        "mobile_app_phone",
        False,
    )


async def test_setup_tries_it_and_writes_nothing_that_does_not_work(
    assistant: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRAWBERRY_HOME", str(tmp_path))
    (tmp_path / "strawberry.toml").write_text("# mine\n[household]\nlanguage = 'de'\n")

    async def setup(url: str, token: str, *more: str) -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{token}\n"))
        arguments = ["setup", "home-assistant", "--url", url, "--token-stdin", *more]
        return await asyncio.to_thread(main, arguments)

    for url, token, said in (
        (assistant.url, "wrong", "refuses the token"),
        ("http://127.0.0.1:1", TOKEN, "there is no Home Assistant at 127.0.0.1:1"),
        ("ftp://x", TOKEN, "is no address"),
        (assistant.url, "", "this is not a token"),
    ):
        assert await setup(url, token) == 1
        assert said in capsys.readouterr().err
    assert not (tmp_path / ".env").exists()
    assert await setup(assistant.url, TOKEN) == 0
    said = capsys.readouterr().out
    assert "2024.4.0: 13 of 14 entities are exposed to Assist; these are used.\n" in said
    text = (tmp_path / "strawberry.toml").read_text()
    assert text.startswith("# mine\n[household]")
    assert f'url = "{assistant.url}"' in text
    assert TOKEN not in text
    assert f"HOME_ASSISTANT_TOKEN={TOKEN}" in (tmp_path / ".env").read_text()


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Mosquitto]:
    """The home's own broker."""
    require(find_mosquitto() is not None, HINT)
    (tmp_path / "there").mkdir()
    with Mosquitto(tmp_path / "there") as broker:
        yield broker


async def test_zigbee2mqtt_alone_has_the_same_sentences_and_methods(tmp_path: Path, there: Mosquitto) -> None:
    link = HomeLinkSettings(url=there.url)
    blind = {
        "friendly_name": "Blind",
        "definition": {
            "exposes": [
                {
                    "type": "cover",
                    "features": [
                        {"type": "enum", "name": "state", "property": "state", "access": 3},
                        {"type": "numeric", "name": "position", "property": "position", "access": 7},
                    ],
                }
            ]
        },
    }
    async with (
        open_home(tmp_path / "home", home_link=link) as home,
        linked(LinkSettings(urls=(there.url,), client_id="zigbee2mqtt")) as zigbee,
    ):
        assert "HomeAssistantSkill" not in home.hub.registry.directory.hub.skills
        sent: list[tuple[str, bytes]] = []
        await zigbee.subscribe("zigbee2mqtt/+/set", lambda each: sent.append((each.topic, each.payload)))
        await announce(zigbee, ZIGBEE, [LAMP, blind, DOOR])
        await announce(zigbee, "zigbee2mqtt/Front door", {"contact": True})
        await announce(zigbee, "zigbee2mqtt/Kitchen lamp", {"state": "OFF", "power": 9})
        skill = home.hub.live.home_assistant.skill
        await eventually(lambda: skill.is_offered)
        await eventually(lambda: home.hub.registry.search.sync() is None)
        await eventually(lambda: home.hub.live.feed.latest("zigbee2mqtt/Kitchen lamp", "home"))
        await eventually(lambda: home.hub.live.feed.latest("zigbee2mqtt/Front door", "home"))
        assert await answer(home, "is the front door open") == "No, closed."
        assert await answer(home, "is the kitchen lamp on") == "No, off."
        assert await answer(home, "turn on the kitchen lamp") == "Turned on Kitchen lamp."
        assert await answer(home, "set the kitchen lamp to 50 %") == "Set Kitchen lamp to 50 %."
        assert await answer(home, "open the blind") == "Opening Blind."
        assert await answer(home, "set the blind to 30 percent") == "Set Blind to 30 %."
        expected = [
            ("Kitchen lamp", b'{"state":"ON"}'),
            ("Kitchen lamp", b'{"state":"ON","brightness":127}'),
            ("Blind", b'{"state":"OPEN"}'),
            ("Blind", b'{"position":30.0}'),
        ]
        await eventually(lambda: len(sent) == len(expected))
        assert [(topic.split("/")[1], payload.replace(b" ", b"")) for topic, payload in sent] == expected
        await announce(zigbee, ZIGBEE, [])
        await eventually(lambda: not skill.is_offered)


@pytest.mark.parametrize(
    "scripts",
    [
        {"script.a": {"service": "script.turn_on", "target": {"entity_id": ["script.b"]}}},
        {"script.a": {"action": "homeassistant.turn_on", "data": {"entity_id": "light.x, script.b"}}},
        {f"script.{at or 'a'}": {"service": f"script.{at + 1}"} for at in range(40)},
        {"script.a": {"service_template": " Conversation.Process"}},
        {"script.a": {"service": "{{ 'conversation' }}.process"}},
        {"script.a": {"service": "script.{{ 'b' }}"}},
        {"script.a": {"action": "homeassistant.toggle", "target": {"entity_id": "{{ 'script.b' }}"}}},
        {"script.a": {"service": "automation.trigger", "entity_id": "automation.b"}},
        {"script.a": {"service": "automation.trigger", "entity_id": "all"}},
        {"script.a": {"service": "script.turn_on", "target": {"label_id": "talk"}}},
        {"script.a": {"service": "script.turn_on", "target": {"entity_id": ["group.scripts"]}}},
    ],
)
async def test_no_way_through_scripts_leads_to_an_assistant(scripts: dict[str, Any]) -> None:
    ask = {"service": "conversation.process"}
    known = {"script.b": ask, "automation.b": ask, **scripts}

    async def services_of(script: str) -> frozenset[str]:
        return frozenset(services_in({"sequence": [known.get(script)]}))

    house: Any = SimpleNamespace(services_of=services_of, state=lambda _: State())
    asking: Any = SimpleNamespace(actor=SimpleNamespace(turn=None), by_sentence=False)
    script = Entity("script.a", "A")
    with pytest.raises(Forbidden, match="assistant"):
        await Control().check(asking, house, [script], service="script.turn_on", data={}, rules=Rules())


async def test_a_template_in_a_script_that_can_start_nothing_is_allowed() -> None:
    lamp = {"service": "light.turn_{{ 'on' }}", "target": {"entity_id": "{{ lamp }}"}}
    other = {"service": "automation.turn_off", "target": {"entity_id": "automation.b"}}
    assert set(services_in([lamp, other])) == {"light.turn_{{ 'on' }}", "automation.turn_off", "automation.b"}


async def test_a_script_asks_once_text_from_outside_was_read() -> None:
    async def services_of(_: str) -> frozenset[str]:
        return frozenset({"light.turn_on"})

    async def start(*, untrusted: bool) -> None:
        asking = Asking(person, actor, origin, untrusted=untrusted)
        script = Entity("script.movie", "Movie")
        await Control().check(asking, house, [script], service="script.turn_on", data={}, rules=Rules())

    house: Any = SimpleNamespace(services_of=services_of, state=lambda _: State())
    actor: Any = SimpleNamespace(turn=None)
    person: Any = None
    origin: Any = None
    await start(untrusted=False)
    with pytest.raises(CallError, match="Movie may do anything"):
        await start(untrusted=True)


@pytest.mark.parametrize(
    ("entity", "service", "untrusted", "asks"),
    [
        ("lock.front", "lock.lock", False, False),
        ("cover.garage", "cover.close_cover", False, False),
        ("alarm_control_panel.home", "alarm_control_panel.alarm_arm_away", False, False),
        ("lock.front", "lock.lock", True, True),
        ("lock.front", "lock.unlock", False, True),
        ("cover.garage", "cover.open_cover", False, True),
        ("alarm_control_panel.home", "alarm_control_panel.alarm_disarm", False, True),
    ],
)
async def test_only_what_lets_somebody_in_asks_until_text_from_outside_was_read(
    entity: str, service: str, *, untrusted: bool, asks: bool
) -> None:
    nothing: Any = None
    asking = Asking(nothing, Actor(user="ann", turn="1"), nothing, untrusted=untrusted, has_read=untrusted)
    house: Any = SimpleNamespace(state=lambda _: State())
    door = Entity(entity, "Front", device_class="garage" if "garage" in entity else None)
    with pytest.raises(CallError, match="Front is a") if asks else nullcontext():
        await Control().check(asking, house, [door], service=service, data={}, rules=Rules())


@pytest.mark.parametrize(
    ("by_sentence", "place", "asks"),
    [(False, Place("Bedroom"), True), (True, Place("Bedroom"), False), (True, None, True)],
)
async def test_a_turn_that_changes_six_in_two_calls_asks_and_a_sentence_for_a_room_does_not(
    place: Place | None, *, by_sentence: bool, asks: bool
) -> None:
    lamps = [Entity(f"light.{number}", f"Lamp {number}", place=place) for number in range(6)]
    person: Any = None
    asking = Asking(person, Actor(user="ann", turn="1"), person, by_sentence=by_sentence)
    house: Any = SimpleNamespace(state=lambda _: State())
    control = Control()
    await control.check(asking, house, lamps[:5], service="light.turn_on", data={}, rules=Rules())
    with pytest.raises(CallError, match="6 entities") if asks else nullcontext():
        await control.check(asking, house, lamps[5:], service="light.turn_on", data={}, rules=Rules())


@pytest.mark.parametrize(
    ("name", "more", "asks"),
    [
        ("Garage", {}, True),
        ("Left one", {"aliases": ("Garagentor",)}, True),
        ("Hoftor", {}, True),
        ("cover_1", {"device": "Tor_Antrieb"}, True),
        ("Left one", {"place": Place("Garage")}, True),
        ("Terrassentür", {}, True),
        ("Gate", {"device_class": "shutter"}, False),
        ("Left one", {"device_class": "garage"}, True),
        ("Rollo mit Motor", {}, False),
        ("Rolloaktor Küche", {}, False),
        ("Outdoor blind", {}, False),
        ("Garage door", {"id": "switch.x"}, True),
        ("Open", {"id": "button.front_door_opener"}, True),
        ("Left one", {"id": "switch.x", "device": "Tor_Antrieb"}, True),
        ("Light", {"id": "switch.x", "place": Place("Garage")}, False),
        ("Toröffner", {"id": "switch.x"}, True),
        ("Monitor", {"id": "switch.x"}, False),
        ("Ventilator", {"id": "switch.x"}, False),
        ("Zigbee gateway", {"id": "switch.x"}, False),
        ("Doorbell chime", {"id": "switch.x"}, False),
        ("Front door", {"id": "light.x"}, False),
    ],
)
async def test_what_may_open_a_door_asks(name: str, more: dict[str, Any], *, asks: bool) -> None:
    nobody: Any = None
    asking = Asking(nobody, Actor(user="ann"), nobody)
    house: Any = SimpleNamespace(state=lambda _: State())
    checked = Control().check(
        asking,
        house,
        [Entity(**{"id": "cover.x", "name": name, **more})],
        service="homeassistant.turn_on",
        data={},
        rules=Rules(),
    )
    with pytest.raises(CallError, match="garage") if asks else nullcontext():
        await checked
