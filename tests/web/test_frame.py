"""The frame of the pages: sessions, sockets, themes, languages, and what a foreign page may not do."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.web.conftest import Visitor

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]


def test_a_page_without_a_session_is_the_login(page_of: Visit, picture: Picture) -> None:
    visitor = page_of(None)
    visitor.page.goto(f"{visitor.house.url}/chat")
    expect(visitor.page).to_have_url(f"{visitor.house.url}/login?next=/chat")
    picture(visitor.page, "login")


def test_the_theme_that_was_chosen_stays(page_of: Visit, picture: Picture) -> None:
    visitor = page_of()
    page = visitor.open("/chat")
    for _ in range(2):
        page.get_by_role("button", name="Theme:").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    expect(page.locator("body.body--dark")).to_be_visible()
    visitor.open("/chat")
    expect(page.locator("body.body--dark")).to_be_visible()
    picture(page, "chat-dark")


def test_what_has_the_focus_of_the_keyboard_is_seen(page_of: Visit) -> None:
    page = page_of().open("/devices")
    bell = page.get_by_role("button", name="Notifications")
    for each in (page.get_by_role("link", name="Skip to the content"), page.get_by_role("link"), bell):
        page.keyboard.press("Tab")
        expect(each.and_(page.locator(":focus"))).to_have_css("outline-style", "solid")


def test_a_page_speaks_the_language_of_the_browser(page_of: Visit, picture: Picture) -> None:
    page = page_of(locale="de-DE").open("/chat")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    picture(page, "chat-german")


def test_notifications_are_listed_behind_the_bell_and_told_on_any_page(
    page_of: Visit, picture: Picture
) -> None:
    visitor = page_of(phone=True)
    timer = {"device": "hub", "skill": "WatcherSkill", "method": "set_timer"}

    def end_timer(text: str) -> None:
        visitor.house.ask("/api/skills/call", {**timer, "kwargs": {"minutes": 0.001, "text": text}})

    page = visitor.open("/turns")
    bell = page.get_by_role("button", name="Notifications", exact=False)
    end_timer("Kettle")
    # What the bell counts came before, so that the page follows what comes now.
    expect(bell).to_have_accessible_name(re.compile("new"))
    end_timer("Oven")
    page.get_by_role("alert").filter(has_text="Oven").wait_for()
    bell.press("Enter")
    dialog = page.get_by_role("dialog", name="Notifications")
    expect(dialog.get_by_role("listitem").filter(has_text="Oven").first).to_be_visible()
    expect(dialog.get_by_role("listitem").filter(has_text="Kettle").first).to_be_visible()
    picture(page, "notifications-phone")
    page.keyboard.press("Escape")
    expect(bell).to_have_accessible_name("Notifications")
    # Seen in this browser: another page has no mark until the next one.
    visitor.open("/chat")
    end_timer("Tea pot")
    expect(bell).to_have_accessible_name("Notifications, 1 new")
