"""The rest of a home for a spoke: a stand-in for the hub, over HTTP and on the bus."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from broker import tokens
from broker.envelope import Seal, unseal
from broker.keys import KeyPair, PublicKey
from broker.link import Link, LinkSettings, Message, open_link
from broker.rpc import Caller, CallRequest
from contracts import topics
from contracts.presence import DeviceStatus, HubStatus
from contracts.rpc import Actor
from contracts.wire import Json
from spoke.settings import SpokeSettings

HUB = "home-1"
DEVICE = "garage_pc"
PATIENCE_S = 15.0
ANNA = Actor(user="anna")

Seen = TypeVar("Seen")

JOURNAL = '''
import time
from pathlib import Path

from spoke import Skill, skill_method

FILE = Path(__file__).with_name("journal.txt")


def _write(line):
    with FILE.open("a") as file:
        file.write(line + "\\n")


class JournalSkill(Skill):
    """Writes down what really ran."""

    def write(self, text: str) -> str:
        """Write a line."""
        _write(text)
        return f"wrote {text}"

    def slowly(self, text: str, seconds: float) -> str:
        """Write a line, wait, and write another."""
        _write(f"{text} begun")
        self.check_cancelled(seconds)
        _write(f"{text} done")
        return f"wrote {text}"

    def stubborn(self, text: str, seconds: float) -> str:
        """Write a line, wait whatever anybody says, and write another."""
        _write(f"{text} begun")
        time.sleep(seconds)
        _write(f"{text} done")
        return f"wrote {text}"

    def pages(self, count: int) -> int:
        """Report each page."""
        for page in range(count):
            yield page
        return count

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


async def wait_for(look: Callable[[], Seen], what: str) -> Seen:
    """Look until there is something to see."""
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
        await asyncio.sleep(0.01)
    return seen


@dataclass
class StandInHub:
    """The HTTP side of a hub: lets devices in and says who it is.

    Attributes:
        invitations: Device by enrolment token; one that was used is gone.
        clock_ahead_s: What is wrong with this machine's clock, seen from the hub.
        outages: How many requests are answered with 503 before one is served.
    """

    brokers: list[str]
    key: KeyPair = field(default_factory=KeyPair.generate)
    invitations: dict[str, str] = field(default_factory=dict)
    device_keys: dict[str, PublicKey] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    clock_ahead_s: float = 0.0
    outages: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def invite(self, device: str = DEVICE) -> SecretStr:
        token = uuid.uuid4().hex
        self.invitations[token] = device
        return SecretStr(token)

    def token(self, device: str, key: PublicKey | None = None, **claims: Any) -> str:
        made: dict[str, Any] = {"kind": "device", "owner": "anna", "lifetime_s": 100_000} | claims
        made = {"hub_id": HUB, "subject": device, "scopes": ("register", "chat"), "key": key} | made
        made["now"] = time.time() + self.clock_ahead_s
        return tokens.issue(self.key, tokens.make_claims(**made))

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Json]:
        if path == "/.well-known/strawberry":
            return 200, {"hub_id": HUB, "key": self.key.kid, "brokers": self.brokers, "prefix": ""}
        if path != "/api/devices/enrol":
            return 404, {"error": {"code": "not_found", "message": "there is nothing here"}}
        device = self.invitations.pop(body["token"], None)
        if device is None:
            message = "the enrolment token was used already"
            hint = "Make a new one with 'strawberry devices add NAME'."
            return 401, {"error": {"code": "unauthorized", "message": message, "hint": hint}}
        key = self.device_keys[device] = PublicKey.from_jwk(body["public_key"])
        return 200, {
            "device": device,
            "token": self.token(device, key),
            "hub_id": HUB,
            "hub_key": self.key.public.jwk(),
            "brokers": self.brokers,
            "prefix": "",
        }


@contextmanager
def serving(hub: StandInHub, *, port: int = 0) -> Iterator[StandInHub]:
    """Serve the stand-in over HTTP, on the given port or any."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond({})

        def do_POST(self) -> None:
            self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _respond(self, body: dict[str, Any]) -> None:
            hub.requests.append(self.path)
            if hub.outages:
                hub.outages -= 1
                status, answer = 503, None
            else:
                status, answer = hub.answer(self.path, body)
            content = json.dumps(answer).encode()
            self.send_response_only(status)
            self.send_header("Date", formatdate(time.time() + hub.clock_ahead_s, usegmt=True))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        hub.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


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
        found: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def take(message: Message) -> None:
            if message.retain and not found.done():
                found.set_result(message.payload)

        unsubscribe = await self.link.subscribe(topic, take)
        try:
            async with asyncio.timeout(1):
                return await found
        except TimeoutError:
            return b""
        finally:
            await unsubscribe()

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
        given = {"device": DEVICE, "skill": "JournalSkill", "actor": ANNA, "args": args} | request
        return await self.caller.call(CallRequest(method=method, **given))


@asynccontextmanager
async def on_bus(hub: StandInHub, url: str) -> AsyncIterator[BusSide]:
    """Log the hub in to the bus: once to work, and once to watch, so that nothing comes to it twice."""
    password = SecretStr(hub.token("main", kind="hub", scopes=()))
    working, watching = (
        open_link(LinkSettings(url=url, client_id=name, username="main", password=password))
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

    def settings(self, hub: StandInHub, **changes: Any) -> SpokeSettings:
        """Settings of a spoke that lives here, quick enough for a test."""
        quick = {
            "hub_wait_s": 0.01,
            "republish_within_s": 0.05,
            "reclaim_s": 0.05,
            "retry_s": 0.05,
            "refused_s": 0.2,
        }
        given = {"home": self.home, "hub_url": hub.url, "skills": (self.skills,)} | quick | changes
        return SpokeSettings.model_validate(given)
