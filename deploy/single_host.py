"""All of one home on one machine: broker and hub in this process, the local spoke in its own."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version

from deploy.home import Home
from deploy.local_broker import enter_broker
from deploy.local_hub import Say, enter_hub, only_hub
from deploy.local_spoke import first_sight, local_spoke
from deploy.running import forever

_SPOKE_START_S = 20.0
"""How long the start message waits for the local spoke; it may still come later."""


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
    async with AsyncExitStack() as stack:
        stack.enter_context(only_hub(home))
        broker = await enter_broker(stack, home, port=ports.mqtt)
        say(f"  broker   {broker.url}")
        hub = await enter_hub(stack, home, broker_url=broker.url, http_port=ports.http, say=say)
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
