"""Pages of a home with 200 devices and 1,000 skills in Chromium: bytes, nodes, and the first control."""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright

from benchmarks import crowd
from benchmarks.measure import Effort, sandbox_directory
from benchmarks.table import Reach, Row, not_measured
from bus.link import LinkSettings, open_link
from contracts import topics
from contracts.devices.presence import State
from contracts.devices.registration import Method, MethodFlags, Registration
from contracts.errors import SandboxError
from deploy.directory import Home
from hub_registry.access.bearer import SESSION_COOKIE
from hub_registry.storage.tables import now
from identity.keys import KeyPair
from sandbox_host import install
from tests.e2e.house import House
from tests.mosquitto import Mosquitto

_CHROMIUM: Final = Path(os.environ.get("STRAWBERRY_CHROMIUM", "/usr/bin/chromium"))
_NAME: Final = "page of a home with 200 devices and 1,000 skills"
_DEVICES: Final = 200
_SKILLS: Final = 5
_BIG: Final = 1_000
"""Methods of the last device, 100 skills of ten."""
_LOADS: Final = 3
_CONTROL: Final = "main .sb-page :is(button, input, summary, [role=switch])"
_WIDTHS: Final = (390, 1280)
_NONE: Final = {"type": "object", "properties": {}}
_LEVEL: Final = {"type": "object", "properties": {"level": {"type": "integer", "minimum": 0, "maximum": 100}}}


@dataclass(frozen=True)
class _Lamps(crowd.Spoke):
    """A device whose skills have a switch, a slider and two values each."""

    is_big: bool = False

    def _registrations(self) -> Iterator[Registration]:
        skills, more = (_BIG // 10, 7) if self.is_big else (_SKILLS, 0)
        for number in range(skills):
            level = Method(name="set_level", signature="set_level(level: int)", parameters=_LEVEL)
            named = ("turn_on", "turn_off", *(f"scene_{each}" for each in range(more)))
            plain = (
                Method(name=name, signature=f"{name}()", parameters=_NONE, flags=MethodFlags(idempotent=True))
                for name in named
            )
            yield Registration(
                skill=f"Lamp{number}Skill", area=f"Room {hash(self.id) % 12}", methods=[level, *plain]
            )

    def states(self) -> Iterator[tuple[str, bytes]]:
        for each in self._registrations():
            for name, value in (("power", True), ("level", 40)):
                state = State(value=value, at=now())
                topic = topics.STATE.build(device=self.id, skill=each.skill, property=name)
                yield topic, state.model_dump_json().encode()


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; the home lies in the directory."""
    if not _CHROMIUM.exists():
        return [not_measured(_NAME, "Chromium is not installed (Debian: apt install chromium).")]
    try:
        await install(sandbox_directory())
    except SandboxError as error:
        return [not_measured(_NAME, f"{error.message} {error.hint}")]
    count = effort.size(_DEVICES)
    spokes = [_Lamps(f"pi{number}", KeyPair.generate(), number == count - 1) for number in range(count)]
    (directory / "mosquitto").mkdir()
    with (
        Mosquitto(directory / "mosquitto") as mosquitto,
        House(directory / "house", sandbox=sandbox_directory(), debug=False) as house,
    ):
        house.broker_url, house.hub_flags = mosquitto.url, ("--trust-broker",)
        (house.home / "hub").mkdir(mode=0o700)
        hub_id = await crowd.enrol(house.home / "hub" / "hub.db", spokes)
        await asyncio.to_thread(house.start_hub)
        settings = LinkSettings(urls=(mosquitto.url,), client_id="crowd", topic_prefix=house.topic_prefix)
        async with open_link(settings) as link:
            for each in spokes:
                await crowd.publish(link, (*each.messages(hub_id, with_skills=True), *each.states()))
        while not house.ask(f"/api/devices/{spokes[-1].id}")["skills"]:  # noqa: ASYNC110  of another process
            await asyncio.sleep(1)
        async with async_playwright() as playwright:
            flags = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = await playwright.chromium.launch(executable_path=_CHROMIUM, args=flags)
            try:
                made: list[Row] = []
                for width in _WIDTHS:
                    chat, *_ = await _page(house, browser, "/chat", width)
                    for path in ("/", "/devices", f"/devices/pi{count - 1}", "/skills"):
                        made += await _page(house, browser, path, width, reference=chat.project)
                return made
            finally:
                await browser.close()


async def _page(
    house: House, browser: Browser, path: str, width: int, *, reference: float | None = None
) -> list[Row]:
    """Open a page in new browsers; return what comes over the wire, its nodes, and when it has a control."""
    taken, size, nodes = list[float](), 0, 0
    for _ in range(_LOADS):
        context = await browser.new_context(viewport={"width": width, "height": 844})
        token = Home(house.home).token_file.read_text().strip()
        await context.add_cookies([{"name": SESSION_COOKIE, "value": token, "url": house.url}])
        page = await context.new_page()
        begun = time.perf_counter()
        answered = await page.goto(f"{house.url}{path}", wait_until="commit")
        await page.wait_for_selector(_CONTROL, state="attached")
        taken.append((time.perf_counter() - begun) * 1000)
        size = len(await answered.body()) if answered is not None else 0
        await asyncio.sleep(2)
        nodes = await page.evaluate("document.querySelectorAll('*').length")
        await context.close()
    name = f"{_NAME}: {path} at {width} px"
    return [
        Row(
            f"{name}, first control beside that of the chat",
            statistics.median(taken),
            "ms",
            reference=reference,
        ),
        Row("  … its HTML", size / 1000, "kB", Reach(most=300)),
        Row("  … DOM nodes", nodes, "", Reach(most=3_000)),
    ]
