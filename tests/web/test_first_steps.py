"""The first steps of a new home as a person clicks them."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from deploy.directory import Home
from hub_registry.access.bearer import SESSION_COOKIE
from tests.e2e.house import House, wait_for
from tests.hub_home_assistant.recorded import TOKEN, Recorded, recorded
from tests.model_server import Says, ScriptedModel
from tests.ports import free_port
from tests.web.conftest import PATIENCE_MS, Visitor

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]

PASSWORD = "a garden full of strawberries"


@pytest.fixture
def bare_house(tmp_path: Path, sandbox_files: Path) -> Iterator[House]:
    """A home that was just started, without a model."""
    with House(tmp_path / "house", sandbox=sandbox_files, debug=False) as home:
        home.start_up("--https-port", str(free_port()), "--mqtts-port", str(free_port()))
        yield home


@contextmanager
def home_assistant() -> Iterator[Recorded]:
    """Serve a recorded Home Assistant beside the browser."""
    started, made = threading.Event(), []

    async def serve() -> None:
        async with recorded(entities={"light.hall": ("on", {}, {})}) as server:
            made.append((server, asyncio.get_running_loop(), ended := asyncio.Event()))
            started.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    started.wait()
    server, loop, ended = made[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def _step(page: Page, title: str) -> Locator:
    return page.locator(".sb-first-steps > li").filter(
        has=page.get_by_role("heading", name=title, exact=True)
    )


def test_a_new_home_is_ready_without_a_shell_on_the_hub(
    page_of: Visit, picture: Picture, bare_house: House, model: ScriptedModel, tmp_path: Path
) -> None:
    model.script = lambda _: Says(text="Good morning.")
    visitor = page_of(None, of=bare_house)
    # A restarted hub is away for a moment.
    visitor.expected += ["ERR_", "WebSocket", "Failed to load resource", "Failed to fetch"]
    page = visitor.page
    page.goto(f"{bare_house.url}/")
    expect(page.get_by_text("in the line “password”")).to_be_visible()
    link = re.search(r"password +(\S+/setup#\S+)", bare_house.log("up"))
    assert link is not None
    page.goto(link[1])
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="First steps")).to_be_visible()
    picture(page, "first-steps")
    _add_a_model(page, model)
    chat = _step(page, "Try it")
    chat.get_by_role("button", name="Send").click()
    expect(chat).to_contain_text("Good morning.")
    picture(page, "first-steps-chat")
    chat.get_by_role("button", name="Continue").click()
    expect(chat.get_by_text("done", exact=True)).to_be_visible()
    _allow_other_machines(page, picture)
    _add_a_device(visitor, picture, tmp_path / "porch")
    visitor.open("/first-steps")
    with home_assistant() as assistant:
        step = _step(page, "Home Assistant")
        step.get_by_label("Address of Home Assistant").fill(assistant.url)
        expect(step.get_by_role("link", name="Open your profile")).to_have_attribute(
            "href", f"{assistant.url}/profile/security"
        )
        step.get_by_label("Long-lived access token").fill(TOKEN)
        picture(page, "first-steps-home-assistant")
        step.get_by_role("button", name="Test and save").click()
        # The hub was started since the password was typed.
        page.get_by_role("dialog").get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("with 1 entities, 1 exposed to Assist")).to_be_visible()
        expect(step.get_by_text("done", exact=True)).to_be_visible()
        expect(step.get_by_text("Show your devices in Home Assistant")).to_be_attached()
        _step(page, "Add the people of your home").get_by_role("button", name="Skip this step").click()
        expect(page.get_by_text("Your home is ready.")).to_be_visible()
        for title in ("Add a language model", "Try it", "Open it on your phone", "Add a device"):
            expect(_step(page, title).get_by_text("done", exact=True)).to_be_visible()
        picture(page, "first-steps-done")
        _invite(page, picture)


def _add_a_model(page: Page, model: ScriptedModel) -> None:
    step = _step(page, "Add a language model")
    step.get_by_role("button", name="OpenAI, or compatible").click()
    step.get_by_label("Model").fill("scripted")
    step.get_by_label("Address").fill(model.base_url)
    step.get_by_label("Key").fill("s3cret")
    step.get_by_role("button", name="Use this model").click()
    page.get_by_role("dialog").get_by_role("button", name="Use it").click()
    expect(step.get_by_text("done", exact=True)).to_be_visible()


def _allow_other_machines(page: Page, picture: Picture) -> None:
    step = _step(page, "Open it on your phone")
    picture(page, "first-steps-phone")
    step.get_by_role("button", name="Allow other machines").click()
    expect(page.get_by_role("dialog", name="The hub restarts")).to_be_visible()
    expect(step.get_by_text("done", exact=True)).to_be_visible()
    step.get_by_role("heading").click()
    expect(step.get_by_role("img", name="The address of this page as a QR code")).to_be_visible()
    expect(step.get_by_role("region", name="Address")).to_have_text(re.compile(r"https://\S+:\d+"))
    picture(page, "first-steps-phone-on")


def _add_a_device(visitor: Visitor, picture: Picture, home: Path) -> None:
    page, house = visitor.page, visitor.house
    _step(page, "Add a device").get_by_role("button", name="Add a device").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Make the file").click()
        page.get_by_label("Name", exact=True).fill("Attic Pi")
        page.get_by_role("button", name="Add", exact=True).click()
    assert download.value.suggested_filename == "vendor-data"
    assert "--hub https://" in download.value.path().read_text()
    expect(page.get_by_text("Attic Pi is admitted: not joined yet")).to_be_visible()
    page.get_by_text("With a terminal").click()
    command = page.get_by_role("region", name="Then, in a new terminal window").inner_text().split()
    assert command[:3] == ["strawberry", "spoke", "join"]
    picture(page, "join")
    house.start("porch", *command[1:], "--name", "Porch", home=home)
    expect(page.get_by_text("Porch asks to join")).to_be_visible()
    code = wait_for(lambda: re.search(r"code +(\S+)", house.log("porch")), what="the code")
    page.get_by_role("button", name="Enter its code").click()
    page.get_by_label("Code", exact=True).fill(code[1])
    page.get_by_role("button", name="Look", exact=True).click()
    page.get_by_role("button", name="It is the same: let it in").click()
    house.processes["porch"].wait()
    assert "Joined" in house.log("porch")
    expect(page.get_by_text("Porch is admitted: offline")).to_be_visible()
    running = (
        page.get_by_role("region", name="After it was admitted, in the same window").inner_text().split()
    )
    house.start("porch", *running[1:], home=home)
    expect(page.get_by_text("Porch is here")).to_be_visible()
    house.kill("porch")


def test_a_phone_whose_person_accepted_the_warning_learns_what_notifications_need(
    whole_browser: Browser, picture: Picture, tmp_path: Path, sandbox_files: Path
) -> None:
    with House(tmp_path / "house", sandbox=sandbox_files, debug=False) as home:
        port = free_port()
        home.start_up("--lan", "--https-port", str(port), "--mqtts-port", str(free_port()), "--no-spoke")
        url, token = f"https://127.0.0.1:{port}", Home(home.home).token_file.read_text().strip()
        context = whole_browser.new_context(ignore_https_errors=True, has_touch=True)
        context.set_default_timeout(PATIENCE_MS)
        context.grant_permissions(["notifications"], origin=url)
        context.add_cookies([{"name": SESSION_COOKIE, "value": token, "url": url}])
        page = context.new_page()
        page.goto(url)
        page.get_by_role("button", name="Notifications", exact=False).click()
        dialog = page.get_by_role("dialog", name="Notifications")
        expect(dialog).to_contain_text("only where it trusts the certificate")
        dialog.get_by_text("Trust the certificate of your home").click()
        expect(dialog).to_contain_text("Android")
        picture(page, "notifications-untrusted")
        with page.expect_download() as download:
            dialog.get_by_role("link", name="Get the certificate").click()
        assert download.value.suggested_filename == "ca.crt"
        context.close()


def _invite(page: Page, picture: Picture) -> None:
    step = _step(page, "Add the people of your home")
    step.get_by_role("heading").click()
    step.get_by_role("button", name="Add a person").click()
    page.get_by_label("Name", exact=True).fill("Grace")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("img", name="The link as a QR code")).to_be_visible()
    picture(page, "person-invitation")
    page.get_by_role("button", name="Done").click()
    expect(step.get_by_text("done", exact=True)).to_be_visible()


def test_who_is_not_logged_in_gets_what_adds_the_computer_and_no_command_on_a_phone(
    page_of: Visit, picture: Picture, house: House
) -> None:
    page = page_of(None).page
    page.goto(f"{house.url}/join")
    for system, ending in {"Linux": "sh", "Windows": "cmd"}.items():
        if system == "Windows":
            page.get_by_text("Another computer").click()
        with page.expect_download() as download:
            page.get_by_role("link", name=f"Download for {system}").click()
        assert download.value.suggested_filename == f"strawberry-join.{ending}"
        assert f"strawberry spoke join {house.url}" in download.value.path().read_text()
    expect(page.get_by_text(f"strawberry spoke join {house.url}")).to_be_hidden()
    page.get_by_text("With a terminal").click()
    expect(page.get_by_text(f"strawberry spoke join {house.url}")).to_be_visible()
    picture(page, "join-outside")
    agent = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/130 Mobile Safari/537.36"
    page = page_of(None, phone=True).page
    page.set_extra_http_headers({"user-agent": agent})
    page.goto(f"{house.url}/join")
    expect(page.get_by_text(f"{house.url}/join", exact=True)).to_be_visible()
    expect(page.get_by_text("strawberry spoke join")).to_have_count(0)
    picture(page, "join-outside-phone")
    page.get_by_role("link", name="Log in").click()
    expect(page).to_have_url(f"{house.url}/login?next=/join")


@pytest.mark.parametrize("path", ["first-steps", "join"])
def test_the_pages_fit_a_phone_in_german_and_in_the_dark(page_of: Visit, picture: Picture, path: str) -> None:
    page = page_of(phone=True, dark=True, locale="de-DE").open(f"/{path}")
    expect(page.get_by_role("heading", level=2).first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(page, f"{path}-german-phone")
