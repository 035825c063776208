"""The system in the browser: health, the log, and a backup that a fresh hub is restored from."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.e2e.house import House, wait_for
from tests.web.conftest import Visitor

WORDS = "four words for you"


def test_health_and_the_live_log(
    house: House, page_of: Callable[..., Visitor], picture: Callable[[Page, str], Path]
) -> None:
    visitor = page_of()
    page = visitor.open("/system")
    expect(page.get_by_text("checks passed")).to_be_visible()
    picture(page, "system")
    page.get_by_text("checks passed").click()
    expect(page.get_by_text("is sound").first).to_be_visible()
    log = page.get_by_role("log")
    page.get_by_role("textbox", name="Passphrase", exact=True).fill(WORDS)
    page.get_by_role("textbox", name="Passphrase, once more").fill(WORDS)
    with page.expect_download():
        page.get_by_role("button", name="Download backup").click()
    expect(log).to_contain_text("a backup was made by")
    picture(page, "system-log")
    visitor.expected += ["422", "ERR_FAILED"]
    expect(page.get_by_role("textbox", name="Passphrase, once more")).to_have_value("")
    page.route("**/api/system/backup", lambda route: route.abort())
    page.get_by_role("button", name="Download backup").click()
    expect(page.get_by_text("The hub does not answer.")).to_be_visible()
    page.unroute_all()
    page.get_by_role("textbox", name="Passphrase", exact=True).fill("short")
    page.get_by_role("textbox", name="Passphrase, once more").fill("short")
    page.get_by_role("button", name="Download backup").click()
    expect(page.get_by_text("has fewer than 8 characters")).to_be_visible()
    phone = page_of(dark=True, phone=True, locale="de-DE").open("/system")
    expect(phone.get_by_text("Prüfungen bestanden")).to_be_visible()
    picture(phone, "system-phone-dark-de")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_settings_of_the_household_are_typed_or_come_from_the_browser(
    tmp_path: Path,
    sandbox_files: Path,
    page_of: Callable[..., Visitor],
    picture: Callable[[Page, str], Path],
) -> None:
    with House(tmp_path / "house", sandbox=sandbox_files, debug=False) as home:
        home.start_up("--no-spoke")
        visitor = page_of(of=home)
        # The hub restarts under the page.
        visitor.expected += ["WebSocket", "ERR_", "401", "Failed to fetch"]
        visitor.context.grant_permissions(["geolocation"])
        visitor.context.set_geolocation({"latitude": 52.5163, "longitude": 13.3777})
        there = {"timezoneId": "Asia/Tokyo"}
        visitor.context.new_cdp_session(visitor.page).send("Emulation.setTimezoneOverride", there)
        page = visitor.open("/system")
        page.get_by_role("button", name="Use where this device is").click()
        expect(page.get_by_label("Latitude")).to_have_value("52.52")
        expect(page.get_by_label("Longitude")).to_have_value("13.38")
        picture(page, "system-place")
        field = page.get_by_label("Rules for the assistant")
        field.fill("x" * 301)
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("one line of up to 300 characters")).to_be_visible()
        field.fill("Never open the garage.\n\nCall me Captain.\n")
        picture(page, "system-household")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("dialog")).to_contain_text("The hub restarts")
        # The page loads again by itself.
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_label("Latitude")).to_have_value("52.52")
        found = home.ask("/api/system/household")
        place = {"latitude": 52.52, "longitude": 13.38, "time_zone": "Asia/Tokyo"}
        rules = ["Never open the garage.", "Call me Captain."]
        assert found == {**place, "language": "en", "units": "metric", "rules": rules}


def test_a_fresh_hub_is_restored_in_the_browser_and_a_device_connects_by_itself(
    tmp_path: Path,
    sandbox_files: Path,
    page_of: Callable[..., Visitor],
    picture: Callable[[Page, str], Path],
) -> None:
    with House(tmp_path / "old", sandbox=sandbox_files, debug=False) as old:
        old.start_up("--no-spoke")
        pc = old.add_spoke("Office PC", {})
        lost = old.add_spoke("Lost Tablet", {})
        page = page_of(of=old).open("/system")
        page.get_by_role("textbox", name="Passphrase", exact=True).fill(WORDS)
        page.get_by_role("textbox", name="Passphrase, once more").fill(WORDS)
        with page.expect_download() as download:
            page.get_by_role("button", name="Download backup").click()
        file = tmp_path / "home.age"
        download.value.save_as(file)
        hub = old.get("/.well-known/strawberry")["hub_id"]
        page.close()
        old.kill("up")
        with House(tmp_path / "fresh", sandbox=sandbox_files, debug=False) as fresh:
            fresh.http_port, fresh.mqtt_port = old.http_port, old.mqtt_port
            fresh.start_up("--no-spoke")
            visitor = page_of(of=fresh)
            # The hub ends and starts again under the page.
            visitor.expected += ["WebSocket", "ERR_CONNECTION", "401"]
            page = visitor.open("/system")
            page.locator("input[type=file]").set_input_files(file)
            page.get_by_role("textbox", name="Its passphrase").fill("five words for nobody")
            page.get_by_role("button", name="Check the file").click()
            expect(page.get_by_text("this is not the passphrase")).to_be_visible()
            page.get_by_role("textbox", name="Its passphrase").fill(WORDS)
            page.get_by_role("button", name="Check the file").click()
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text("Office PC")
            picture(page, "system-restore")
            dialog.get_by_role("switch", name="Lost Tablet").click()
            dialog.get_by_role("button", name="Restore and restart").click()
            page.wait_for_url("**/login**")
            assert fresh.get("/.well-known/strawberry")["hub_id"] == hub
            wait_for(lambda: fresh.log("up").count("Ready.") == 2, what="the restart")
            wait_for(lambda: fresh.state_of(pc) == "online", what="the device")
            assert fresh.state_of(lost) == "revoked"
            # Its admin never had a password, and it has no model: these are the first steps.
            page.goto(re.findall(r"password +(\S+/setup#\S+)", fresh.log("up"))[-1])
            page.get_by_label("Password", exact=True).fill("a password of mine")
            page.get_by_label("Password again").fill("a password of mine")
            page.get_by_role("button", name="Continue").click()
            expect(page.get_by_role("heading", name="Add a language model")).to_be_visible()
            picture(page, "models-none")
