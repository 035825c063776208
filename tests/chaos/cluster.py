"""Nodes of the bus, PostgreSQL, replicas and spokes, each a process that is killed and started again."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import paho.mqtt.client as paho
import psutil
import psycopg
from paho.mqtt.enums import CallbackAPIVersion

from broker.nats.keys import NatsKeys
from deploy.directory import Home
from hub_registry.access.accounts import Accounts
from hub_registry.storage.store import open_store
from identity.keys import KeyPair
from tests.chaos.household import BACK_S, Command, eventually
from tests.chaos.load import MEANING, Answered, Kind, Ran
from tests.e2e.house import House, wait_for
from tests.e2e.replicas import Replicas
from tests.ports import free_port
from tests.postgresql import Server

SIGNED = Kind("AnywhereSkill", "sign", 1)
MEANINGS = {**MEANING, "storage_unavailable": Ran.PERHAPS, "told": Ran.PERHAPS}
"""As for one hub; the database may be away when a chat begins or ends, and an answer tells what failed."""
_LOOK_S = 0.05
_ASK_S = 90.0
"""Longer than a replica is stopped."""
_AGREE_S = 20.0
_FREEZE_SHARE = 0.25
"""Of the blows at a leader: it is stopped and goes on, in place of being killed."""


@dataclass
class Times:
    """How long it took, in seconds, of each kind of thing that is waited for."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def note(self, what: str, seconds: float) -> None:
        self.seconds.setdefault(what, []).append(seconds)

    def lines(self) -> list[str]:
        """Return one line of each kind."""
        return [
            f"{what}: {len(each)} times, p50 {sorted(each)[len(each) // 2]:.2f} s, longest {max(each):.2f} s"
            for what, each in sorted(self.seconds.items())
        ]


@dataclass
class Replicated(Replicas):
    """Replicas on a server that is killed, too.

    Attributes:
        more_settings: Of the ``strawberry.toml`` of each.
    """

    database_url: str = ""
    more_settings: str = ""

    def start_replica(self, name: str) -> None:
        home = self.home_of(name)
        self.ports[name] = free_port() if self.ports else self.http_port
        (home / "hub").mkdir(parents=True, exist_ok=True, mode=0o700)
        database = f'[database]\nurl = "{self.database_url}"\n'
        (home / "strawberry.toml").write_text(f"{self.more_settings}{database}")
        if home != self.home:
            key = home / "hub" / "key.pem"
            key.write_bytes((self.home / "hub" / "key.pem").read_bytes())
            key.chmod(0o600)
            if self.sandbox is not None:
                # Else it builds one, which takes it 15 s.
                (home / "sandbox").symlink_to(self.sandbox, target_is_directory=True)
        super().start_replica(name)


async def begin_home(url: str) -> None:
    """Make the tables: a hub that has a key already refuses an empty database."""
    async with open_store(url) as store:
        await Accounts(store).hub_id()


@asynccontextmanager
async def _logged_in(port: int, login: dict[str, Any], number: int) -> AsyncIterator[asyncio.Event]:
    """Log in on a node; yield what is set when the node ends the connection."""
    loop, there, gone = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    client: Any = paho.Client(
        CallbackAPIVersion.VERSION2, client_id=f"{login['username']}-{number}", protocol=paho.MQTTv311
    )
    client.username_pw_set(login["username"], login["password"])

    def let_in() -> None:
        # A login that was refused before has ended, too.
        gone.clear()
        there.set()

    client.on_connect = lambda _c, _d, _f, reason, _p: reason.is_failure or loop.call_soon_threadsafe(let_in)
    client.on_disconnect = lambda *_: loop.call_soon_threadsafe(gone.set)
    await asyncio.to_thread(client.connect, "127.0.0.1", port)
    client.loop_start()
    try:
        await there.wait()
        yield gone
    finally:
        client.on_disconnect = None
        client.disconnect()
        await asyncio.to_thread(client.loop_stop)


def start_nodes(house: House) -> tuple[dict[str, Command], list[int], str]:
    """Start three nodes of NATS for the hub of a house.

    Returns:
        The nodes, their ports for MQTT, and the settings by which hubs use them.
    """
    key = KeyPair.load_or_create(house.home / "hub" / "key.pem")
    names = ("node-1", "node-2", "node-3")
    ports = {name: [free_port() for _ in range(3)] for name in names}
    nodes = ",".join(f"127.0.0.1:{cluster}" for _, _, cluster in ports.values())
    made = {}
    for name, (mqtt, own, cluster) in ports.items():
        home = house.directory / name
        file = Home(home).broker / "nats" / "cluster.json"
        file.parent.mkdir(parents=True, mode=0o700)
        NatsKeys(key).for_nodes().save(file)
        words = ("--mqtt-port", str(mqtt), "--nats-port", str(own), "--cluster-port", str(cluster))
        house.start(name, "broker", "run", "--kind", "nats", *words, "--cluster", nodes, home=home)
        made[name] = Command(house, name, home)
    for name in names:
        wait_for(lambda name=name: "Ready" in house.log(name) or house.ended(name), what=name)
    house.broker_url = f"mqtt://127.0.0.1:{ports[names[0]][0]}"
    settings = "\n".join(
        (
            "[broker]",
            f'url = "{house.broker_url}"',
            'kind = "nats"',
            f"addresses = {[f'mqtt://127.0.0.1:{mqtt}' for mqtt, _, _ in ports.values()]}",
            f"nodes = {[f'nats://127.0.0.1:{own}' for _, own, _ in ports.values()]}",
            "",
        )
    )
    return made, [mqtt for mqtt, _, _ in ports.values()], settings


@dataclass(repr=False)
class Cluster:
    """All of it, and a person who uses it meanwhile.

    Attributes:
        nodes: Of the bus, by name.
        spokes: Their homes by id.
        ports: Of MQTT at the nodes.
        signed: Chats and their answers.
    """

    house: Replicated
    server: Server
    nodes: dict[str, Command]
    spokes: dict[str, Path]
    chance: random.Random
    freeze_s: float = 10.0
    ports: list[int] = field(default_factory=list)
    blows: list[str] = field(default_factory=list)
    times: Times = field(default_factory=Times)
    signed: list[Answered] = field(default_factory=list)

    @property
    def replicas(self) -> dict[str, int]:
        """Ports of the replicas by name."""
        return self.house.ports

    async def suffer(self, seconds: float) -> None:
        """Strike at one process after the other; each is back before the next. All kinds take turns."""
        until = time.monotonic() + seconds
        kinds = ["replica", "leader", "spoke", "database", *(["node"] if self.nodes else [])]
        while time.monotonic() < until:
            if len(self.blows) % len(kinds) == 0:
                self.chance.shuffle(kinds)
            kind = kinds[len(self.blows) % len(kinds)]
            self.blows.append(f"{until - time.monotonic():.0f} s before the end: {kind}")
            await {
                "replica": lambda: self._strike_replica(self.chance.choice(list(self.replicas))),
                "leader": self._strike_leader,
                "spoke": lambda: self._kill_for_a_moment(self.chance.choice(list(self.spokes))),
                "node": self._strike_node,
                "database": self._strike_database,
            }[kind]()
            await asyncio.sleep(self.chance.uniform(0.5, 2.0))

    # -- blows ------------------------------------------------------------------------------------

    async def _strike_leader(self) -> None:
        name, term = await asyncio.to_thread(self.leader)
        freezes = self.chance.random() < _FREEZE_SHARE
        if not freezes:
            await self._strike_replica(name, term=term)
            return
        pid = self.house.processes[name].pid
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        self.blows[-1] += f" {name} is stopped for {self.freeze_s:.0f} s"
        try:
            await asyncio.gather(self._followed(term, began), self._next_chat(name, began))
            await asyncio.sleep(max(0.0, began + self.freeze_s - time.monotonic()))
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _strike_replica(self, name: str, *, term: int | None = None) -> None:
        self.blows[-1] += f" {name}"
        leader, latest = await asyncio.to_thread(self.leader)
        os.kill(self.house.processes[name].pid, signal.SIGKILL)
        began = time.monotonic()
        waits = [self._next_chat(name, began)]
        if name == leader or term is not None:
            waits.append(self._followed(latest if term is None else term, began))
        await asyncio.gather(*waits)
        await asyncio.to_thread(Command(self.house, name, self.house.home_of(name)).start)
        await eventually(lambda: not self.is_ready(name), what=f"{name} to be back")
        self.times.note("a replica that starts: ready", time.monotonic() - began)

    async def _kill_for_a_moment(self, name: str) -> None:
        self.blows[-1] += f" {name}"
        os.kill(self.house.processes[name].pid, signal.SIGKILL)
        await asyncio.sleep(self.chance.uniform(0.0, 2.0))
        await asyncio.to_thread(Command(self.house, name, self.spokes[name]).start)

    async def _strike_node(self) -> None:
        name = self.chance.choice(list(self.nodes))
        self.blows[-1] += f" {name}"
        node = self.nodes[name]
        # The server itself is a child, which must not outlive this.
        for process in (*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)):
            process.kill()
        began = time.monotonic()
        await self._next_chat("", began, what="a node of the bus killed: next chat")
        seen = self.house.log(name).count("Ready")
        await asyncio.to_thread(node.start)
        await eventually(lambda: self.house.log(name).count("Ready") == seen, what=f"{name} to be back")
        await asyncio.sleep(2.0)

    async def _strike_database(self) -> None:
        await asyncio.to_thread(self.server.stop)
        began = time.monotonic()
        await asyncio.sleep(self.chance.uniform(0.0, 2.0))
        await asyncio.to_thread(self.server.start)
        await self._next_chat("", began, what="the database restarted: next chat")

    # -- what is waited for -----------------------------------------------------------------------

    async def _followed(self, term: int, began: float) -> None:
        """Wait until another replica leads."""

        def is_followed() -> bool:
            with suppress(psycopg.Error):
                return self.leader()[1] > term
            return False

        await self._until(is_followed, "another leader")
        self.times.note("the leader gone: another one leads", time.monotonic() - began)

    async def _next_chat(self, gone: str, began: float, *, what: str = "a replica gone: next chat") -> None:
        """Chat through the others until there is an answer."""
        others = [name for name in self.replicas if name != gone]
        while (await self.sign(self.chance.choice(others))).code != "result":
            assert time.monotonic() < began + BACK_S, f"{what}: {self.signed[-1]}"
            await asyncio.sleep(_LOOK_S)
        self.times.note(what, time.monotonic() - began)

    async def _until(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + BACK_S
        while not await asyncio.to_thread(look):
            assert time.monotonic() < deadline, what
            await asyncio.sleep(_LOOK_S)

    # -- a person ---------------------------------------------------------------------------------

    async def sign(self, replica: str) -> Answered:
        """Say a sentence through a replica."""
        token, began = uuid4().hex, time.monotonic()
        body = {"message": f"sign the guest book as {token}", "turn": token, "conversation": "guests"}
        code, said = "no answer", ""
        try:
            answer = await self._ask(replica, "POST", "/api/chat", json=body)
            document = answer.json()
            said = str(document.get("answer", answer.text))
            code = "result" if said == token else document.get("code", "told")
        except httpx.ConnectError as error:
            code, said = "not heard", repr(error)
        except httpx.ReadTimeout:
            code, said = "hangs", f"no answer after {_ASK_S:.0f} s"
        except (httpx.HTTPError, ValueError) as error:
            said = repr(error)
        self.signed.append(Answered(token, SIGNED, replica, began, time.monotonic(), code, said))
        return self.signed[-1]

    async def chat(self, over: asyncio.Event) -> None:
        """Chat through one replica after the other until it is over."""
        while not over.is_set():
            await self.sign(self.chance.choice(list(self.replicas)))
            await asyncio.sleep(0.2)

    async def revoke(self) -> None:
        """Make a token, have all replicas know it, revoke it at one, and see the others refuse it."""
        while True:
            # A replica, a node or the database may be away.
            with suppress(httpx.HTTPError, KeyError, ValueError, TimeoutError, OSError):
                await self._revoke_token()
            with suppress(httpx.HTTPError, KeyError, ValueError, TimeoutError, OSError):
                await self._revoke_logins()
            await asyncio.sleep(1.0)

    async def _revoke_token(self) -> None:
        first, name = self.chance.choice(list(self.replicas)), uuid4().hex
        made = await self._ask(first, "POST", "/api/tokens", json={"name": name, "scopes": ["chat"]})
        token = made.raise_for_status().json()["token"]
        listed = await self._ask(first, "GET", "/api/tokens", params={"valid": True})
        jti = next(row["jti"] for row in listed.raise_for_status().json() if row["name"] == name)
        await self._all_say(self.replicas, token, 200)
        (await self._ask(first, "DELETE", f"/api/tokens/{jti}")).raise_for_status()
        began = time.monotonic()
        await self._all_say(self.replicas, token, 401)
        self.times.note("a token revoked: refused by all replicas", time.monotonic() - began)

    async def _revoke_logins(self) -> None:
        """Have a program log in on each node, delete its login at a replica, and see it disconnected."""
        first, name = self.chance.choice(list(self.replicas)), f"p{uuid4().hex[:12]}"
        answer = await self._ask(first, "POST", "/api/clients", json={"name": name})
        made = answer.raise_for_status().json()
        async with asyncio.timeout(_AGREE_S), AsyncExitStack() as stack:
            on = [
                await stack.enter_async_context(_logged_in(port, made, number))
                for number, port in enumerate(self.ports)
            ]
            began = time.monotonic()
            (await self._ask(first, "DELETE", f"/api/clients/{name}")).raise_for_status()
            await asyncio.gather(*(gone.wait() for gone in on))
            self.times.note("a login deleted: disconnected from all nodes", time.monotonic() - began)

    async def _all_say(self, names: Collection[str], token: str, status: int) -> None:
        async with asyncio.timeout(_AGREE_S):
            for name in names:
                while (await self._ask(name, "GET", "/api/conversations", token=token)).status_code != status:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)

    async def _ask(
        self, replica: str, method: str, path: str, *, token: str = "", **more: Any
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {token or self.token}"}
        url = f"http://127.0.0.1:{self.replicas[replica]}{path}"
        # A connection of its own each time, and no certificates to load.
        async with httpx.AsyncClient(headers=headers, timeout=_ASK_S, verify=False) as client:
            return await client.request(method, url, **more)

    @property
    def token(self) -> str:
        return Home(self.house.home).token_file.read_text().strip()

    # -- looking ----------------------------------------------------------------------------------

    def leader(self) -> tuple[str, int]:
        """Return which replica has the latest term, and that term."""
        with psycopg.connect(self.house.database_url, connect_timeout=5) as connection:
            query = "SELECT instance, term FROM replica ORDER BY term DESC LIMIT 1"
            found = connection.execute(query).fetchone()
        return found or ("", 0)

    def is_ready(self, name: str) -> bool:
        """Whether a replica answers and has its broker."""
        self.house.ended(name)
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.replicas[name]}/api/health", timeout=5)
            return bool(answer.is_success and answer.json()["broker"]["connected"])
        except (httpx.HTTPError, ValueError):
            return False

    async def all_ready(self) -> None:
        for name in self.replicas:
            await eventually(lambda name=name: not self.is_ready(name), what=f"{name} to be ready")

    async def unrecorded(self) -> list[str]:
        """Give the chats whose answer came, and that the record does not have as ended."""
        name = next(iter(self.replicas))
        lost = []
        for call in self.signed:
            if call.code == "result":
                answer = await self._ask(name, "GET", f"/api/turns/{call.token}")
                if not answer.is_success or answer.json()["state"] != "finished":
                    lost.append(f"{call}: {answer.text[:300]}")
        return lost

    def missing_spokes(self) -> object:
        """Return the spokes that are not online with all their skills."""
        rows = {row["id"]: row for row in self.house.ask("/api/devices")}
        return [name for name in self.spokes if rows[name]["state"] != "online" or rows[name]["awaited"]]
