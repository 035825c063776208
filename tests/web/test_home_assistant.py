"""What appears in Home Assistant, chosen in the browser."""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.e2e.house import House
from tests.web.conftest import Visitor


def click(switch: Locator) -> None:
    """Click a switch and wait until the hub's answer has built the page again.

    The browser shows the change before, and a click on what is being replaced would be lost.
    """
    before = switch.get_attribute("id")
    assert before
    switch.click()
    expect(switch).not_to_have_id(before)


def test_what_appears_in_home_assistant_is_switched_on_and_off(
    house: House,
    page_of: Callable[..., Visitor],
    picture: Callable[[Page, str], Path],
    lamp_device: str,
) -> None:
    page = page_of().open("/home-assistant")
    expect(page.get_by_text("No home broker is configured.")).to_be_visible()
    chat = page.get_by_role("switch", name="Chat", exact=True)
    expect(chat).not_to_be_checked()
    click(chat)
    expect(chat).to_be_checked()
    device = page.get_by_title(lamp_device, exact=True).and_(page.get_by_role("switch"))
    click(device)
    expect(device).to_be_checked()
    decisions = house.json("home-assistant", "status")["decisions"]
    assert "hub.chat" in [each["path"] for each in decisions if each["shown"]]
    picture(page, "home-assistant")
    click(device)
    expect(device).not_to_be_checked()
    click(chat)
    expect(chat).not_to_be_checked()
    assert house.json("home-assistant", "status")["decisions"] == []
    phone = page_of(dark=True, phone=True, locale="de-DE").open("/home-assistant")
    expect(phone.get_by_text("Es ist kein Broker des Hauses eingerichtet.")).to_be_visible()
    picture(phone, "home-assistant-phone-dark-de")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
