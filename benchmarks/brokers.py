"""The two brokers of the benchmarks, each in a process of its own, and how to log in to them."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paho.mqtt.enums import MQTTProtocolVersion
from pydantic import SecretStr

from benchmarks.bus_peer import HUB
from bus.link import LinkSettings
from contracts.claims import PrincipalKind
from identity import tokens
from identity.keys import KeyPair
from tests.mosquitto import Mosquitto


@dataclass(frozen=True)
class Bus:
    """A broker under test and how to log in to it."""

    name: str
    port: int
    protocol: MQTTProtocolVersion
    hub: KeyPair
    with_tokens: bool

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
