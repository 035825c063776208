"""The pages of people: somebody is added as a guest, sees without changing anything, and is removed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.house import House
from tests.web.conftest import Visitor, picture_each_way

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]

PASSWORD = "a field full of raspberries"
FETCH = """([path, body]) => fetch(path, {
    method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body)
}).then(answer => answer.status)"""
NEW = "a field full of blackberries"


def test_a_guest_is_added_looks_and_is_removed(page_of: Visit, picture: Picture) -> None:
    owner = page_of()
    page = owner.open("/people")
    page.get_by_role("button", name="Add a person").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("Bo")
    page.get_by_role("dialog").get_by_label("Role").click()
    page.get_by_role("option", name="Guest").click()
    picture(page, "people-add")
    page.get_by_role("button", name="Add", exact=True).click()
    link = page.get_by_role("region", name="One-time code for Bo").inner_text()
    picture(page, "people-code")
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("row", name=re.compile("Bo.*Guest.*not chosen yet"))).to_be_visible()

    guest = page_of(None, phone=True)
    theirs = guest.page
    theirs.goto(link)
    theirs.get_by_label("Password", exact=True).fill(PASSWORD)
    theirs.get_by_label("Password again").fill(PASSWORD)
    theirs.get_by_role("button", name="Continue").click()
    expect(theirs.get_by_text("Brightness", exact=True)).to_be_visible()
    expect(theirs.get_by_role("switch")).to_have_count(0)
    picture(theirs, "home-guest-phone")
    # Where they can change nothing leads no way, and by its address one sentence.
    guest.expected.append("403")
    expect(guest.open("/watchers/new").get_by_text("This page is not for you")).to_be_visible()
    # Which ones depends on the devices that other tests have added.
    suggested = guest.open("/chat").get_by_role("button", name=re.compile("^(what|how|is) "))
    expect(suggested.first).to_be_visible()
    expect(theirs.get_by_role("button", name="turn on the lamp")).to_have_count(0)
    theirs.get_by_role("button", name="More").click()
    expect(theirs.get_by_role("link", name="Turns")).to_be_visible()
    expect(theirs.get_by_role("link", name="Watchers")).to_have_count(0)
    guest.open("/people")
    expect(theirs.get_by_text("People of this home")).to_have_count(0)
    guest.expected.append("401")
    theirs.get_by_label("Current password").fill("not this one")
    theirs.get_by_label("New password").fill(NEW)
    theirs.get_by_role("button", name="Change password").click()
    expect(theirs.get_by_text("the name or the password is wrong")).to_be_visible()
    theirs.get_by_label("Current password").fill(PASSWORD)
    theirs.get_by_role("button", name="Change password").click()
    # The page is loaded again, with another session.
    expect(theirs.get_by_label("Current password")).to_have_value("")
    guest.settle()
    theirs.get_by_role("button", name="Log out everywhere").click()
    theirs.get_by_role("dialog").get_by_role("button", name="Log out everywhere").click()
    expect(theirs).to_have_url(f"{guest.house.url}/login")

    page.reload()
    owner.settle()
    page.get_by_role("button", name="Remove Bo").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("row", name=re.compile("Bo"))).to_have_count(0)


@pytest.mark.parametrize("role", ["member", "guest"])
def test_every_link_leads_to_a_page_for_the_same_person(
    page_of: Visit, house: House, lamp_device: str, role: str
) -> None:
    for method in ("turn_on", "turn_off"):
        house.ask("/api/skills/call", {"device": lamp_device, "skill": "LampSkill", "method": method})
    link = house.ask("/api/users", {"name": f"Walking {role}", "role": role})["link"]
    visitor = page_of(None)
    page = visitor.page
    page.goto(link)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("link", name="Chat").first).to_be_visible()
    visitor.open("/chat").get_by_role("textbox", name="Message").fill("what time is it")
    page.keyboard.press("Enter")
    expect(page.get_by_text("without a model")).to_be_visible()
    if role == "member":
        body = {"name": "late", "topics": {}, "schedule": "every day at 22:00", "then": [{"notify": "Late"}]}
        made = page.evaluate(FETCH, ["/api/watchers", body])
        assert made == 201
    visited: list[str] = []
    found = ["/", *(["/watchers/new", "/watchers/late/edit"] if role == "member" else [])]
    while found:
        path = found.pop(0)
        # Of the pages of one kind, as /turns/…, two.
        kind = path.rpartition("/")[0]
        alike = [each for each in visited if kind and each.rpartition("/")[0] == kind]
        if path in visited or len(alike) == 2:
            continue
        visited.append(path)
        visitor.open(path)
        expect(page.locator(".q-notification.bg-negative")).to_have_count(0)
        found += page.eval_on_selector_all(
            "a[href^='/']:not([download])",
            "links => links.map(each => each.getAttribute('href').split('#')[0])",
        )
    assert any(each.startswith("/turns/") for each in visited)
    assert ("/watchers/late" in visited) is (role == "member")
    assert {"/", "/chat", "/devices", "/skills", "/people", "/turns", "/audit"} <= set(visited)
    assert ("/watchers" in visited) is (role == "member")
    if role == "member":  # other tests begin without any
        assert page.evaluate("fetch('/api/watchers/late', {method: 'DELETE'}).then(answer => answer.ok)")


def test_a_token_is_made_shown_once_and_revoked(page_of: Visit, picture: Picture) -> None:
    page = page_of().open("/people")
    page.get_by_role("button", name="New token").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("weather station")
    page.get_by_role("button", name="Make it").click()
    shown = page.get_by_role("region", name="Token of weather station")
    assert shown.inner_text().count(".") == 2
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Revoke weather station").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row", name=re.compile("weather station"))).to_have_count(0)
    page = page_of().open("/audit")
    for done in ("Make the token weather station", "Revoke the token weather station"):
        expect(page.get_by_text(done, exact=True).first).to_be_visible()
    picture_each_way(page_of, picture, "/people", "people", "Admin")


def test_the_audit_is_searched_filtered_and_exported(
    page_of: Visit, picture: Picture, lamp_device: str
) -> None:
    visitor = page_of()
    call = {"device": lamp_device, "skill": "LampSkill", "method": "turn_off"}
    visitor.house.ask("/api/skills/call", call)
    page = visitor.open("/audit")
    rows = page.get_by_role("row").filter(has_text="Lamp: Turn off")
    expect(rows.first).to_be_visible()
    page.get_by_role("searchbox", name="Words").fill("nothing is called so")
    expect(page.get_by_text("Nothing found")).to_be_visible()
    picture(page, "audit-empty")
    page.get_by_role("searchbox", name="Words").fill("turn_off")
    # What was called exactly is one click behind the words.
    rows.first.get_by_text("Lamp: Turn off").click()
    expect(rows.first.get_by_text("LampSkill.turn_off")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as CSV").click()
    assert "LampSkill" in download.value.path().read_text()
    picture_each_way(page_of, picture, "/audit", "audit", "Admin")
