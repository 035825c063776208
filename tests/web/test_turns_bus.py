"""Turns as timelines, the bus as a live tree, and what neither a kill nor a slow browser may break."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import psutil
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Browser, Page, expect

from deploy.directory import Home
from hub_registry.access.bearer import SESSION_COOKIE
from tests.e2e.house import House, wait_for
from tests.model_server import Hangs, Says, ScriptedModel, calls
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.requirements import require
from tests.web.conftest import HEADLESS, Visitor, asked, launch

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]

SENSORS = 5_000
METER = "energy/meter/power"


class Sensors:
    """The broker of a house with thousands of topics, and one that goes on."""

    def __init__(self, url: str) -> None:
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.connect("127.0.0.1", int(url.rpartition(":")[2]))
        self._client.loop_start()

    def publish(self, topic: str, value: Any, *, retain: bool = False) -> None:
        self._client.publish(topic, json.dumps(value), retain=retain)

    def fill(self) -> None:
        climate = {"temperature": 21.4, "humidity": 48, "battery": 97}
        self.publish("zigbee2mqtt/kitchen/climate", climate, retain=True)
        for number in range(SENSORS):
            topic = f"building/floor {number % 7}/room {number % 90}/sensor {number}"
            self.publish(topic, number, retain=True)

    def heard(self, topic: str) -> list[bytes]:
        """What is published on a topic from now on."""
        heard: list[bytes] = []
        self._client.on_message = lambda _, __, message: heard.append(bytes(message.payload))
        self._client.subscribe(topic)
        return heard

    def close(self) -> None:
        self._client.loop_stop()


@pytest.fixture(scope="module")
def sensors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sensors, str]]:
    require(find_mosquitto() is not None, HINT)
    with Mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        made = Sensors(broker.url)
        made.fill()
        yield made, broker.url
        made.close()


@pytest.fixture(scope="module")
def other(
    tmp_path_factory: pytest.TempPathFactory,
    sandbox_files: Path,
    model: ScriptedModel,
    sensors: tuple[Sensors, str],
) -> Iterator[House]:
    """A second house, which may be killed, with a broker of its own."""
    with House(tmp_path_factory.mktemp("other") / "house", sandbox=sandbox_files, debug=False) as home:
        home.use_model(model.base_url)
        settings = home.home / "strawberry.toml"
        settings.write_text(f'{settings.read_text()}\n[home_broker]\nurl = "{sensors[1]}"\n')
        home.start_up()
        yield home


def test_a_turn_is_understood_from_its_timeline(
    page_of: Visit, picture: Picture, house: House, model: ScriptedModel
) -> None:
    key = lamp(house)["key"]
    code = f"# <b>gently</b>\nfor level in (20, 40):\n    devices.{key}.LampSkill.set_brightness(level)"
    script = [calls("search_skills", query="lamp"), calls("python_exec", code=code), Says(text="It is *on*.")]
    model.script = lambda seen: script[len(seen.results)]
    answered = house.ask("/api/chat", {"message": "make it <i>less</i> dark, but gently"})
    visitor = page_of()
    page = visitor.open("/turns")
    listed = page.locator(".sb-asked").first
    expect(listed).to_contain_text("make it <i>less</i> dark")
    expect(listed).to_contain_text("Answered")
    picture(page, "turns")
    listed.click()
    expect(page).to_have_url(f"{house.url}/turns/{answered['turn']}")
    visitor.settle()
    lines = page.locator(".sb-span > summary")
    expect(lines.filter(has_text="LampSkill.set_brightness call").first).to_be_visible()
    expect(page.locator(".sb-legend")).to_contain_text("Model")
    # By the keyboard alone, a part shows what was said in it, as text.
    program = lines.filter(has_text="python_exec")
    program.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Program")).to_contain_text("# <b>gently</b>")
    picture(page, "turn")
    phone = page_of(dark=True, phone=True, locale="de-DE").open(f"/turns/{answered['turn']}")
    picture(phone, "turn-phone-dark")
    house.ask("/api/chat", {"message": "turn off the lamp"})


def test_the_bus_is_a_live_tree(page_of: Visit, picture: Picture, house: House) -> None:
    device = lamp(house)
    visitor = page_of()
    page = visitor.open("/bus")
    page.get_by_role("textbox", name="Filter").fill("lamp brightness")
    level = page.locator(".sb-topic")
    expect(level).to_have_count(1)
    level.click()
    topic = page.locator(".sb-bus-topic")
    expect(topic).to_contain_text("LampSkill")
    for value in (15, 30, 45):
        body = {
            "device": device["id"],
            "skill": "LampSkill",
            "method": "set_brightness",
            "args": [],
            "kwargs": {"percent": value},
        }
        house.ask("/api/skills/call", body)
        expect(level).to_contain_text(str(value))
        expect(topic.get_by_role("region", name="Value", exact=True)).to_contain_text(str(value))
    expect(topic.locator(".sb-plot svg")).to_be_visible()
    picture(page, "bus")
    # What is typed is shown once more, exactly as it will be sent, with a warning.
    page.get_by_role("button", name="Publish", exact=True).click()
    form = page.get_by_role("dialog", name="Publish a message")
    own = form.get_by_label("Topic").input_value()
    form.get_by_label("Topic").fill(f"{own}bell")
    form.get_by_label("Payload").fill('{"rings": "<b>twice</b>"}')
    form.get_by_role("button", name="Continue").click()
    warning = page.get_by_role("dialog", name="Publish this?")
    expect(warning).to_contain_text(f"{own}bell")
    expect(warning).to_contain_text('{"rings": "<b>twice</b>"}')
    picture(page, "bus-publish")
    warning.get_by_role("button", name="Publish").click()
    expect(page.locator(".q-notification")).to_contain_text("Published on")
    # Until it is gone it keeps the focus.
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("textbox", name="Filter").fill("bell")
    expect(page.locator(".sb-topic")).to_have_count(1)
    expect(page.locator(".sb-topic")).to_contain_text("twice")
    house.ask("/api/chat", {"message": "turn off the lamp"})


def test_thousands_of_topics_do_not_freeze_the_page(
    page_of: Visit, picture: Picture, other: House, sensors: tuple[Sensors, str]
) -> None:
    visitor = page_of(of=other, phone=True, locale="de-DE")
    page = visitor.open("/bus")
    page.get_by_role("combobox", name="Broker").click()
    page.get_by_role("option", name="Broker des Hauses").click()
    expect(page.get_by_text("5.000")).to_be_visible()
    expect(page.get_by_text("ein Filter zeigt andere")).to_be_visible()
    page.locator(".sb-topic", has_text="building").click()
    expect(page.locator(".sb-topic", has_text="floor 6")).to_be_visible()
    picture(page, "bus-phone")
    # The lines that are shown have an end; a filter finds what lies beyond.
    page.get_by_role("textbox", name="Filter").fill("building/+/+/#")
    expect(page.get_by_role("button", name="Mehr zeigen")).to_be_visible()
    assert page.locator(".sb-topic").count() <= 150
    page.get_by_role("textbox", name="Filter").fill("climate")
    expect(page.locator(".sb-topic")).to_have_count(1)
    expect(page.locator(".sb-topic")).to_contain_text("temperature 21.4")
    heard = sensors[0].heard("zigbee2mqtt/kitchen/set")
    page.get_by_role("button", name="Veröffentlichen").click()
    page.get_by_label("Topic", exact=True).fill("zigbee2mqtt/kitchen/set")
    page.get_by_label("Inhalt").fill('{"state": "ON"}')
    page.get_by_role("button", name="Weiter").click()
    warning = page.get_by_role("dialog", name="Das veröffentlichen?")
    expect(warning).to_contain_text("Broker des Hauses")
    picture(page, "bus-publish-phone")
    warning.get_by_role("button", name="Veröffentlichen").click()
    wait_for(lambda: heard == [b'{"state": "ON"}'], what="the message")


def test_a_browser_that_does_not_read_costs_the_others_nothing(
    page_of: Visit, browser: Browser, other: House, sensors: tuple[Sensors, str]
) -> None:
    """A whole browser is stopped by a signal while what it shows goes on changing."""
    page = page_of(of=other).open("/turns")
    mine = set(psutil.Process().children(recursive=True))
    stalled = launch(browser.browser_type, HEADLESS)
    stopped = [each for each in psutil.Process().children(recursive=True) if each not in mine]
    reader = stalled.new_page()
    token = Home(other.home).token_file.read_text()
    reader.context.add_cookies([{"name": SESSION_COOKIE, "value": token, "url": other.url}])
    reader.goto(f"{other.url}/bus")
    expect(reader.locator(".sb-topic").first).to_be_visible()
    reader.get_by_role("combobox", name="Broker").click()
    reader.get_by_role("option", name="Home broker").click()
    expect(reader.locator(".sb-topic", has_text="building")).to_be_visible()
    reader.get_by_role("textbox", name="Filter").fill("energy")
    wait_for(lambda: _sees(reader, sensors[0], 1, METER), what="the meter")
    expect(reader.locator(".sb-topic")).to_have_count(1)
    expect(reader.locator(".sb-topic")).to_contain_text(METER)
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        before = memory_of(other)
        for number in range(20_000):
            sensors[0].publish(METER, {"number": number, "text": "x" * 1_500})
        for _ in range(5):
            page.reload()
            page.wait_for_selector(".sb-asked, .sb-empty")
        assert memory_of(other) - before < 60 * 2**20
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
    # It sees the newest as soon as it goes on, and not all that it missed.
    wait_for(lambda: _sees(reader, sensors[0], "the last", "the last"), what="the newest value")
    stalled.close()


def _sees(reader: Page, sensors: Sensors, value: Any, shown: str) -> bool:
    """Publish once more: a broker may drop what comes faster than the hub reads."""
    sensors.publish(METER, value)
    return shown in "".join(reader.locator(".sb-topic").all_inner_texts())


def test_a_turn_that_a_kill_cut_short_is_shown_as_interrupted_and_not_run_again(
    page_of: Visit, picture: Picture, other: House, model: ScriptedModel
) -> None:
    model.script = lambda _: Hangs(text="I think")
    body = {"message": "what is the meaning of all this?", "turn": "cut-short", "conversation": "deep"}

    def ask() -> None:
        with suppress(Exception):
            other.ask("/api/chat", body)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(lambda: asked(model, body["message"]), what="the model to be asked")
    visitor = page_of(of=other)
    # While the hub is away, its requests fail.
    visitor.expected += ["ERR_CONNECTION", "ERR_EMPTY", "WebSocket", "Failed to load"]
    page = visitor.open("/turns/cut-short")
    expect(page.locator(".sb-page")).to_contain_text("Running")
    expect(page.locator(".sb-timeline")).to_contain_text("house")
    wait_for(lambda: other.ask("/api/conversations/deep")["exchanges"][0]["answer"], what="words on record")
    other.kill("up")
    asking.join()
    other.log_file("up").unlink()
    other.start_up()
    # Nobody touches the page: it finds the hub again by itself.
    expect(page.locator(".sb-page")).to_contain_text("Interrupted")
    expect(page.locator(".sb-page")).to_contain_text("It is not run again by itself")
    picture(page, "turn-interrupted")
    model.script = lambda _: Says(text="42")
    answer = other.ask("/api/chat", {"message": "and now?", "conversation": "deep"})
    assert answer["answer"] == "42"
    said = other.ask("/api/conversations/deep")["exchanges"]
    assert [(each["question"], each["answer"], each["outcome"]) for each in said] == [
        (body["message"], "I think", "interrupted"),
        ("and now?", "42", "answered"),
    ]
    assert len(asked(model, body["message"])) == 1


def lamp(house: House) -> dict[str, Any]:
    """The device with the sample lamp."""
    return next(each for each in house.ask("/api/devices") if "LampSkill" in each["skills"])


def memory_of(house: House) -> int:
    """Bytes that the hub's process takes."""
    return int(psutil.Process(house.processes["up"].pid).memory_info().rss)
