"""All of one home on one machine: broker and hub in this process, the local spoke in its own."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version

from contracts.errors import ConfigError
from deploy.home.broker_registry import is_local
from deploy.home.bus import choose_bus
from deploy.home.directory import Home
from deploy.home.lan import Lan, enter_lan
from deploy.home.local_broker import BrokerPorts, describe_broker, enter_embedded, enter_mosquitto
from deploy.home.local_hub import HubOptions, Say, enter_hub, only_hub
from deploy.home.local_spoke import first_sight, local_spoke
from deploy.home.running import Ready, forever, unheard
from deploy.settings.settings import read_broker
from hub_agent.settings import BusSettings

_SPOKE_START_S = 20.0
"""How long the start message waits for the local spoke; it may still come later."""


@dataclass(frozen=True)
class UpOptions:
    """What was asked for.

    Attributes:
        hub: With ``embedded`` or ``mosquitto`` as its broker, that one is run, too.
        ports: Of the broker that is run.
        spoke: Whether to run the local spoke.
    """

    hub: HubOptions = field(default_factory=HubOptions)
    ports: BrokerPorts = field(default_factory=BrokerPorts)
    spoke: bool = True


async def run_up(home: Home, *, options: UpOptions, say: Say, ready: Ready = unheard) -> None:
    """Run everything until cancelled.

    Args:
        home: Where all files lie.
        say: Shows a line to the person who started it.
        ready: Is told in words once all of it serves.

    Raises:
        ConfigError: If a port is taken or a file cannot be used, or the broker is not one of ours.
    """
    say(f"Strawberry {version('strawberry-home')}, files in {home.directory}")
    async with AsyncExitStack() as stack:
        stack.enter_context(only_hub(home))
        lan = await enter_lan(stack, home, options.hub.lan, say=say)
        bus = await _enter_bus(stack, home, options, lan, say)
        hub = await enter_hub(stack, home, bus=bus, options=options.hub, lan=lan, say=say)
        if options.spoke:
            insecure = bus.kind == "mosquitto" and all(map(_must_be_accepted, bus.addresses or (bus.url,)))
            await stack.enter_async_context(local_spoke(home, hub.url, insecure=insecure))
            say(f"  spoke    {await _first_sight(home, hub.url)}")
        say('Ready. Try: strawberry chat "turn on the lamp"   Ctrl-C ends.')
        ready(f"hub at {hub.url} with the broker {bus.url}")
        await forever()


async def _enter_bus(
    stack: AsyncExitStack, home: Home, options: UpOptions, lan: Lan | None, say: Say
) -> BusSettings:
    """Run a broker where one is to be run, and settle how the hub uses it."""
    wanted = options.hub.broker or ("embedded" if read_broker(home) is None else None)
    match wanted:
        case "embedded":
            broker = await enter_embedded(stack, home, ports=options.ports, lan=lan)
        case "mosquitto":
            broker = await enter_mosquitto(stack, home, ports=options.ports, lan=lan)
        case str() if "://" not in wanted:
            raise ConfigError(
                f"{wanted!r} is no broker", hint="Say embedded, mosquitto, or an address as mqtt://host:1883."
            )
        case _:
            bus = await choose_bus(home, wanted, trust=options.hub.trust)
            awaited = bus.kind == "embedded" and not bus.is_ours()
            say(f"  broker   {bus.url} ({'embedded, not there yet' if awaited else _KINDS[bus.kind]})")
            if bus.kind == "shared" and bus.login is None:
                say("           without a login: [broker] in strawberry.toml may name one")
            return bus
    for line in describe_broker(broker):
        say(line)
    return BusSettings(url=broker.urls[0], kind=broker.kind, addresses=broker.addresses)


_KINDS = {
    "embedded": "embedded, run elsewhere",
    "mosquitto": "Mosquitto, set up by Strawberry",
    "shared": "shared with others: topics stand below strawberry/, logins are ordinary ones",
}


def _must_be_accepted(url: str) -> bool:
    """Whether a spoke uses the address only where that was spelled out; for a broker of our own it was."""
    return url.startswith("mqtt://") and not is_local(url)


async def _first_sight(home: Home, hub_url: str) -> str:
    try:
        return await asyncio.wait_for(first_sight(home, hub_url), _SPOKE_START_S)
    except TimeoutError:
        return "not there yet; 'strawberry devices list' shows when it is"
