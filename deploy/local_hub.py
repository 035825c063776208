"""The hub of this home: its models, its sandbox, its HTTP address."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack

from agent_core.models import Models
from broker.files import only_one
from broker.ports import listen
from contracts.errors import SandboxError
from deploy.home import Home
from deploy.running import chosen_by, forever
from deploy.settings import read_household, read_models
from hub_agent.service import Hub, open_hub
from hub_agent.settings import BusSettings, HttpSettings, HubSettings
from sandbox_host import install

Say = Callable[[str], None]


async def run_hub(home: Home, *, broker_url: str, http_port: int, say: Say) -> None:
    """Run the hub until cancelled.

    Raises:
        ConfigError: If the port is taken or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(only_hub(home))
        hub = await enter_hub(stack, home, broker_url=broker_url, http_port=http_port, say=say)
        say(f"Ready: hub at {hub.url} with the broker {broker_url}. Ctrl-C ends.")
        await forever()


async def enter_hub(stack: AsyncExitStack, home: Home, *, broker_url: str, http_port: int, say: Say) -> Hub:
    """Open the hub, its sandbox in place before, and say where it is and which model answers."""
    models = read_models(home)
    settings = HubSettings(
        home=home.directory,
        bus=BusSettings(url=broker_url),
        http=HttpSettings(port=http_port),
        models=models,
        household=read_household(home),
    )
    with chosen_by("--http-port"):
        # A port that is taken is told before the sandbox is fetched, not after.
        listen(settings.http.host, http_port, purpose="HTTP").close()
    await prepare_sandbox(home, say=say)
    with chosen_by("--http-port"):
        hub = await stack.enter_async_context(open_hub(settings))
    say(f"  hub      {hub.url}")
    for line in describe_models(models):
        say(f"  model    {line}")
    return hub


def only_hub(home: Home) -> AbstractContextManager[None]:
    """Hold this home for one hub; two would write one database and one address.

    Raises:
        ConfigError: If another process holds it.
    """
    return only_one(
        home.hub, what="a hub", hint="Stop it, or set another STRAWBERRY_HOME for a second household."
    )


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
        if error.hint:
            say(f"           {error.hint}")
        say("           sentences and 'strawberry call' work all the same; start again to try once more")
        return
    if shown:
        say(f"  sandbox  in place after {time.monotonic() - started:.0f} s")
