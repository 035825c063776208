"""The frame of the pages: sessions, sockets, themes, languages, and what a foreign page may not do."""

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.e2e.house import House, wait_for
from tests.web.conftest import Visitor

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]


def test_a_page_without_a_session_is_the_login(page_of: Visit, picture: Picture) -> None:
    visitor = page_of(None)
    visitor.page.goto(f"{visitor.house.url}/chat")
    expect(visitor.page).to_have_url(f"{visitor.house.url}/login?next=/chat")
    picture(visitor.page, "login")


def test_a_link_on_another_site_leads_to_the_page_where_one_is_logged_in(page_of: Visit) -> None:
    visitor = page_of()
    # The same hub by another name: a site of its own for the browser, without the session.
    visitor.page.goto(f"{visitor.house.url.replace('127.0.0.1', 'localhost')}/login")
    visitor.expected.append("request to another: http://localhost")
    visitor.page.evaluate(f"location.href = '{visitor.house.url}/turns'")
    expect(visitor.page).to_have_url(f"{visitor.house.url}/turns")
    visitor.settle()


def test_a_page_brings_the_session_to_no_program_that_takes_the_port_of_the_hub(
    page_of: Visit, tmp_path: Path, sandbox_files: Path
) -> None:
    asked: list[tuple[str, str | None]] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path.partition("?")[0], self.headers["cookie"]))
            self.send_error(401)

    with House(tmp_path / "house", sandbox=sandbox_files, debug=False) as home:
        home.start_up("--no-spoke")
        visitor = page_of(of=home)
        visitor.expected += ["Failed to load resource", "WebSocket connection"]
        page = visitor.open("/turns")
        home.kill("up")
        with ThreadingHTTPServer(("127.0.0.1", home.http_port), Other) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            # The clock of the page goes on while Playwright waits.
            wait_for(lambda: page.wait_for_timeout(200) or len(asked) >= 2, what="the page to try again")
            other.shutdown()
        assert set(asked) == {("/.well-known/strawberry", None)}
        home.start_again("up")
        visitor.settle()


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


def test_a_theme_is_there_at_once_for_who_wants_less_motion(page_of: Visit) -> None:
    page = page_of(dark=True).open("/devices")
    turned = """(dark) => {
        Quasar.Dark.set(dark);
        return getComputedStyle(document.querySelector("h1")).color;
    }"""
    shown = [page.evaluate(turned, dark) for dark in (False, True, False)]
    assert shown == ["rgb(34, 29, 27)", "rgb(243, 238, 235)", "rgb(34, 29, 27)"]


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


def test_a_browser_that_wants_it_shows_notifications_while_no_page_is_open(
    whole_browser: Browser, page_of: Visit, picture: Picture
) -> None:
    visitor = page_of(phone=True, by=whole_browser)
    visitor.context.grant_permissions(["notifications"], origin=visitor.house.url)
    # The push service of the browser is in the Internet.
    key = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"
    made = {"endpoint": "https://push.example/1", "keys": {"p256dh": key, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}}
    visitor.context.add_init_script(
        f"PushManager.prototype.subscribe = async function () {{ return {{"
        f" toJSON: () => ({json.dumps(made)}), unsubscribe: async () => true }}; }};"
        "PushManager.prototype.getSubscription = async () => localStorage.getItem('push') ? {} : null;"
    )
    page = visitor.open("/")
    page.get_by_role("button", name="Notifications", exact=False).click()
    page.get_by_role("button", name="Notify me on this device").click()
    expect(page.get_by_text("This browser gets your notifications")).to_be_visible()
    picture(page, "notifications-on-this-device")
    (device,) = visitor.house.ask("/api/push")["devices"]
    devtools = visitor.context.new_cdp_session(page)
    ids: list[str] = []
    devtools.on("ServiceWorker.workerRegistrationUpdated", lambda event: ids.extend(_registrations(event)))
    devtools.send("ServiceWorker.enable")
    wait_for(lambda: page.wait_for_timeout(50) or bool(ids), what="the service worker")
    said = json.dumps({"title": "Tank", "body": "97 %", "path": "/watchers", "tag": "1"})
    sent = {"origin": visitor.house.url, "registrationId": ids[-1], "data": said}
    devtools.send("ServiceWorker.deliverPushMessage", sent)
    shown = (
        "async () => (await (await navigator.serviceWorker.ready).getNotifications())"
        ".map((each) => `${each.title}: ${each.body}`)[0]"
    )
    wait_for(
        lambda: page.wait_for_timeout(50) or page.evaluate(shown) == "Tank: 97 %", what="the notification"
    )
    # A press on it, which no protocol makes: a page may be focused by a person's press alone.
    visitor.context.service_workers[0].evaluate(
        """async () => {
            WindowClient.prototype.focus = async function () { return this; };
            const [notification] = await self.registration.getNotifications();
            const press = new NotificationEvent("notificationclick", { notification });
            press.waitUntil = (opened) => { self.opened = opened; };
            self.dispatchEvent(press);
            await self.opened;
        }"""
    )
    expect(page).to_have_url(f"{visitor.house.url}/watchers")
    assert page.evaluate(shown) is None
    page.get_by_role("button", name="Notifications", exact=False).click()
    page.get_by_role("button", name=f"Stop notifications on {device['name']}").click()
    expect(page.get_by_role("button", name="Notify me on this device")).to_be_visible()
    assert visitor.house.ask("/api/push")["devices"] == []


def _registrations(event: dict[str, Any]) -> list[str]:
    return [each["registrationId"] for each in event["registrations"] if not each["isDeleted"]]


def test_what_is_not_sent_yet_survives_a_reload_and_other_pages(page_of: Visit) -> None:
    fields = {
        "/": "Ask or tell your home …",
        "/chat": "Message",
        "/watchers/new": "What should happen, and when?",
    }
    visitor = page_of()
    for path, label in fields.items():
        visitor.open(path).get_by_label(label, exact=True).fill(f"Half a {label}")
    for path, label in fields.items():
        page = visitor.open(path)
        expect(page.get_by_label(label, exact=True)).to_have_value(f"Half a {label}")
        page.reload()
        expect(page.get_by_label(label, exact=True)).to_have_value(f"Half a {label}")
