"""The bus in this process: amqtt, made strict, for a home that runs no broker of its own."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from amqtt.plugins.manager import plugins_manager

from broker.amqtt_broker import StrictBroker
from broker.amqtt_limits import Limits
from broker.amqtt_peer import Peer
from broker.amqtt_plugins import Gate
from broker.amqtt_retained import RetainedStore
from broker.amqtt_revocations import Revocations
from broker.keys import PublicKey
from broker.ports import listen

__all__ = ["EmbeddedBroker", "EmbeddedSettings", "Limits", "open_embedded"]

_log = logging.getLogger(__name__)

_AMQTT_TABLE: Final = "amqtt.broker.plugins"
"""Name under which amqtt keeps the plugins of the last broker, and so the broker, for ever."""

_HOST: Final = "127.0.0.1"
"""Tokens cross this connection as they are, so nobody beyond this machine may reach it."""


@dataclass(frozen=True)
class EmbeddedSettings:
    """How the embedded broker is to run.

    Attributes:
        data_dir: Where ``retained.db`` and ``revoked.json`` are kept, owner-only.
        hub_id: Issuer of the tokens that are taken.
        hub_key: The key that signs them.
        port: On loopback; 0 takes any free one.
    """

    data_dir: Path
    hub_id: str
    hub_key: PublicKey
    port: int = 1883
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class EmbeddedBroker:
    """A broker that is running.

    Attributes:
        port: Where it listens, on loopback.
    """

    port: int
    _broker: StrictBroker = field(repr=False)

    @property
    def clients(self) -> int:
        """How many clients are logged in."""
        return len(self._broker.sessions)

    @property
    def url(self) -> str:
        """Where clients on this machine connect to."""
        return f"mqtt://{_HOST}:{self.port}"


@asynccontextmanager
async def open_embedded(settings: EmbeddedSettings) -> AsyncIterator[EmbeddedBroker]:
    """Run the broker for as long as the context is open; clients can connect once it is entered.

    Raises:
        ConfigError: If it cannot listen there, or its files cannot be used.
    """
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        stack.enter_context(_quiet_libraries())
        listener = stack.enter_context(listen(_HOST, settings.port, purpose="MQTT"))
        revocations = Revocations.load(settings.data_dir / "revoked.json")
        store = RetainedStore(settings.data_dir / "retained.db")
        await asyncio.to_thread(store.load)
        stack.callback(store.close)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        gate = Gate(settings.hub_id, settings.hub_key, revocations)
        strict = StrictBroker(gate=gate, limits=settings.limits, retained=store, tasks=tasks)
        try:
            async with _run(strict, store, tasks), _serve(strict, listener, tasks):
                running = EmbeddedBroker(listener.getsockname()[1], strict)
                _log.info("broker started at %s", running.url)
                try:
                    yield running
                finally:
                    # The listeners wait for their connections to end.
                    await strict.dismiss()
        except Exception as error:  # noqa: BLE001 - raised below as it is, not wrapped by the task group
            failure = error
        _log.info("broker stopped")
    if failure is not None:
        raise failure


@asynccontextmanager
async def _run(broker: StrictBroker, store: RetainedStore, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
    await broker.start()
    storing = tasks.create_task(store.run(), name="store retained messages")
    watching = tasks.create_task(broker.watch(), name="watch keepalive and expiry")
    try:
        yield
    finally:
        watching.cancel()
        await broker.shutdown()
        # Not cancelled: the wills of everybody have only just come.
        store.finish()
        await storing
        plugins_manager.pop(_AMQTT_TABLE, None)


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keep the libraries from logging below WARNING: amqtt logs tokens when left alone."""
    loggers = [logging.getLogger(name) for name in ("amqtt", _AMQTT_TABLE, "transitions")]
    before = [(each, each.level) for each in loggers]
    for each in loggers:
        each.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for each, level in before:
            each.setLevel(level)


@asynccontextmanager
async def _serve(
    broker: StrictBroker, listener: socket.socket, tasks: asyncio.TaskGroup
) -> AsyncIterator[None]:
    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        tasks.create_task(broker.serve(peer), name=f"serve {peer.address}")

    server = await asyncio.start_server(accepted, sock=listener)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
