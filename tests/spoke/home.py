"""The rest of a home for a spoke: a stand-in for the hub, over HTTP and on the bus."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from bus.link import Link, LinkSettings, Message, open_link
from bus.rpc import Caller, CallRequest
from contracts import topics
from contracts.devices.presence import DeviceStatus, HubStatus
from contracts.devices.rpc import Actor
from contracts.wire import Json
from identity.envelope import Seal, unseal
from identity.keys import PublicKey
from spoke.settings import SpokeSettings
from tests.journal import JOURNAL_BEGINNING
from tests.spoke.hub import DEVICE, HUB, StandInHub, serving

__all__ = [
    "ANNA",
    "DEVICE",
    "HUB",
    "JOURNAL",
    "BusSide",
    "Place",
    "StandInHub",
    "on_bus",
    "serving",
    "wait_for",
]

PATIENCE_S = 120.0
ANNA = Actor(user="anna")
MARKER = topics.WATCHER.build(user="ann", watcher="marker")

Seen = TypeVar("Seen")

JOURNAL = (
    JOURNAL_BEGINNING
    + '''
    @skill_method()
    def slowly(self, text: str, seconds: float) -> str:
        """Write a line, wait, and write another."""
        _write(f"{text} begun")
        self.check_cancelled(seconds)
        _write(f"{text} done")
        return f"wrote {text}"

    @skill_method(read_only=True)
    def watch(self, seconds: float) -> str:
        """Look for so long."""
        self.check_cancelled(seconds)
        return "nothing happened"

    @skill_method(read_only=True)
    def read(self) -> list[str]:
        """Read all lines."""
        return FILE.read_text().splitlines()

    @skill_method(confirm=True, destructive=True)
    def burn(self) -> str:
        """Burn the journal."""
        _write("burnt")
        return "burnt"

    def note(self, value: int) -> None:
        """Publish a value."""
        self.state("mood", value, unit="%")

    def shout(self, count: int) -> None:
        """Emit so many events."""
        for number in range(count):
            self.emit("shouted", {"number": number})
'''
)

GATE = '''
import time
from pathlib import Path

from spoke import Skill, skill_method

PLACE = Path(__file__).parent


def _write(line):
    with (PLACE / "journal.txt").open("a") as file:
        file.write(line + "\\n")


def _is_open():
    return (PLACE / "open").exists()


class GateSkill(Skill):
    """Lets nobody through before it is opened."""

    @skill_method()
    def wait(self, text: str) -> str:
        """Write a line, wait until the gate is open, and write another."""
        _write(f"{text} begun")
        while not _is_open():
            self.check_cancelled(0.02)
        _write(f"{text} done")
        return f"wrote {text}"

    @skill_method(read_only=True)
    def watch(self) -> str:
        """Look until the gate is open."""
        while not _is_open():
            self.check_cancelled(0.02)
        return "nothing happened"

    @skill_method()
    def insist(self, text: str) -> str:
        """As ``wait``, whatever anybody says."""
        _write(f"{text} begun")
        while not _is_open():
            time.sleep(0.02)
        _write(f"{text} done")
        return f"wrote {text}"
'''
"""A skill whose calls last as long as a test wants them to."""


async def wait_for(look: Callable[[], Seen], what: str) -> Seen:
    """Look until there is something to see."""
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
        await asyncio.sleep(0.01)
    return seen


@dataclass
class BusSide:
    """The hub on the bus: calls skills, and sees what spokes publish.

    Attributes:
        seen: Every message on ``devices/#``, in order.
        statuses: The statuses whose signature holds, in order.
    """

    link: Link
    seal: Seal
    caller: Caller
    device_keys: dict[str, PublicKey]
    seen: list[Message] = field(default_factory=list)
    statuses: list[DeviceStatus] = field(default_factory=list)
    forged: list[Message] = field(default_factory=list)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def hear(self, message: Message) -> None:
        """Take in what a spoke says; presence goes to the caller."""
        self.seen.append(message)
        values = topics.STATUS.match(message.topic)
        if values is None or not message.payload or values["device"] not in self.device_keys:
            return
        try:
            document = unseal(HUB, message.topic, message.payload, self.device_keys[values["device"]])
        except Exception:
            self.forged.append(message)
            return
        status = topics.STATUS.parse(document)
        assert isinstance(status, DeviceStatus)
        self.statuses.append(status)
        tell = self.caller.device_online if status.state == "online" else self.caller.device_offline
        tell(values["device"], status.epoch, status.connection)

    def payloads(self, topic: str) -> list[bytes]:
        """What was seen on a topic."""
        return [message.payload for message in self.seen if message.topic == topic]

    async def retained(self, topic: str) -> bytes:
        """What the broker keeps on a topic right now; empty for nothing."""
        kept: dict[str, bytes] = {}

        def take(message: Message) -> None:
            if message.retain:
                kept[message.topic] = message.payload

        await self.link.publish(MARKER, b"{}", retain=True, confirmed=True)
        # Brokers answer subscriptions in their order: what is kept on the topic comes before the marker.
        stops = [await self.link.subscribe(each, take) for each in (topic, MARKER)]
        await wait_for(lambda: MARKER in kept, "what the broker keeps")
        for stop in stops:
            await stop()
        await self.link.publish(MARKER, b"", retain=True, confirmed=True)
        return kept.get(topic, b"")

    async def say_online(self, session: str, *, started_at: datetime | None = None) -> None:
        """Publish the hub's status."""
        topic = topics.HUB_STATUS.build(instance="main")
        status = HubStatus(state="online", started_at=started_at or self.started_at, session=session)
        await self.link.publish(topic, self.seal.seal(topic, status), retain=True)

    async def online(self, number: int = 1, *, device: str = DEVICE) -> DeviceStatus:
        """Wait until the device has said so often that it is there; give the last of them."""

        def look() -> list[DeviceStatus]:
            found = [status for status in self.statuses if status.state == "online"]
            return found if len(found) >= number else []

        return (await wait_for(look, f"status {number} of {device}"))[-1]

    async def call(self, method: str, *args: Json, **request: Any) -> Json:
        """Call a method, of the journal if no other skill is named."""
        given: dict[str, Any] = {"device": DEVICE, "skill": "JournalSkill", "actor": ANNA, "args": args}
        return await self.caller.call(CallRequest(method=method, **(given | request)))


@asynccontextmanager
async def on_bus(hub: StandInHub, url: str) -> AsyncIterator[BusSide]:
    """Log the hub in to the bus: once to work, and once to watch, so that nothing comes to it twice."""
    password = SecretStr(hub.token("main", kind="hub", scopes=()))
    working, watching = (
        open_link(LinkSettings(urls=(url,), client_id=name, username="main", password=password), wait_s=30)
        for name in ("main", "main-watching")
    )
    seal = Seal(HUB, hub.key)
    async with working, watching, Caller(working, seal, instance="main", keys=hub.device_keys.get) as caller:
        side = BusSide(working, seal, caller, hub.device_keys)
        await watching.subscribe("devices/#", side.hear)
        yield side


@dataclass
class Place:
    """Where a spoke lives: its data directory and its skills."""

    directory: Path

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def skills(self) -> Path:
        return self.directory / "skills"

    @property
    def journal(self) -> list[str]:
        """What really ran."""
        file = self.skills / "journal.txt"
        return file.read_text().splitlines() if file.exists() else []

    def add_skill(self, name: str, source: str) -> None:
        self.skills.mkdir(parents=True, exist_ok=True)
        (self.skills / name).write_text(source)

    def add_gate(self) -> None:
        """Add the skill whose calls last until `open_gate`."""
        self.add_skill("gate.py", GATE)

    def open_gate(self) -> None:
        (self.skills / "open").touch()

    def settings(self, hub: StandInHub, **changes: Any) -> SpokeSettings:
        """Settings of a spoke that lives here, quick enough for a test."""
        return self.settings_at(hub.url, **changes)

    def settings_at(self, url: str, **changes: Any) -> SpokeSettings:
        """The same, for a hub at an address."""
        quick = {
            "hub_wait_s": 0.01,
            "republish_within_s": 0.05,
            "reclaim_s": 0.05,
            "retry_s": 0.05,
            "retry_max_s": 0.2,
            "refused_s": 0.2,
            "check_s": 0.02,
        }
        given = {"home": self.home, "hub_url": url, "skills": (self.skills,)} | quick | changes
        return SpokeSettings.model_validate(given)
