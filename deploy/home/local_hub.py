"""The hub of this home: its models, its sandbox, its HTTP address."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field

from agent_core.models.entries import SETTINGS_FILE, Models
from bus.ports import listen
from deploy.home.broker_registry import is_local
from deploy.home.bus import choose_bus, choose_home_link
from deploy.home.directory import Home
from deploy.home.lan import Lan, LanOptions, enter_lan
from deploy.home.running import Ready, chosen_by, forever, unheard
from deploy.home.sandbox import prepare_sandbox
from deploy.settings.settings import read_gateway, read_household, read_limits, read_models
from hub_agent.service import Hub, open_hub
from hub_agent.settings import BusSettings, HttpSettings, HubSettings, LanSettings, TurnSettings
from identity.files import only_one

Say = Callable[[str], None]


@dataclass(frozen=True)
class HubOptions:
    """What was asked for.

    Attributes:
        broker: Address of the broker; None for the one that the settings name.
        trust: Whether a broker that Strawberry did not set up may be used.
        http_port: On loopback; 0 takes any free one.
    """

    broker: str | None = None
    trust: bool = False
    http_port: int = 8321
    lan: LanOptions = field(default_factory=LanOptions)


async def run_hub(home: Home, *, options: HubOptions, say: Say, ready: Ready = unheard) -> None:
    """Run the hub until cancelled.

    Args:
        ready: Is told in words once the hub serves.

    Raises:
        ConfigError: If the port is taken or a file cannot be used, or the broker is not one of ours.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(only_hub(home))
        bus = await choose_bus(home, options.broker, trust=options.trust)
        lan = await enter_lan(stack, home, options.lan, say=say)
        hub = await enter_hub(stack, home, bus=bus, options=options, lan=lan, say=say)
        say(f"Ready: hub at {hub.url} with the broker {bus.url}. Ctrl-C ends.")
        ready(f"hub at {hub.url} with the broker {bus.url}")
        await forever()


async def enter_hub(
    stack: AsyncExitStack, home: Home, *, bus: BusSettings, options: HubOptions, lan: Lan | None, say: Say
) -> Hub:
    """Open the hub, its sandbox in place before, and say where it is and which model answers."""
    models, http_port = read_models(home), options.http_port
    settings = HubSettings(
        home=home.directory,
        bus=bus,
        home_link=choose_home_link(home),
        http=HttpSettings(port=http_port, lan=_lan_settings(home, lan, options)),
        ca=_authorities(lan, bus),
        models=models,
        gateway=read_gateway(home),
        turns=TurnSettings(limits=read_limits(home)),
        household=read_household(home),
    )
    with chosen_by("--http-port"):
        # A port that is taken is told before the sandbox is fetched, not after.
        listen(settings.http.host, http_port, purpose="HTTP").close()
    await prepare_sandbox(home, say=say, without="sentences and 'strawberry call' work all the same")
    with chosen_by("--http-port or --https-port"):
        hub = await stack.enter_async_context(open_hub(settings))
    for line in _describe(hub, lan):
        say(line)
    if lan is not None and all(map(is_local, bus.addresses or (bus.url,))):
        say("  note     the broker is not open to other machines: start it with --lan, or say in [broker] of")
        say(f"           {home.directory / SETTINGS_FILE} under which addresses they reach it")
    for line in describe_models(models):
        say(f"  model    {line}")
    return hub


def _describe(hub: Hub, lan: Lan | None) -> Iterator[str]:
    """Say where it is, and how other machines join it."""
    yield f"  hub      {hub.url}"
    if lan is None or hub.lan_port is None:
        return
    secure = lan.context is not None
    urls = lan.urls("https" if secure else "http", hub.lan_port)
    for url in urls:
        yield f"           {url} (from other machines)"
    yield f"  key      {hub.registry.key.kid} (fingerprint of the hub's key)"
    if urls:
        yield f"  join     strawberry spoke join {urls[0]}{'' if secure else ' --insecure'}"


def _lan_settings(home: Home, lan: Lan | None, options: HubOptions) -> LanSettings | None:
    if lan is None:
        return None
    return LanSettings(
        port=options.lan.https_port,
        certificates=None if lan.context is None else home.certs,
        insecure=lan.context is None,
        names=lan.names,
    )


def _authorities(lan: Lan | None, bus: BusSettings) -> str | None:
    """Give all authorities that devices need: that of this home, and that of its broker."""
    found = [pem for pem in (lan.ca if lan is not None else None, bus.ca) if pem is not None]
    return "\n".join(found) or None


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
