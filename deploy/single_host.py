"""All of one home on one machine: broker and hub in this process, the local spoke in its own."""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar

from agent_core.models import Models, choose, read_entries, read_keys
from broker.embedded import EmbeddedBroker, EmbeddedSettings, open_embedded
from contracts.errors import PortTaken, SandboxError, StrawberryError
from deploy.cli.client import HubClient
from deploy.home import Home
from deploy.identity import load_identity
from deploy.running import Stop
from hub_agent.service import open_hub
from hub_agent.settings import BusSettings, HttpSettings, HubSettings
from sandbox_host import install

_log = logging.getLogger(__name__)

_SPOKE_START_S = 20.0
"""How long the start message waits for the local spoke; it may still come later."""
_RESTART_S = (1.0, 60.0)
"""First and longest wait before the local spoke is started again after it ended."""
_STOP_S = 15.0
"""How long the local spoke may take to let its skills finish; its own grace is shorter."""

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Ports:
    """Where to listen; 0 takes any free port."""

    http: int
    mqtt: int


async def run_up(home: Home, *, ports: Ports, spoke: bool, say: Say, stop: Stop) -> None:
    """Run everything until told to stop.

    Args:
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
        models = read_models(home)
        hub = await _enter(
            stack, open_hub(hub_settings(home, broker.url, ports.http, models)), option="--http-port"
        )
        say(f"  hub      {hub.url}")
        for line in describe_models(models):
            say(f"  model    {line}")
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        local: asyncio.Task[None] | None = None
        if spoke:
            local = tasks.create_task(_keep_spoke(home, hub.url, stop), name="local spoke")
            say(f"  spoke    {await _first_sight(home, hub.url, stop)}")
        if not stop.is_set():
            say('Ready. Try: strawberry chat "turn on the lamp"   Ctrl-C ends.')
        await stop.wait()
        say("Stopping …")
        if local is not None:
            await local


async def run_broker_alone(home: Home, *, port: int, say: Say, stop: Stop) -> None:
    """Run the embedded broker until told to stop."""
    async with AsyncExitStack() as stack:
        broker = await _enter(stack, open_broker(home, port=port), option="--mqtt-port")
        say(f"Broker at {broker.url}. Ctrl-C ends.")
        await stop.wait()


async def run_hub_alone(home: Home, *, broker_url: str, http_port: int, say: Say, stop: Stop) -> None:
    """Run the hub until told to stop."""
    await prepare_sandbox(home, say=say)
    models = read_models(home)
    async with AsyncExitStack() as stack:
        settings = hub_settings(home, broker_url, http_port, models)
        hub = await _enter(stack, open_hub(settings), option="--http-port")
        say(f"Hub at {hub.url}, broker {broker_url}. Ctrl-C ends.")
        for line in describe_models(models):
            say(f"  model    {line}")
        await stop.wait()


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


def hub_settings(home: Home, broker_url: str, http_port: int, models: Models) -> HubSettings:
    """Put together the settings of the hub of this home."""
    return HubSettings(
        home=home.directory,
        bus=BusSettings(url=broker_url),
        http=HttpSettings(port=http_port),
        models=models,
    )


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


# -- the local spoke ------------------------------------------------------------------------------


async def _keep_spoke(home: Home, hub_url: str, stop: Stop) -> None:
    """Run the local spoke, and run it again when it ends by itself."""
    shortest, longest = _RESTART_S
    wait = shortest
    while not stop.is_set():
        started = time.monotonic()
        code = await _run_spoke(home, hub_url, stop)
        if stop.is_set():
            return
        wait = shortest if time.monotonic() - started > longest else min(wait * 2, longest)
        _log.warning("the local spoke ended with code %s; starting it again in %.0f s", code, wait)
        await _until(stop.wait(), wait)


async def _run_spoke(home: Home, hub_url: str, stop: Stop) -> int:
    environment = {**os.environ, "STRAWBERRY_HOME": str(home.directory)}
    if not (home.spoke / "enrolment.json").exists():
        environment["HUB_DEVICE_TOKEN"] = await asyncio.to_thread(_invite, home, hub_url)
    debug = ["--debug"] if logging.getLogger().isEnabledFor(logging.DEBUG) else []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.cli.main", "spoke", "run", "--hub", hub_url),
        *("--samples", "--with-parent", *debug),
        env=environment,
        # Its end tells the child that this process is gone, however it went.
        stdin=asyncio.subprocess.PIPE,
        # Ctrl-C goes to this process only: it stops the child in its own order.
        start_new_session=True,
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(process.wait(), name="local spoke's end")
            told = tasks.create_task(stop.wait(), name="told to stop")
            await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            if not ended.done():
                process.terminate()
                if not await _until(process.wait(), _STOP_S):
                    _log.warning("the local spoke did not stop in %.0f s and is killed", _STOP_S)
                    process.kill()
    finally:
        if process.returncode is None:
            process.kill()
    return await process.wait()


async def _until(awaitable: Awaitable[Any], seconds: float) -> bool:
    """Wait, but not longer than this; say whether it came to its end."""
    try:
        await asyncio.wait_for(awaitable, seconds)
    except TimeoutError:
        return False
    return True


def _invite(home: Home, hub_url: str) -> str:
    """Get an enrolment token through the same door as any device."""
    answer = HubClient.find(home, url=hub_url).request("POST", "/api/devices", {"name": socket.gethostname()})
    return str(answer["token"])


async def _first_sight(home: Home, hub_url: str, stop: Stop) -> str:
    """Wait until the hub sees the local spoke, and say what it offers."""
    deadline = time.monotonic() + _SPOKE_START_S
    while not stop.is_set() and time.monotonic() < deadline:
        for device in await asyncio.to_thread(_devices, home, hub_url):
            if device["state"] == "online" and device["skills"]:
                return f"{device['name']} ({device['id']}): {', '.join(device['skills'])}"
        await _until(stop.wait(), 0.1)
    return "not there yet; 'strawberry devices list' shows when it is"


def _devices(home: Home, hub_url: str) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = HubClient.find(home, url=hub_url).request("GET", "/api/devices")
    except StrawberryError as error:
        _log.debug("asking for the devices: %s", error)
        return []
    return rows
