"""A new home: its admin chooses a password, logs in and out, and finds what was said after a restart."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.house import House, wait_for
from tests.model_server import Hangs, ScriptedModel
from tests.web.conftest import Visitor, asked

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]

PASSWORD = "a garden full of strawberries"


@pytest.fixture
def new_house(tmp_path: Path, sandbox_files: Path, model: ScriptedModel) -> Iterator[House]:
    """A home that was just started."""
    with House(tmp_path / "house", sandbox=sandbox_files, debug=False) as home:
        home.use_model(model.base_url)
        home.start_up()
        yield home


def _set_up(visitor: Visitor) -> Page:
    house, page = visitor.house, visitor.page
    link = re.search(r"password +(\S+/setup#\S+)", house.log("up"))
    assert link is not None
    page.goto(link[1])
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    return page


def test_the_first_admin_chooses_a_password_and_logs_in(
    page_of: Visit, picture: Picture, new_house: House
) -> None:
    visitor = page_of(None, of=new_house)
    page = visitor.page
    page.goto(f"{new_house.url}/")
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
    picture(page, "welcome")
    _set_up(visitor)
    # The code is in no address that a history or a log keeps.
    assert "#" not in page.url
    picture(page, "setup")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Account of Ada")).to_be_visible()
    page.get_by_role("button", name="Account of Ada").click()
    page.get_by_role("menuitem", name="Log out").click()
    expect(page).to_have_url(f"{new_house.url}/login")
    visitor.expected.append("401")
    for wanted, expected in (
        ("/chat?x=1", "/chat?x=1"),
        ("//127.0.0.2/", ""),
        ("/\\127.0.0.2/", ""),
        ("javascript:alert(1)", ""),
    ):
        page.goto(f"{new_house.url}/login?next={wanted}")
        page.get_by_label("Name").fill("Ada")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("The name or the password is wrong.")
        if expected:
            picture(page, "login-wrong")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector(".sb-page")
        assert page.url.startswith(f"{new_house.url}{expected}")
        # A socket that is still being opened would be refused, which a browser writes to its console.
        visitor.settle()
        # Not awaited: the page is left before its answer could come back.
        page.evaluate("() => { strawberry.logOut() }")
        page.wait_for_url("**/login")


def test_a_page_comes_back_with_its_hub_and_shows_what_was_interrupted(
    page_of: Visit, picture: Picture, new_house: House, model: ScriptedModel
) -> None:
    model.script = lambda _: Hangs(text="I begin")
    visitor = page_of(of=new_house)
    visitor.expected += ["ERR_", "WebSocket", "Failed to load resource", "Failed to fetch"]
    page = visitor.open("/chat")
    page.get_by_role("textbox", name="Message").fill("Water the garden")
    page.keyboard.press("Enter")
    expect(page.locator(".sb-turn")).to_contain_text("I begin")
    page.get_by_role("textbox", name="Message").fill("And then the")
    new_house.send("up", signal.SIGTERM)
    new_house.processes["up"].wait()
    expect(page.get_by_role("alert").filter(has_text="The hub is away")).to_be_visible()
    expect(page.locator(".sb-turn")).to_contain_text("I begin")
    picture(page, "chat-hub-away")
    new_house.start_again("up")
    wait_for(lambda: new_house.log("up").count("Ready") == 2 or new_house.ended("up"), what="the hub")
    expect(page.locator(".sb-turn")).to_contain_text("Interrupted: the hub was restarted")
    expect(page.locator(".sb-turn")).to_contain_text("I begin")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("And then the")
    assert len(asked(model, "Water the garden")) == 1
    picture(page, "chat-interrupted")


def test_a_session_from_before_is_asked_for_the_password_before_a_backup_leaves(
    page_of: Visit, picture: Picture, new_house: House
) -> None:
    visitor = page_of(None, of=new_house)
    visitor.expected += ["ERR_", "WebSocket", "Failed to load resource", "Failed to fetch"]
    page = _set_up(visitor)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Account of Ada")).to_be_visible()
    # No page is open that loads itself again when its hub is back.
    page.goto("about:blank")
    # A hub that was started again has forgotten when the password was typed.
    new_house.kill("up")
    new_house.start_again("up")
    wait_for(lambda: new_house.log("up").count("Ready") == 2 or new_house.ended("up"), what="the hub")
    visitor.open("/system")
    page.get_by_role("textbox", name="Passphrase", exact=True).fill("four words for you")
    page.get_by_role("textbox", name="Passphrase, once more").fill("four words for you")
    page.get_by_role("button", name="Download backup").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Password").fill("wrong")
    picture(page, "password-again")
    dialog.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("the password is wrong")).to_be_visible()
    dialog.get_by_label("Password").fill(PASSWORD)
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Continue").click()
    assert download.value.suggested_filename.endswith(".age")
