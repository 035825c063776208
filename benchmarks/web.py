"""The web UI in Chromium: the first page, what an action shows, and the hub's memory with ten pages open."""

import asyncio
import os
import statistics
import time
from pathlib import Path
from typing import Final

import psutil
from playwright.async_api import Browser, Page, async_playwright

from benchmarks.measure import Effort, sandbox_directory
from benchmarks.table import Reach, Row, not_measured
from contracts.errors import SandboxError
from deploy.directory import Home
from hub_registry.access.bearer import SESSION_COOKIE
from sandbox_host import install
from tests.e2e.house import House

_CHROMIUM: Final = Path(os.environ.get("STRAWBERRY_CHROMIUM", "/usr/bin/chromium"))
_FIRST: Final = "first page of a browser that has seen none: from its request to what a person sees"
_LOADS: Final = 8
_ACTIONS: Final = 40
_PAGES: Final = 10
_SETTLE_S: Final = 3.0
_VISIBLE: Final = "main h1"
_CONNECTED: Final = "window.socket && window.socket.connected && window.did_handshake"
_THEME: Final = "header [aria-label^='Theme']"
_CONTROLS: Final[dict[str, str]] = {
    "/": _THEME,
    "/chat": ".sb-chats input[type=search]",
    "/devices": "main button:has-text('Add a device')",
    "/skills": "main input[type=search]",
    "/watchers": _THEME,
    "/captures": "main button:has-text('New capture')",
    "/memory": "main button:has-text('Add')",
    "/agents": "main button:has-text('Write one')",
    "/turns": "main button[aria-label='Refresh']",
    "/bus": "main button:has-text('Publish')",
    "/models": "main button:has-text('Add')",
    "/system": "main button[aria-label='Check again']",
    "/people": "main button:has-text('Change password')",
    "/audit": "main input[type=search]",
}
"""What is pressed or typed into on each page; what leads to another page is not of this measurement."""


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; the home lies in the directory."""
    if not _CHROMIUM.exists():
        return [not_measured(_FIRST, "Chromium is not installed (Debian: apt install chromium).")]
    try:
        await install(sandbox_directory())
    except SandboxError as error:
        return [not_measured(_FIRST, f"{error.message} {error.hint}")]
    with House(directory / "house", sandbox=sandbox_directory(), debug=False) as house:
        await asyncio.to_thread(house.start_up, "--no-spoke")
        async with async_playwright() as playwright:
            flags = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = await playwright.chromium.launch(executable_path=_CHROMIUM, args=flags)
            try:
                return await _measure(house, browser, effort)
            finally:
                await browser.close()


async def _measure(house: House, browser: Browser, effort: Effort) -> list[Row]:
    hub = psutil.Process(house.processes["up"].pid)
    idle = hub.memory_info().rss / 1_000_000
    # The pages are loaded by then: this is of no browser's making.
    await (await _open(house, browser))[0].close()
    loads = []
    for _ in range(effort.repeats(_LOADS)):
        page, taken = await _open(house, browser)
        loads.append(taken)
        await page.context.close()
    page, _ = await _open(house, browser)
    actions = [await _act(page, _THEME) for _ in range(effort.repeats(_ACTIONS))]
    slowest, where = await _act_on_pages(page, house.url, repeats=effort.repeats(_ACTIONS // 4))
    for _ in range(_PAGES - 1):
        await _open(house, browser)
    await asyncio.sleep(_SETTLE_S)
    resident = hub.memory_info().rss / 1_000_000
    return [
        Row(_FIRST, statistics.median(loads), "ms", Reach(most=1_000)),
        Row("a click to what it changes on the page, p50", statistics.median(actions), "ms", Reach(most=200)),
        Row(
            f"… of one action on each of {len(_CONTROLS)} pages, p50 of the slowest ({where})",
            slowest,
            "ms",
            Reach(most=200),
        ),
        Row("memory of the hub with the web UI loaded, no page", idle, "MB"),
        Row("… and ten pages open", resident, "MB", Reach(most=250)),
    ]


async def _open(house: House, browser: Browser) -> tuple[Page, float]:
    """Open the chat in a new browser; return the page and the milliseconds until it is seen."""
    context = await browser.new_context()
    token = Home(house.home).token_file.read_text().strip()
    await context.add_cookies([{"name": SESSION_COOKIE, "value": token, "url": house.url}])
    page = await context.new_page()
    begun = time.perf_counter()
    await page.goto(f"{house.url}/chat", wait_until="commit")
    await page.wait_for_selector(_VISIBLE, state="attached")
    taken = (time.perf_counter() - begun) * 1000
    await page.wait_for_function(_CONNECTED)
    return page, taken


async def _act(page: Page, control: str) -> float:
    """Press a control, or type into it; return the milliseconds until the page shows the answer.

    That is progress, a dialog, other content, or another name of the control; not the ripple of a button.
    """
    taken = await page.locator(control).first.evaluate(
        """(control) => new Promise((done) => {
            const field = control.closest(".q-field") ?? control;
            const answers = (change) =>
                change.attributeName === "aria-label" ||
                (change.attributeName === "class" && change.target.matches(".sb-progress")) ||
                (change.type === "childList" && !field.contains(change.target));
            const begun = performance.now();
            new MutationObserver((changes, observer) => {
                if (!changes.some(answers)) return;
                observer.disconnect();
                done(performance.now() - begun);
            }).observe(document.body, {
                subtree: true, childList: true, attributeFilter: ["aria-label", "class"],
            });
            if (control.tagName !== "INPUT") return control.click();
            control.value += "lamp ";
            control.dispatchEvent(new Event("input", { bubbles: true }));
        })"""
    )
    await page.keyboard.press("Escape")
    await page.locator(".q-dialog").wait_for(state="detached")
    return float(taken)


async def _act_on_pages(page: Page, url: str, *, repeats: int) -> tuple[float, str]:
    """Do what is typical on each page; return the median of the slowest, and which page that is."""
    medians: list[tuple[float, str]] = []
    for path, control in _CONTROLS.items():
        await page.goto(url + path)
        await page.wait_for_function(_CONNECTED)
        medians.append((statistics.median([await _act(page, control) for _ in range(repeats)]), path))
    return max(medians)
