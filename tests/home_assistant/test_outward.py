"""This home in a real Home Assistant."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bus.link import LinkSettings, Message
from contracts import topics
from contracts.addresses import broker_endpoint
from contracts.devices.presence import Heartbeat
from hub_agent.settings import BusKind, HomeLinkSettings
from tests.home_assistant.server import HomeAssistant
from tests.home_assistant.skills import (
    BlindSkill,
    CeilingFanSkill,
    DeskLampSkill,
    DoorSkill,
    PlayerSkill,
    StripLightSkill,
    ThermostatSkill,
    hosted,
)
from tests.hub_agent.home import Device, Home, linked, open_home
from tests.hub_live.watchers.watching import decides
from tests.hub_registry.spokes import eventually
from tests.model_server import ScriptedModel
from tests.mosquitto import Mosquitto

LAMP = "light.kitchen_desk_lamp"
VOLUME = "number.kitchen_player_volume"
PLAY = "button.kitchen_start_the_music"
SHUFFLE = "switch.kitchen_player_shuffle"
SEEN = "sensor.kitchen_last_seen"


@dataclass
class Beside:
    """A home beside a Home Assistant."""

    home: Home
    device: Device
    lamp: DeskLampSkill
    player: PlayerSkill

    async def post(self, what: str, path: str) -> Any:
        async with self.home.client() as client:
            answer = await client.post(f"/api/home-assistant/{what}", json={"path": path})
            assert answer.is_success, answer.text
            return answer.json()

    async def expose(self, path: str) -> Any:
        return await self.post("expose", path)

    async def hide(self, path: str) -> Any:
        return await self.post("hide", path)

    async def change(self, **changes: Any) -> None:
        async with self.home.client() as client:
            answer = await client.patch(f"/api/devices/{self.device.id}", json=changes)
            assert answer.is_success, answer.text


@asynccontextmanager
async def beside(directory: Path, mosquitto: Mosquitto | None, **settings: Any) -> AsyncIterator[Beside]:
    """Run a home with a device.

    Args:
        mosquitto: The broker of the house; None for the bus.
    """
    lamp, player = DeskLampSkill(), PlayerSkill()
    link = HomeLinkSettings(url=mosquitto.url) if mosquitto else HomeLinkSettings(url="", is_bus=True)
    async with open_home(directory, home_link=link, **settings) as home:
        device = await home.device("Kitchen", lamp, player)
        hosted(device, lamp, player, directory=directory)
        lamp.tell()
        made = Beside(home, device, lamp, player)
        await made.change(area="Kitchen")
        yield made


@asynccontextmanager
async def retained(mosquitto: Mosquitto) -> AsyncIterator[Callable[[], set[str]]]:
    """The topics that the broker retained when the context was entered, and that are not empty yet."""
    kept: set[str] = set()

    def hear(message: Message) -> None:
        if not message.payload:
            kept.discard(message.topic)
        elif message.retain:
            kept.add(message.topic)

    async with linked(LinkSettings(urls=(mosquitto.url,), client_id="looks")) as link:
        await link.subscribe("#", hear)
        yield lambda: kept


async def test_what_is_exposed_appears_and_works_both_ways(
    home_assistant: HomeAssistant, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    async with beside(tmp_path / "home", mosquitto) as home:
        assert await home_assistant.devices() == {}
        await home.expose("Kitchen")
        await home_assistant.until(LAMP, "off")
        await home_assistant.until("binary_sensor.kitchen_connected", "on")
        exposed = (PLAY, VOLUME, "event.kitchen_player_rang", "select.kitchen_player_source", SHUFFLE, SEEN)

        async def is_complete() -> bool:
            shown = [await home_assistant.state(each) for each in exposed]
            return None not in shown and shown[-1] != "unknown"

        await eventually(is_complete)
        found = await home_assistant.entities()
        assert not {each for each in found if "hidden" in each or "sell" in each or "erase" in each}
        device = (await home_assistant.devices())["Kitchen"]
        areas = {
            each["area_id"]: each["name"]
            for each in await home_assistant.command("config/area_registry/list")
        }
        assert (areas[device["area_id"]], device["manufacturer"]) == ("Kitchen", "Strawberry")
        async with home.home.client() as client:
            known = (await client.get("/api/devices/Kitchen")).json()
        assert device["sw_version"] == known["version"] == "1.2.3"
        seen = datetime.fromisoformat(str(await home_assistant.state(SEEN)))
        assert timedelta() <= datetime.fromisoformat(known["last_seen"]) - seen < timedelta(hours=1)

        await home_assistant.call("button.press", entity_id=PLAY)
        await eventually(lambda: "play" in home.player.did)
        await home_assistant.call("light.turn_on", entity_id=LAMP, brightness_pct=80)
        await home_assistant.until(LAMP, "on")
        await eventually(lambda: "on" in home.lamp.did and "brightness 80" in home.lamp.did)
        home.lamp.turn_off()
        await home_assistant.until(LAMP, "off")
        await home_assistant.call("number.set_value", entity_id=VOLUME, value=30)
        await home_assistant.until(VOLUME, "30")
        assert (await home_assistant.attributes(VOLUME))["unit_of_measurement"] == "%"
        await home_assistant.call(
            "select.select_option", entity_id="select.kitchen_player_source", option="disc"
        )
        await home_assistant.until("select.kitchen_player_source", "disc")
        await home_assistant.call("switch.turn_on", entity_id=SHUFFLE)
        await home_assistant.until(SHUFFLE, "on")
        assert home.player.did == ["play", "volume 30", "source disc", "shuffle True"]
        await home_assistant.call("button.press", entity_id="button.kitchen_player_next_track")
        await home_assistant.until("sensor.kitchen_player_now_playing", "Blue in Green")
        playing = await home_assistant.attributes("sensor.kitchen_player_now_playing")
        assert (playing["artists"], playing["icon"]) == (["Miles Davis"], "mdi:music")
        await home_assistant.call("switch.turn_on", entity_id="switch.kitchen_player_mute")
        await home_assistant.until("switch.kitchen_player_mute", "on")
        assert home.player.did[4:] == ["next", "mute"]
        home.player.emit("rang", {"where": "front"})
        await eventually(lambda: _has(home_assistant, "event.kitchen_player_rang", "where", "front"))
    assert_content(home_assistant)


ZIGBEE = {
    "name": None,
    "object_id": "cellar_blind",
    "unique_id": "0x01_cover_zigbee2mqtt",
    "command_topic": "zigbee2mqtt/Cellar blind/set",
    "position_topic": "zigbee2mqtt/Cellar blind",
    "position_template": "{{ value_json.position }}",
    "set_position_topic": "zigbee2mqtt/Cellar blind/set",
    "set_position_template": '{ "position": {{ position }} }',
    "availability": [{"topic": "zigbee2mqtt/bridge/state"}],
    "device": {
        "identifiers": ["zigbee2mqtt_0x01"],
        "name": "Cellar blind",
        "via_device": "zigbee2mqtt_bridge_0x00",
        "sw_version": "1",
    },
}
"""A device as Zigbee2MQTT announces it."""


async def test_covers_locks_thermostats_fans_and_colours_beside_a_zigbee_device(
    home_assistant: HomeAssistant, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    blind, door, heating = BlindSkill(), DoorSkill(), ThermostatSkill()
    fan, strip = CeilingFanSkill(), StripLightSkill()
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(beside(tmp_path / "home", mosquitto))
        device = await home.home.device("Hall", blind, door, heating, fan, strip)
        hosted(device, blind, door, heating, fan, strip, directory=tmp_path / "home")
        link = await stack.enter_async_context(
            linked(LinkSettings(urls=(mosquitto.url,), client_id="zigbee2mqtt"))
        )
        sent: list[bytes] = []
        await link.subscribe("zigbee2mqtt/Cellar blind/set", lambda each: sent.append(each.payload))
        for topic, payload in (
            ("homeassistant/cover/0x01/cover/config", json.dumps(ZIGBEE)),
            ("zigbee2mqtt/bridge/state", "online"),
            ("zigbee2mqtt/Cellar blind", '{"position": 30}'),
        ):
            await link.publish(topic, payload.encode(), retain=True, confirmed=True)
        heating.tell()
        fan.turn_off()
        strip.turn_off()
        await home_assistant.until("cover.cellar_blind", "open")
        await home.expose("hub.notify")
        await home.expose("Hall")

        async def does(service: str, entity: str, done: Callable[[], object], **data: Any) -> None:
            await home_assistant.call(service, entity_id=entity, **data)
            await eventually(lambda: bool(done()))

        ours = "cover.hall_blind"
        for each in (ours, "lock.hall_door"):
            await home_assistant.until(each, "unknown")
        await does("cover.close_cover", ours, lambda: "position 0" in blind.did)
        await home_assistant.until(ours, "closed")
        for each, done in ((ours, lambda: "position 40" in blind.did), ("cover.cellar_blind", lambda: sent)):
            await does("cover.set_cover_position", each, done, position=40)
        await does("cover.open_cover", ours, lambda: "position 100" in blind.did)
        await home_assistant.until(ours, "open")
        await does("cover.stop_cover", ours, lambda: "stop" in blind.did)
        await eventually(lambda: _has_problem(home_assistant, "the motor does not answer"))
        await does("lock.lock", "lock.hall_door", lambda: door.did == ["lock"])
        await home_assistant.until("lock.hall_door", "locked")
        await home_assistant.call("lock.unlock", entity_id="lock.hall_door")
        await eventually(lambda: _has_problem(home_assistant, "Expose it by its own name"))
        assert door.did == ["lock"]
        await home.expose("Hall.DoorSkill.lock")
        await does("lock.unlock", "lock.hall_door", lambda: door.did == ["lock", "unlock"])
        await home_assistant.until("lock.hall_door", "unlocked")

        thermostat = "climate.hall_thermostat"
        await home_assistant.until(thermostat, "auto")
        await does(
            "climate.set_temperature", thermostat, lambda: "target 22.5" in heating.did, temperature=22.5
        )
        await does("climate.set_hvac_mode", thermostat, lambda: "heat" in heating.did, hvac_mode="heat")
        await home_assistant.until(thermostat, "heat")
        shown = await home_assistant.attributes(thermostat)
        assert (shown["current_temperature"], shown["temperature"], shown["max_temp"]) == (19.5, 22.5, 28)
        await does("fan.turn_on", "fan.hall_ceiling_fan", lambda: "on" in fan.did)
        await does("fan.set_percentage", "fan.hall_ceiling_fan", lambda: "speed 3" in fan.did, percentage=75)
        await eventually(lambda: _has(home_assistant, "fan.hall_ceiling_fan", "percentage", 75))
        light = "light.hall_strip_light"
        await does("light.turn_on", light, lambda: "#ff0080" in strip.did, rgb_color=[255, 0, 128])
        await eventually(lambda: _has(home_assistant, light, "rgb_color", [255, 0, 128]))

        await eventually(lambda: _is_behind(home_assistant, "Hall", "Strawberry"))
        beat = Heartbeat(seq=1, uptime_s=60, load=0.25, memory_mb=80)
        await device.spoke.link.publish(
            topics.HEARTBEAT.build(device=device.id), beat.model_dump_json().encode(), retain=True
        )
        await home.change(area="Attic")

        async def is_disabled() -> bool:
            known = await home_assistant.registry()
            load = known.get("sensor.hall_processor_load")
            return load is not None and load["disabled_by"] == "integration"

        await eventually(is_disabled)
    assert_content(home_assistant)


async def _is_behind(home_assistant: HomeAssistant, name: str, hub: str) -> bool:
    devices = await home_assistant.devices()
    return bool(devices[name]["via_device_id"] == devices[hub]["id"])


async def _has_problem(home_assistant: HomeAssistant, text: str) -> bool:
    return text in str(await home_assistant.state("sensor.hall_last_problem"))


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
async def test_the_bus_may_be_the_broker_of_home_assistant(
    home_assistant_directory: Path, tmp_path: Path, kind: BusKind
) -> None:
    async with beside(tmp_path / "home", None, kind=kind) as home:
        async with home.home.client() as client:
            asked = {"name": "home_assistant", "home_assistant": True}
            made = (await client.post("/api/clients", json=asked)).json()
        login = {"username": made["username"], "password": made["password"], "client_id": made["name"]}
        _, _, port = broker_endpoint(home.home.broker_url)
        running = HomeAssistant(home_assistant_directory, broker_port=port, login=login)
        async with running as home_assistant:
            await home.expose("Kitchen")
            await home_assistant.until(LAMP, "off")
            await home_assistant.call("light.turn_on", entity_id=LAMP)
            await home_assistant.until(LAMP, "on")
            assert home.lamp.did == ["on"]
            await home_assistant.stop()
            home.lamp.turn_off()
            await home_assistant.start()
            await home_assistant.until(LAMP, "off")
            await home.hide("Kitchen")
            await eventually(lambda: _is_empty(home_assistant))
            assert_content(home_assistant)


async def test_nothing_is_lost_by_restarts_and_nothing_is_left_behind(
    home_assistant: HomeAssistant, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    directory, sensor = tmp_path / "home", "sensor.kitchen_desk_lamp_temperature"
    async with beside(directory, mosquitto) as home:
        await home.expose("Kitchen")
        home.lamp.state("temperature", 21.5, unit="°C", device_class="temperature")
        await home_assistant.until(sensor, "21.5")
        await home_assistant.stop()
        home.lamp.turn_on()
        await home_assistant.start()
        await home_assistant.until(LAMP, "on")
        # It keeps nothing: the hub publishes all of it again.
        mosquitto.stop()
        mosquitto.start()
        home.lamp.turn_off()
        await home_assistant.until(LAMP, "off")
        await home_assistant.call("button.press", entity_id=PLAY)
        await eventually(lambda: home.player.did == ["play"])
    await home_assistant.until(LAMP, "unavailable")
    await home_assistant.stop()
    await home_assistant.start()
    await home_assistant.until(LAMP, "unavailable")
    order = "strawberry/main/kitchen/set/PlayerSkill-play"
    async with linked(LinkSettings(urls=(mosquitto.url,), client_id="stranger")) as link:
        await link.publish(order, b"PRESS", retain=True, confirmed=True)
    settings = HomeLinkSettings(url=mosquitto.url)
    async with open_home(directory, home_link=settings) as again, again.client() as client:
        await home_assistant.until("binary_sensor.kitchen_connected", "off")
        assert await home_assistant.state(LAMP) == "unavailable"
        # The device has not said anything to this hub: what was learned of it before stays.
        assert await home_assistant.state(sensor) == "unavailable"
        assert (await client.delete("/api/devices/kitchen")).is_success
        await home_assistant.until(LAMP, None)
        await eventually(lambda: _is_empty(home_assistant))
        async with retained(mosquitto) as look:
            await eventually(lambda: look() == {"strawberry/main/availability"})


async def test_what_happens_while_home_assistant_is_stopped_leaves_no_junk(
    home_assistant: HomeAssistant, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    directory = tmp_path / "home"
    async with beside(directory, mosquitto) as home:
        await home.expose("Kitchen")
        await home_assistant.until(LAMP, "off")
        # It would miss that something goes, and its areas are for new devices only.
        await home_assistant.stop()
        await eventually(lambda: _is_told_to_be(home, "offline"))
        await home.hide("kitchen.PlayerSkill")
        await home.change(name="Pantry", area="Cellar")
        await home_assistant.start()
        await eventually(lambda: _equals(lambda: placed(home_assistant), {"Pantry": "Cellar"}))
        await home_assistant.until(LAMP, "off")
        await eventually(lambda: _equals(lambda: players(home_assistant), []))
        await home_assistant.stop()
        await eventually(lambda: _is_told_to_be(home, "offline"))
        await home.hide("Pantry")
        await home_assistant.start()
        await eventually(lambda: _is_empty(home_assistant))
        assert not [each for each in await home_assistant.registry() if "kitchen" in each]
        async with retained(mosquitto) as look:
            await eventually(lambda: look() == {"strawberry/main/availability"})
    assert_content(home_assistant)


async def placed(home_assistant: HomeAssistant) -> dict[str, str | None]:
    """The area of each device, by their names."""
    areas = await home_assistant.command("config/area_registry/list")
    names = {each["area_id"]: each["name"] for each in areas}
    return {name: names.get(each["area_id"]) for name, each in (await home_assistant.devices()).items()}


async def players(home_assistant: HomeAssistant) -> list[str]:
    """What Home Assistant still knows of the player."""
    return [each for each in await home_assistant.registry() if "player" in each or "music" in each]


async def _is_told_to_be(home: Beside, status: str) -> bool:
    async with home.home.client() as client:
        return bool((await client.get("/api/home-assistant")).json()["home_assistant"] == status)


async def test_names_areas_and_what_is_hidden_leave_no_junk(
    home_assistant: HomeAssistant, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    async with beside(tmp_path / "home", mosquitto) as home:
        await home.expose("kitchen.DeskLampSkill")
        await home_assistant.until(LAMP, "off")
        assert PLAY not in await home_assistant.entities()
        await home.expose("kitchen.PlayerSkill.erase")
        await home_assistant.until("button.kitchen_player_erase", "unknown")
        await home.change(name="Pantry")
        await eventually(lambda: _equals(lambda: placed(home_assistant), {"Pantry": "Kitchen"}))
        await home_assistant.until(LAMP, "off")
        await home.change(area="Cellar")
        await eventually(lambda: _equals(lambda: placed(home_assistant), {"Pantry": "Cellar"}))
        await home_assistant.until(LAMP, "off")
        await home_assistant.call("light.turn_on", entity_id=LAMP)
        await home_assistant.until(LAMP, "on")
        await home.hide("Pantry.DeskLampSkill.turn_on")
        await home_assistant.until(LAMP, None)
        done = list(home.lamp.did)
        async with linked(LinkSettings(urls=(mosquitto.url,), client_id="stranger")) as link:
            for name in ("DeskLampSkill-turn_on", "PlayerSkill-erase", "PlayerSkill-sell"):
                await link.publish(f"strawberry/main/kitchen/set/{name}", b"PRESS", confirmed=True)
        await eventually(lambda: home.player.did == ["erased"])
        await home.hide("Pantry")
        await eventually(lambda: _is_empty(home_assistant))
        async with retained(mosquitto) as look:
            await eventually(lambda: look() == {"strawberry/main/availability"})
        assert home.lamp.did == done
        assert not [each for each in await home_assistant.registry() if "pantry" in each or "kitchen" in each]
    assert_content(home_assistant)


async def test_chat_watchers_and_the_audit(
    home_assistant: HomeAssistant, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        model = stack.enter_context(ScriptedModel(lambda _: decides("notify")))
        home = await stack.enter_async_context(beside(tmp_path / "home", mosquitto, model_url=model.base_url))
        client = await stack.enter_async_context(home.home.client())
        await home.expose("hub.chat")
        await home_assistant.until("text.strawberry_chat", "")
        await home_assistant.call("text.set_value", entity_id="text.strawberry_chat", value="light the desk")
        await home_assistant.until("sensor.strawberry_answer", "The desk is lit.")
        assert home.lamp.did == ["on"]
        assert await home_assistant.state("text.strawberry_chat") == "light the desk"

        async def question() -> object:
            return (await home_assistant.attributes("sensor.strawberry_answer")).get("question")

        await eventually(lambda: _equals(question, "light the desk"))

        await home.expose("kitchen.PlayerSkill.play")
        await home_assistant.until(PLAY, "unknown")
        await home_assistant.call("button.press", entity_id=PLAY)
        await eventually(lambda: home.player.did == ["play"])

        async def agents() -> list[str | None]:
            entries = (await client.get("/api/audit", params={"q": "kitchen"})).json()["entries"]
            return [each["actor"].get("agent") for each in entries if each["outcome"] == "result"]

        # Of what was written to the chat, and of the button.
        await eventually(lambda: _equals(agents, ["home_assistant", "home_assistant"]))

        await home.expose("hub.watchers")
        topic = "devices/kitchen/state/DeskLampSkill/temperature"
        body = {
            "name": "warm",
            "topics": {"t": {"topic": topic}},
            "instruction": "Tell me.",
            "on_change": True,
        }
        answer = await client.post("/api/watchers", json={**body, "predicate": "t > 25", "on_change": True})
        assert answer.is_success, answer.text
        await home_assistant.until("event.strawberry_watcher_warm", "unknown")
        home.lamp.state("temperature", 20)
        home.lamp.state("temperature", 30)

        async def kind() -> object:
            return (await home_assistant.attributes("event.strawberry_watcher_warm")).get("event_type")

        await eventually(lambda: _equals(kind, "notify"))
        await home.expose("hub.notify")
        await home_assistant.until("text.strawberry_notify", "unknown")
        told: list[tuple[str, object]] = []
        home.home.hub.live.events.on_published(lambda each: told.append((each.kind, each.data.get("text"))))
        await home_assistant.call(
            "text.set_value", entity_id="text.strawberry_notify", value="Rain is coming"
        )
        await eventually(lambda: ("notification", "Rain is coming") in told)
        for path in ("hub.chat", "hub.notify", "hub.watchers", "kitchen"):
            await home.hide(path)
        await eventually(lambda: _is_empty(home_assistant))
    assert_content(home_assistant)


def assert_content(home_assistant: HomeAssistant) -> None:
    """Assert that Home Assistant had nothing to complain about."""
    lines = home_assistant.log().splitlines()
    assert not [each for each in lines if "ERROR" in each or ("WARNING" in each and ".mqtt" in each)]


async def _equals(look: Callable[[], Awaitable[object]], wanted: object) -> bool:
    return await look() == wanted


async def _is_empty(home_assistant: HomeAssistant) -> bool:
    return await home_assistant.devices() == {}


async def _has(home_assistant: HomeAssistant, entity: str, key: str, value: object) -> bool:
    shown = await home_assistant.attributes(entity)
    return bool(shown.get("data", shown).get(key) == value)
