"""The hub of this home: its models, its sandbox, its HTTP address."""

import logging
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from agent_core.models import Models, choose, read_entries, read_keys
from contracts.errors import SandboxError
from deploy.home import Home
from deploy.running import enter, forever
from hub_agent.service import Hub, open_hub
from hub_agent.settings import BusSettings, HttpSettings, HubSettings
from sandbox_host import install

_log = logging.getLogger(__name__)

Say = Callable[[str], None]


async def run_hub(home: Home, *, broker_url: str, http_port: int, say: Say) -> None:
    """Run the hub until cancelled.

    Raises:
        ConfigError: If the port is taken or a file cannot be used.
    """
    await prepare_sandbox(home, say=say)
    async with AsyncExitStack() as stack:
        hub = await enter_hub(stack, home, broker_url=broker_url, http_port=http_port, say=say)
        say(f"Ready: hub at {hub.url} with the broker {broker_url}. Ctrl-C ends.")
        await forever()


async def enter_hub(stack: AsyncExitStack, home: Home, *, broker_url: str, http_port: int, say: Say) -> Hub:
    """Open the hub and say where it is and which model answers."""
    models = read_models(home)
    settings = HubSettings(
        home=home.directory, bus=BusSettings(url=broker_url), http=HttpSettings(port=http_port), models=models
    )
    hub = await enter(stack, open_hub(settings), option="--http-port")
    say(f"  hub      {hub.url}")
    for line in describe_models(models):
        say(f"  model    {line}")
    return hub


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
