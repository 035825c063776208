"""What appears in Home Assistant, chosen in the browser."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.e2e.house import House
from tests.hub_home_assistant.recorded import TOKEN
from tests.mosquitto import HINT, Mosquitto, find_mosquitto, retained_topics
from tests.requirements import require
from tests.web.conftest import Visitor
from tests.web.test_first_steps import home_assistant

LOGIN = ("strawberry", "a berry")


def click(switch: Locator) -> None:
    """Click a switch and wait until the hub's answer has built the page again.

    The browser shows the change before, and a click on what is being replaced would be lost.
    """
    before = switch.get_attribute("id")
    assert before
    switch.click()
    expect(switch).not_to_have_id(before)


def test_what_appears_in_home_assistant_is_switched_on_once_its_broker_is_connected(
    tmp_path: Path,
    sandbox_files: Path,
    page_of: Callable[..., Visitor],
    picture: Callable[[Page, str], Path],
) -> None:
    require(find_mosquitto() is not None, HINT)
    add = ["mosquitto_passwd", "-b", "-c", str(tmp_path / "passwords"), *LOGIN]
    subprocess.run(add, check=True, capture_output=True)
    with (
        House(tmp_path / "house", sandbox=sandbox_files, debug=False) as house,
        Mosquitto(tmp_path, password_file=tmp_path / "passwords") as broker,
        home_assistant() as assistant,
    ):
        house.start_up()
        visitor = page_of(of=house)
        # The hub restarts under the page.
        visitor.expected += ["WebSocket", "ERR_", "401", "Failed to fetch"]
        page = visitor.open("/home-assistant")
        expect(page.get_by_role("switch")).to_have_count(0)
        page.get_by_label("Address of Home Assistant").fill(assistant.url)
        page.get_by_label("Long-lived access token").fill(TOKEN)
        page.get_by_role("button", name="Test and save").first.click()
        _set_what_is_asked(page, house)
        address = page.get_by_label("Address of the broker")
        expect(address).to_have_value("mqtt://127.0.0.1:1883")
        address.fill(broker.url)
        page.get_by_label("User name").fill(LOGIN[0])
        page.get_by_label("Password").fill("a pear")
        page.get_by_role("button", name="Test and save").click()
        expect(page.get_by_text("refuses this login")).to_be_visible()
        picture(page, "home-assistant-refused")
        phone = page_of(of=house, dark=True, phone=True, locale="de-DE").open("/home-assistant")
        expect(phone.get_by_label("Adresse des Brokers")).to_be_visible()
        picture(phone, "home-assistant-phone-dark-de")
        assert phone.evaluate("document.documentElement.scrollWidth") <= 360
        phone.close()
        page.get_by_label("Password").fill(LOGIN[1])
        page.get_by_role("button", name="Test and save").click()
        expect(page.get_by_role("dialog")).to_contain_text("The hub restarts")
        # The page loads again by itself.
        chat = page.get_by_role("switch", name="Chat", exact=True)
        expect(chat).not_to_be_checked()
        expect(page.get_by_text("connected", exact=True)).to_be_visible()
        click(chat)
        expect(chat).to_be_checked()
        lamp = house.ask("/api/devices")[0]["name"]
        device = page.get_by_title(lamp, exact=True).and_(page.get_by_role("switch"))
        click(device)
        expect(device).to_be_checked()
        decisions = house.json("home-assistant", "status")["decisions"]
        assert "hub.chat" in [each["path"] for each in decisions if each["shown"]]
        assert retained_topics(broker.port, *LOGIN, "homeassistant/#")
        picture(page, "home-assistant")
        click(device)
        expect(device).not_to_be_checked()
        click(chat)
        expect(chat).not_to_be_checked()
        assert house.json("home-assistant", "status")["decisions"] == []


def _set_what_is_asked(page: Page, house: House) -> None:
    page.get_by_label("Changed without a question").fill("2")
    page.get_by_label("Always ask before").fill("switch.heater_*\nlight.hall")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved")).to_be_visible()
    found = house.ask("/api/system/home-assistant")
    assert (found["unasked"], found["confirm"]) == (2, ["switch.heater_*", "light.hall"])
