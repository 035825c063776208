"""The two brokers of the benchmarks, each in a process of its own, and how to log in to them."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from paho.mqtt import publish
from paho.mqtt.enums import MQTTProtocolVersion
from pydantic import SecretStr

from benchmarks.bus_peer import HUB
from bus.link import LinkSettings
from contracts.claims import PrincipalKind
from identity import tokens
from identity.keys import KeyPair
from tests.mosquitto import Mosquitto
from tests.ports import free_port

_ELECTED_S: Final = 60


@dataclass(frozen=True)
class Bus:
    """A broker under test and how to log in to it.

    Attributes:
        far_port: Of the node that the other side uses; that of the broker where it is one.
    """

    name: str
    port: int
    protocol: MQTTProtocolVersion
    hub: KeyPair
    with_tokens: bool
    far_port: int = 0

    def token(self, name: str, kind: PrincipalKind) -> str | None:
        """Return a login for the embedded broker; Mosquitto here asks for none."""
        if not self.with_tokens:
            return None
        claims = tokens.make_claims(
            hub_id=HUB, subject=name, kind=kind, owner="bench", scopes=("register",), lifetime_s=3600
        )
        return tokens.issue(self.hub, claims)

    @property
    def url(self) -> str:
        """Its address."""
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def far(self) -> "Bus":
        """The same for the other side."""
        return replace(self, port=self.far_port or self.port)

    def link(self, name: str) -> LinkSettings:
        """Return the settings of a hub of this name."""
        token = self.token(name, "hub")
        password = SecretStr(token) if token else None
        return LinkSettings(urls=(self.url,), client_id=name, username=name, password=password)


@dataclass(frozen=True)
class Peer:
    """A process of the benchmarks.

    Attributes:
        said: The line that it wrote when it was ready.
    """

    process: asyncio.subprocess.Process
    said: str


@asynccontextmanager
async def mosquitto_bus(directory: Path) -> AsyncIterator[Bus]:
    """Run a Mosquitto that asks for no login."""
    with Mosquitto(directory) as mosquitto:
        hub = _key(directory)
        yield Bus("Mosquitto", mosquitto.port, MQTTProtocolVersion.MQTTv5, hub, with_tokens=False)


@asynccontextmanager
async def embedded_bus(directory: Path) -> AsyncIterator[Bus]:
    """Run the embedded broker."""
    hub = _key(directory)
    async with peer("broker", {"directory": str(directory)}) as broker:
        yield Bus(
            "the embedded broker", int(broker.said), MQTTProtocolVersion.MQTTv311, hub, with_tokens=True
        )


@asynccontextmanager
async def nats_bus(directory: Path) -> AsyncIterator[Bus]:
    """Run three nodes of NATS on this machine that ask for no login; the two sides use two of them."""
    binary = find_nats()
    assert binary is not None
    ports = [(free_port(), free_port(), free_port()) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for number, (mqtt, own, cluster) in enumerate(ports):
            place = directory / f"node-{number}"
            await asyncio.to_thread(place.mkdir)
            config = {
                "server_name": place.name,
                "listen": f"127.0.0.1:{own}",
                "jetstream": {"store_dir": str(place)},
                "mqtt": {"listen": f"127.0.0.1:{mqtt}"},
                "cluster": {
                    "name": "bench",
                    "listen": f"127.0.0.1:{cluster}",
                    "routes": [f"nats://127.0.0.1:{other}" for _, _, other in ports if other != cluster],
                },
            }
            file = place / "nats.conf"
            await asyncio.to_thread(file.write_text, json.dumps(config))
            process = await asyncio.create_subprocess_exec(
                binary, "-c", file, "-l", place / "log", stdout=asyncio.subprocess.DEVNULL
            )
            stack.push_async_callback(_ended, process)
        async with asyncio.timeout(_ELECTED_S):
            while not await asyncio.to_thread(_takes_logins, ports[0][0]):  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        hub = _key(directory)
        yield Bus(
            "three nodes of NATS",
            ports[0][0],
            MQTTProtocolVersion.MQTTv311,
            hub,
            with_tokens=False,
            far_port=ports[1][0],
        )


def find_nats() -> str | None:
    """Return the program of the server, None where it is not installed."""
    return shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


async def _ended(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()


def _takes_logins(port: int) -> bool:
    """Try to log in and to keep a message: the nodes first choose who keeps what."""
    try:
        publish.single("bench/ready", "", retain=True, hostname="127.0.0.1", port=port, qos=1)
    except OSError:
        return False
    return True


def _key(directory: Path) -> KeyPair:
    return KeyPair.load_or_create(directory / "hub.pem")


@asynccontextmanager
async def peer(role: str, settings: dict[str, Any]) -> AsyncIterator[Peer]:
    """Run the other side in a process of its own, until the block is left; it is ready when it is entered."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.bus_peer",
        role,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        await process.stdin.drain()
        yield Peer(process, (await process.stdout.readline()).decode().strip())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
