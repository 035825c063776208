"""A running house, a browser before it, and pictures of what it shows."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    BrowserType,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

from deploy.directory import Home
from hub_registry.access.bearer import SESSION_COOKIE
from tests.e2e.house import House
from tests.model_server import Says, ScriptedModel, SeenRequest
from tests.requirements import require

CHROMIUM: Final = Path(os.environ.get("STRAWBERRY_CHROMIUM", "/usr/bin/chromium"))
HEADLESS: Final = Path(os.environ.get("STRAWBERRY_CHROMIUM", "/usr/bin/chromium-headless-shell"))
"""Chromium without the drawing of windows, half of its processor time; it knows no notifications."""
_ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = Path(os.environ.get("STRAWBERRY_PICTURES", _ROOT / "build" / "pictures"))
DESKTOP: Final = (1280, 800)
PHONE: Final = (360, 740)
PATIENCE_MS: Final = 120_000
"""How long a page may take on a busy machine before a test gives up; never what is asserted."""

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    """The model of the house; a test gives it its script."""
    with ScriptedModel(lambda _: Says(text="Hello.")) as server:
        yield server
        assert server.refused == []


def asked(model: ScriptedModel, message: str) -> list[SeenRequest]:
    """The requests whose newest message of a person is this one; all tests of a worker share the model."""
    return [seen for seen in model.requests if "".join(seen.said("user")[-1:]).endswith(message)]


@pytest.fixture(scope="session")
def house(
    tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path, model: ScriptedModel
) -> Iterator[House]:
    """A home in one ``strawberry up``, with the sample skills; all tests of a worker share it."""
    with House(tmp_path_factory.mktemp("web") / "house", sandbox=sandbox_files, debug=False) as home:
        home.use_model(model.base_url)
        home.start_up()
        yield home


@pytest.fixture
def lamp_device(house: House) -> str:
    """The name of the device with the lamp: the house's own, among those that other tests added."""
    return next(device["name"] for device in house.ask("/api/devices") if "LampSkill" in device["skills"])


@pytest.fixture(scope="session")
def browser(sandbox_files: Path) -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    # The sandbox is installed in a loop of its own, which Playwright's loop forbids once it runs.
    del sandbox_files
    with sync_playwright() as playwright, launch(playwright.chromium, HEADLESS) as browser:
        yield browser


@pytest.fixture
def whole_browser(browser: Browser) -> Iterator[Browser]:
    """Chromium that knows notifications, too."""
    with launch(browser.browser_type, CHROMIUM) as whole:
        yield whole


def launch(kind: BrowserType, program: Path) -> Browser:
    """Start a browser; to be entered."""
    hint = (
        "Install Chromium (Debian: apt install chromium chromium-headless-shell), or set STRAWBERRY_CHROMIUM."
    )
    require(program.exists(), hint)
    # Root may not use Chromium's own sandbox.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    return kind.launch(executable_path=program, args=flags)


@dataclass
class Visitor:
    """A person at a browser; what a page must never do fails the test at its end.

    Attributes:
        faults: Errors in the console, requests to others, and answers that were errors.
        expected: Parts of faults that this test means to cause.
    """

    house: House
    context: BrowserContext
    page: Page
    faults: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Open a page of the hub and wait until it can be used."""
        self.page.goto(self.house.url + path)
        self.page.wait_for_selector(".sb-page")
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until the page is connected with the hub."""
        self.page.wait_for_function("window.socket && window.socket.connected && window.did_handshake")

    def watch(self) -> None:
        """Note the faults from now on."""
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        # Said where the hub has ended a session, and its sockets with it, between two messages of a page.
        is_end_of_session = "WebSocket is already in CLOSING" in message.text
        if message.type == "error" and not is_end_of_session:
            self.faults.append(f"console: {message.text} {message.location.get('url', '')}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.house.url, "data:", "blob:")):
            self.faults.append(f"request to another: {request.url}")


@pytest.fixture
def page_of(house: House, browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Open a browser for a person: ``page_of()`` is the owner, ``page_of(token=None)`` nobody."""
    visitors: list[Visitor] = []

    def visit(
        token: str | None = "",
        *,
        of: House = house,
        by: Browser = browser,
        dark: bool = False,
        phone: bool = False,
        locale: str = "en-GB",
    ) -> Visitor:
        width, height = PHONE if phone else DESKTOP
        context = by.new_context(
            viewport={"width": width, "height": height},
            has_touch=phone,
            locale=locale,
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE_MS)
        if token is not None:
            token = token or Home(of.home).token_file.read_text().strip()
            context.add_cookies([{"name": SESSION_COOKIE, "value": token, "url": of.url}])
        visitor = Visitor(of, context, context.new_page())
        visitor.watch()
        visitors.append(visitor)
        return visitor

    yield visit
    for visitor in visitors:
        visitor.context.close()
        unexpected = [f for f in visitor.faults if not any(part in f for part in visitor.expected)]
        assert unexpected == []


@pytest.fixture
def picture() -> Callable[[Page, str], Path]:
    """Take a picture of a page, and look with axe-core for what a screen reader stumbles over."""

    def take(page: Page, name: str) -> Path:
        file = PICTURES / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        # Transitions of Quasar are brought to their end.
        page.screenshot(path=file, animations="disabled")
        assert accessibility_faults(page) == []
        return file

    return take


def picture_each_way(
    visit: Callable[..., Visitor], picture: Callable[[Page, str], Path], path: str, name: str, wait: str = ""
) -> None:
    """Take pictures of a page in light, dark, on a phone, and in German.

    Args:
        wait: A text that the page has in each language.
    """

    def take(page: Page, label: str) -> None:
        page.get_by_text(wait).first.wait_for()
        # Nothing is wider than a phone.
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), label
        picture(page, f"{name}{label}")

    page = visit().open(path)
    take(page, "")
    page.emulate_media(color_scheme="dark")
    page.locator("body.body--dark").wait_for()
    take(page, "-dark")
    take(visit(phone=True).open(path), "-phone")
    take(visit(locale="de-DE").open(path), "-german")


def accessibility_faults(page: Page) -> list[str]:
    """Return the serious faults that axe-core finds, a line each."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_axe())
    found: list[dict[str, Any]] = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    )
    return [
        f"{fault['id']}: {fault['help']}: {json.dumps([node['html'][:160] for node in fault['nodes'][:3]])}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


@cache
def _axe() -> str:
    found = sorted((_ROOT / ".venv" / "deno").glob("npm/*/axe-core/*/axe.min.js"))
    require(bool(found), "`make test-web` fetches axe-core into .venv/deno.")
    return found[-1].read_text()
