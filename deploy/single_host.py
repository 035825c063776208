"""All of one home on one machine: broker and hub in this process, the local spoke in its own.

Broker and hub run alone from here, too.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeVar

from agent_core.models import Models, choose, read_entries, read_keys
from broker.embedded import EmbeddedBroker, EmbeddedSettings, open_embedded
from contracts.errors import PortTaken, SandboxError
from deploy.home import Home
from deploy.identity import load_identity
from deploy.local_spoke import first_sight, local_spoke
from deploy.running import forever
from hub_agent.service import Hub, open_hub
from hub_agent.settings import BusSettings, HttpSettings, HubSettings
from sandbox_host import install

_log = logging.getLogger(__name__)

_SPOKE_START_S = 20.0
"""How long the start message waits for the local spoke; it may still come later."""

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Ports:
    """Where to listen; 0 takes any free port."""

    http: int
    mqtt: int


async def run_up(home: Home, *, ports: Ports, spoke: bool, say: Say) -> None:
    """Run everything until cancelled.

    Args:
        home: Where all files lie.
        ports: Where to listen.
        spoke: Whether to run the local spoke.
        say: Shows a line to the person who started it.

    Raises:
        ConfigError: If a port is taken or a file cannot be used.
    """
    say(f"Strawberry {version('strawberry-home')}, files in {home.directory}")
    await prepare_sandbox(home, say=say)
    async with AsyncExitStack() as stack:
        broker = await _enter(stack, open_broker(home, port=ports.mqtt), option="--mqtt-port")
        say(f"  broker   {broker.url}")
        hub = await _open_hub(stack, home, broker_url=broker.url, port=ports.http, say=say)
        if spoke:
            await stack.enter_async_context(local_spoke(home, hub.url))
            say(f"  spoke    {await _first_sight(home, hub.url)}")
        say('Ready. Try: strawberry chat "turn on the lamp"   Ctrl-C ends.')
        await forever()


async def _first_sight(home: Home, hub_url: str) -> str:
    try:
        return await asyncio.wait_for(first_sight(home, hub_url), _SPOKE_START_S)
    except TimeoutError:
        return "not there yet; 'strawberry devices list' shows when it is"


async def run_broker_alone(home: Home, *, port: int, say: Say) -> None:
    """Run the embedded broker until cancelled."""
    async with AsyncExitStack() as stack:
        broker = await _enter(stack, open_broker(home, port=port), option="--mqtt-port")
        say(f"Ready: broker at {broker.url}. Ctrl-C ends.")
        await forever()


async def run_hub_alone(home: Home, *, broker_url: str, http_port: int, say: Say) -> None:
    """Run the hub until cancelled."""
    await prepare_sandbox(home, say=say)
    async with AsyncExitStack() as stack:
        hub = await _open_hub(stack, home, broker_url=broker_url, port=http_port, say=say)
        say(f"Ready: hub at {hub.url} with the broker {broker_url}. Ctrl-C ends.")
        await forever()


async def _open_hub(stack: AsyncExitStack, home: Home, *, broker_url: str, port: int, say: Say) -> Hub:
    models = read_models(home)
    settings = HubSettings(
        home=home.directory, bus=BusSettings(url=broker_url), http=HttpSettings(port=port), models=models
    )
    hub = await _enter(stack, open_hub(settings), option="--http-port")
    say(f"  hub      {hub.url}")
    for line in describe_models(models):
        say(f"  model    {line}")
    return hub


async def _enter(stack: AsyncExitStack, context: AbstractAsyncContextManager[T], *, option: str) -> T:
    """Enter a context; a port that is taken names the option that chooses another."""
    try:
        return await stack.enter_async_context(context)
    except PortTaken as error:
        raise PortTaken(
            error.message, hint=f"Stop that program, or choose another port with {option} N."
        ) from None


@asynccontextmanager
async def open_broker(home: Home, *, port: int) -> AsyncIterator[EmbeddedBroker]:
    """Run the embedded broker for this home's hub, on loopback."""
    identity = await load_identity(home)
    settings = EmbeddedSettings(
        data_dir=home.broker, hub_id=identity.hub_id, hub_key=identity.key.public, port=port
    )
    async with open_embedded(settings) as broker:
        yield broker


def read_models(home: Home) -> Models:
    """Read which models can be asked.

    Raises:
        ConfigError: If ``strawberry.toml`` or ``.env`` cannot be used.
    """
    keys = read_keys(home.directory, os.environ)
    return choose(read_entries(home.directory), keys, home=home.directory)


def describe_models(models: Models) -> list[str]:
    """Say which model answers, and why others do not."""
    lines = [f"{model.entry.name} ({model.entry.model})" for model in models.usable]
    lines += [f"left out: {problem}" for problem in models.problems]
    if not models.usable:
        lines.insert(0, "no model answers: only declared sentences act")
    if models.hint:
        lines.append(models.hint)
    return lines


async def prepare_sandbox(home: Home, *, say: Say) -> None:
    """Fetch the sandbox and make its snapshot where that has not been done; go on without where it fails."""
    shown = False

    def progress(step: str) -> None:
        nonlocal shown
        shown = True
        say(f"  sandbox  {step}")

    started = time.monotonic()
    try:
        await install(home.sandbox, progress=progress)
    except SandboxError as error:
        say(f"  sandbox  not available: {error.message}")
        say("           sentences and 'strawberry call' work all the same; start again to try once more")
        _log.warning("the sandbox could not be installed: %s %s", error.message, error.hint)
        return
    if shown:
        say(f"  sandbox  in place after {time.monotonic() - started:.0f} s")
