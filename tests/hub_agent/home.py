"""A home for tests: a real broker, a real hub over real HTTP, and devices with real skills."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
from pydantic import SecretStr

from agent_core.models.entries import Model, ModelEntry, Models
from agent_core.skills.loading.exposure import expose
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.skill import Skill
from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from broker.mosquitto.process import MosquittoListener, MosquittoSettings, open_mosquitto
from broker.nats.config import Node
from broker.nats.keys import NatsKeys
from broker.nats.process import open_nats_server
from bus.link import Link, LinkSettings, open_link
from bus.rpc import ProgressSink, Responder
from contracts.claims import SCOPES, Scope
from contracts.devices.rpc import Call
from hub_agent.settings import BusKind, BusSettings, HttpSettings, HubSettings, SandboxSettings
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.bearer import SESSION_COOKIE
from hub_registry.access.token_rows import TokenRequest
from hub_registry.limits import CENTURY_S
from hub_registry.storage.store import open_store
from hub_server.service import Hub, open_hub
from hub_server.system.host import Host
from identity.envelope import Seal
from identity.keys import KeyPair
from tests.hub_registry.spokes import FakeSpoke, eventually
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.ports import free_port
from tests.proofs import Authorization, bus_password, proof_of
from tests.requirements import require
from tests.reused import put_database

EPOCH = 1_000
SHARED_PREFIX = "strawberry/"


@dataclass
class Device:
    """A device that is online with its skills."""

    id: str
    key: KeyPair
    token: str
    bus_token: str
    spoke: FakeSpoke


@dataclass
class Home:
    """Broker, hub and whatever devices a test adds."""

    directory: Path
    hub: Hub
    broker_url: str
    stack: AsyncExitStack
    kind: BusKind = "embedded"
    keys: dict[str, KeyPair] = field(default_factory=dict)

    @property
    def admin_token(self) -> str:
        """The token that the hub left for the command line."""
        return (self.directory / "hub" / "cli.token").read_text()

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        """A client of the hub's; to be entered."""
        auth = Authorization(token or self.admin_token, self.keys)
        # No TLS: a client would spend more time on loading authorities than on its requests.
        return httpx.AsyncClient(base_url=self.hub.url, headers=headers, auth=auth, timeout=120, verify=False)

    async def left_open(self) -> httpx.AsyncClient:
        """A browser in which an admin has logged in a while ago; to be entered."""
        registry = self.hub.registry
        token = await registry.people.open_session(registry.admin, name="borrowed")
        registry.authority._confirmed.clear()
        headers = {"cookie": f"{SESSION_COOKIE}={token}", "origin": self.hub.url}
        return httpx.AsyncClient(base_url=self.hub.url, headers=headers, timeout=120, verify=False)

    async def token(self, user: User | None = None, *, scopes: tuple[Scope, ...] = SCOPES) -> str:
        """A new token of a user, good as long as any."""
        owner = user or self.hub.registry.admin
        request = TokenRequest(
            kind="user", subject=owner.id, owner=owner.id, scopes=scopes, lifetime_s=CENTURY_S
        )
        return await self.hub.registry.authority.issue(request)

    def device_login(self, device: str, key: KeyPair, token: str) -> LinkSettings:
        """How a device logs in on this kind of bus."""
        login = self.login(device, token)
        if self.kind not in ("embedded", "nats"):
            return login
        return replace(login, password=bus_password(self.hub.registry.hub_id, device, key, token))

    def login(self, name: str, password: str) -> LinkSettings:
        """How a client logs in on this kind of bus."""
        if self.kind == "shared":
            return LinkSettings(
                urls=(self.broker_url,), client_id=f"strawberry-{name}", topic_prefix=SHARED_PREFIX
            )
        return LinkSettings(
            urls=(self.broker_url,),
            client_id=name,
            username=name,
            password=SecretStr(password),
            qos=self.hub.registry.settings.bus.qos,
        )

    async def device(
        self,
        name: str,
        *skills: Skill,
        scopes: tuple[Scope, ...] = (),
        trusted: bool = True,
        shared: bool = False,
    ) -> Device:
        """Let a device join over HTTP and come online with these skills."""
        key = KeyPair.generate()
        async with self.client() as client:
            added = (
                await client.post("/api/devices", json={"name": name, "trusted": trusted, "shared": shared})
            ).json()
            body = {"token": added["token"], "public_key": key.public.jwk()}
            joined = (await client.post("/api/devices/enrol", json=body, auth=proof_of(key))).json()
        device, token, bus_token = joined["device"], joined["token"], joined["bus_token"]
        spoke = await self._serve(device, key, bus_token, EPOCH, *skills)
        return Device(device, key, token, bus_token, spoke)

    async def again(self, device: Device, *skills: Skill) -> None:
        """Let a device that joined before come online in its next life."""
        await self._serve(device.id, device.key, device.bus_token, device.spoke.epoch + 1, *skills)

    async def _serve(
        self, device: str, key: KeyPair, bus_token: str, epoch: int, *skills: Skill
    ) -> FakeSpoke:
        self.keys[key.kid] = key
        link = await self.stack.enter_async_context(linked(self.device_login(device, key, bus_token)))
        runner = await self.stack.enter_async_context(SkillRunner(expose(skill)[0] for skill in skills))

        async def execute(call: Call, skill: str, method: str, progress: ProgressSink) -> Any:
            return await runner.run(
                skill, method, call.args, call.kwargs, confirmed=call.confirmed, progress=progress
            )

        hub_id, hub_key = self.hub.registry.hub_id, KeyPair.load_or_create(self.directory / "hub" / "key.pem")
        await self.stack.enter_async_context(
            Responder(
                link,
                Seal(hub_id, key),
                device=device,
                epoch=epoch,
                hub_key=hub_key.public,
                executor=execute,
            )
        )
        spoke = FakeSpoke(link, hub_id=hub_id, device=device, key=key, epoch=epoch)
        await spoke.online(*(skill.registration for skill in runner.skills.values()))
        entry = self.hub.registry.directory.get(device)
        assert entry is not None
        await eventually(lambda: entry.connected and set(entry.skills) == set(runner.skills))
        # A sentence of a skill that is not indexed yet would be for the model.
        await eventually(lambda: self.hub.registry.search.sync() is None)
        return spoke


@asynccontextmanager
async def linked(settings: LinkSettings) -> AsyncIterator[Link]:
    """Open a link that has its connection: what is published at once would be lost without one."""
    async with open_link(settings) as link:
        await within_patience(link.wait_connected())
        yield link


@asynccontextmanager
async def open_home(
    directory: Path,
    *,
    kind: BusKind = "embedded",
    model_url: str | None = None,
    sandbox: Path | None = None,
    processes: int = 2,
    bus: Mapping[str, Any] = MappingProxyType({}),
    host: Host | None = None,
    **settings: Any,
) -> AsyncIterator[Home]:
    """Run a home.

    Args:
        kind: Of its bus.
        model_url: Base URL of a model server, if the home has one.
        sandbox: Where the sandbox is installed, if programs are to run.
        processes: Of the sandbox.
        bus: Settings of the bus, beyond its kind.
        host: The installation around the hub.
        settings: Of the hub, beyond where things are.
    """
    directory.mkdir(exist_ok=True)
    if sandbox is not None:
        (directory / "sandbox").symlink_to(sandbox, target_is_directory=True)
    key = KeyPair.load_or_create(directory / "hub" / "key.pem")
    url = settings.get("database_url")
    place = directory / "hub" / "hub.db" if url is None else url.get_secret_value()
    await put_database(place)
    async with open_store(place) as store:
        hub_id = await Accounts(store).hub_id()
    given: dict[str, Any] = {
        "http": HttpSettings(port=0),
        "gateway": "direct",
        "sandbox": SandboxSettings(processes=processes, spares=0),
        "models": Models(usable=(_model(model_url),)) if model_url else Models(),
        **settings,
    }
    async with AsyncExitStack() as stack:
        given_bus = {
            "kind": kind,
            **await _enter_broker(stack, kind, directory / "broker", hub_id, key),
            **bus,
        }
        on_bus = BusSettings.model_validate(given_bus)
        hub = await stack.enter_async_context(
            open_hub(HubSettings(home=directory, bus=on_bus, **given), host=host)
        )
        # A broker that is slow for a moment is found in the background.
        await within_patience(hub.link.wait_connected())
        devices = await stack.enter_async_context(AsyncExitStack())
        yield Home(directory, hub, on_bus.url, devices, kind)


async def _enter_broker(
    stack: AsyncExitStack, kind: BusKind, directory: Path, hub_id: str, key: KeyPair
) -> dict[str, Any]:
    """Start a broker of this kind, and say where it is; skip the test where the machine has none."""
    if kind == "embedded":
        settings = EmbeddedSettings(
            data_dir=directory, hub_id=hub_id, hub_key=key.public, listeners=(Listener(port=0),)
        )
        return {"url": (await stack.enter_async_context(open_embedded(settings))).url}
    if kind == "nats":
        node = Node("127.0.0.1", mqtt=0, hub=0)
        opening = open_nats_server(directory, NatsKeys(key).for_nodes(), node)
        server = await stack.enter_async_context(opening)
        return {"url": server.url, "nodes": (server.hub_url,)}
    require(find_mosquitto() is not None, HINT)
    if kind == "shared":
        directory.mkdir()
        return {"url": stack.enter_context(Mosquitto(directory)).url, "topic_prefix": SHARED_PREFIX}
    listeners = (MosquittoListener(port=free_port()),)
    ours = MosquittoSettings(data_dir=directory, hub_id=hub_id, key=key, listeners=listeners)
    return {"url": (await stack.enter_async_context(open_mosquitto(ours))).url}


def _model(url: str) -> Model:
    return Model(ModelEntry(name="house", provider="openai", model="scripted", base_url=url))


def says(text: str, **more: Any) -> dict[str, Any]:
    """The body of a chat completion request."""
    return {"model": "assistant", "messages": [{"role": "user", "content": text}], **more}


async def chunks(response: httpx.Response) -> AsyncGenerator[Any, None]:
    """The chunks of a stream as they come; the last one is the text ``[DONE]``."""
    async for line in response.aiter_lines():
        if line and not line.startswith(":"):
            assert line.startswith("data: "), line
            text = line.removeprefix("data: ")
            yield text if text == "[DONE]" else json.loads(text)


def text_of(seen: list[Any]) -> str:
    """The text that a client of the plain contract shows."""
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in seen
        if isinstance(chunk, dict)
        for choice in chunk.get("choices", [])
    )


def events_of(seen: list[Any]) -> list[dict[str, Any]]:
    """What the agent told beside the text."""
    return [chunk["x_strawberry"] for chunk in seen if isinstance(chunk, dict) and "x_strawberry" in chunk]


async def wait_for(event: asyncio.Event) -> None:
    """Wait for something that must happen."""
    await within_patience(event.wait())


async def within_patience(happening: Awaitable[object]) -> None:
    """Wait for something that must come to its end."""
    async with asyncio.timeout(120):
        await happening
