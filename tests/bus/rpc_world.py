"""A hub and its spokes on one broker, with a skill that writes down what it did."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bus.link import Link, LinkSettings, Message, open_link
from bus.rpc import (
    Caller,
    CallerSettings,
    CallRequest,
    ProgressSink,
    Responder,
    ResponderSettings,
)
from contracts import topics
from contracts.access import Principal
from contracts.claims import PrincipalKind
from contracts.devices.rpc import Actor, Call
from contracts.errors import CallError, ErrorCode
from contracts.wire import Wire
from identity.envelope import Seal
from identity.keys import KeyPair, PublicKey
from tests.brokers import HUB_ID, INSTANCE, Bus

HUB = HUB_ID
PATIENT = CallerSettings(accept_s=60, silence_s=60, next_s=60, cancel_s=60, return_s=60, grace_s=60)
"""No answer is missed, however long a busy machine lets it wait."""

QUICK = CallerSettings(accept_s=0.3, silence_s=0.3, next_s=0.3, cancel_s=0.3, return_s=0.3, grace_s=0.2)
"""For what never answers."""


class Skill:
    """Runs what it is told to, and remembers each run."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.runs: list[str] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.running = asyncio.Event()
        self.let_go = asyncio.Event()
        self.stopped = asyncio.Event()

    async def __call__(self, call: Call, skill: str, method: str, progress: ProgressSink) -> Any:
        self.runs.append(method)
        self.begun.put_nowait(method)
        self.running.set()
        match method:
            case "echo":
                return call.args[0] if call.args else call.kwargs
            case "where":
                return self.device
            case "wait":
                try:
                    await self.let_go.wait()
                finally:
                    self.stopped.set()
                return "waited"
            case "count":
                for number in range(3):
                    await progress(number)
                return 3
            case "refuse":
                raise CallError(ErrorCode.REFUSED, "no", hint="Ask nicely.")
            case "crash":
                raise ValueError("the reason")
            case "half_a_character":
                raise ValueError("\ud800")
            case "exit":
                raise SystemExit(3)
            case "big":
                return "x" * call.args[0]
            case "object":
                return object()
        raise CallError(ErrorCode.UNKNOWN_SKILL, f"there is no {skill}.{method}")


@dataclass
class Spoke:
    device: str
    key: KeyPair
    skill: Skill
    link: Link
    responder: Responder
    epoch: int
    connection: int = 1


@dataclass
class House:
    """The hub's side, and a way to start spokes."""

    url: str
    hub: KeyPair
    bus: Bus | None
    keys: dict[str, KeyPair] = field(default_factory=dict)
    caller: Caller = field(init=False)
    link: Link = field(init=False)

    async def login(self, name: str, kind: PrincipalKind = "device") -> LinkSettings:
        """Say how one logs in; it is let in where the broker has rights."""
        quick = {"backoff_s": 0.02, "backoff_max_s": 0.1, "refused_s": 0.1}
        if self.bus is not None:
            return await self.bus.link_settings(Principal(kind, name, "anna"), **quick)
        return LinkSettings(urls=(self.url,), client_id=name, username=name, **quick)  # type: ignore[arg-type]

    def key_of(self, device: str) -> PublicKey | None:
        pair = self.keys.get(device)
        return pair.public if pair else None

    @asynccontextmanager
    async def spoke(
        self,
        device: str = "lamp_pi",
        *,
        epoch: int = 1,
        online: bool = True,
        skill: Skill | None = None,
        settings: ResponderSettings | None = None,
        **more: Any,
    ) -> AsyncIterator[Spoke]:
        key = self.keys.setdefault(device, KeyPair.generate())
        skill = skill or Skill(device)
        async with (
            open_link(await self.login(device)) as link,
            Responder(
                link,
                Seal(HUB, key),
                device=device,
                epoch=epoch,
                hub_key=self.hub.public,
                executor=skill,
                settings=settings,
                **more,
            ) as responder,
        ):
            spoke = Spoke(device, key, skill, link, responder, epoch)

            async def tell() -> None:
                # In a whole home the hub learns this from the status that the spoke publishes.
                spoke.connection += 1
                self.caller.device_online(device, epoch, spoke.connection)

            if online:
                self.caller.device_online(device, epoch, 1)
                link.on_connected(tell)
            yield spoke

    async def publish_as(self, device: str, key: KeyPair, call_id: str, reply: Wire) -> None:
        """Put a reply on a device's topic, signed with any key, by a link that may do so."""
        topic = topics.RESULT.build(device=device, instance=INSTANCE, call=call_id)
        await self.link.publish(topic, Seal(HUB, key).seal(topic, reply))

    @asynccontextmanager
    async def intruder(self, handler: Callable[[Message], None] | None = None) -> AsyncIterator[Link]:
        """Somebody who may publish anything, as on a broker that is not ours."""
        async with open_link(await self.login("intruder", "hub")) as link:
            if handler is not None:
                await link.subscribe("#", handler)
            yield link


@asynccontextmanager
async def open_house(url: str, hub: KeyPair, *, bus: Bus | None = None, **more: Any) -> AsyncIterator[House]:
    house = House(url, hub, bus)
    async with open_link(await house.login(INSTANCE, "hub")) as link:
        options = {"settings": PATIENT, **more}
        async with Caller(link, Seal(HUB, hub), instance=INSTANCE, keys=house.key_of, **options) as caller:
            house.link, house.caller = link, caller
            yield house


def request(method: str, *args: Any, device: str = "lamp_pi", **more: Any) -> CallRequest:
    return CallRequest(
        device=device, skill="LampSkill", method=method, actor=Actor(user="anna"), args=args, **more
    )


def call_topic(method: str, device: str = "lamp_pi", skill: str = "LampSkill") -> str:
    return topics.CALL.build(device=device, skill=skill, method=method)


async def settle(link: Link) -> None:
    """Wait until all that was published before has been delivered to this link."""
    back = asyncio.Event()
    topic = topics.HUB_STATUS.build(instance="settle")
    unsubscribe: Callable[[], Awaitable[None]] = await link.subscribe(topic, lambda _: back.set())
    await link.publish(topic, b"")
    await back.wait()
    await unsubscribe()
