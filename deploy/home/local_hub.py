"""The hub of this home: its models, its sandbox, its HTTP address."""

from collections.abc import Iterator
from contextlib import AsyncExitStack

from agent_core.models.entries import SETTINGS_FILE, Models
from deploy.home.broker_registry import is_local
from deploy.home.bus import choose_bus, choose_home_link
from deploy.home.directory import Home
from deploy.home.lan import Lan, enter_lan
from deploy.home.model_reload import reloaded_models
from deploy.home.running import Reporter, forever
from deploy.home.sandbox import prepare_sandbox
from deploy.settings.options import HubOptions, chosen_by
from deploy.settings.settings import (
    read_captures,
    read_embeddings,
    read_gateway,
    read_household,
    read_limits,
    read_models,
    read_protobuf,
    read_watchers,
)
from hub_agent.service import Hub, open_hub
from hub_agent.settings import (
    BusSettings,
    CaptureSettings,
    HttpSettings,
    HubSettings,
    LanSettings,
    ProtobufSettings,
    TurnSettings,
    WatcherSettings,
)


async def run_hub(home: Home, *, options: HubOptions, report: Reporter) -> None:
    """Run the hub until cancelled.

    Raises:
        ConfigError: If the port is taken or a file cannot be used, or the broker is not one of ours.
    """
    async with AsyncExitStack() as stack:
        bus = await choose_bus(home, options.broker, trust=options.trust)
        lan = await enter_lan(stack, home, options.lan, report=report)
        hub = await enter_hub(stack, home, bus=bus, options=options, lan=lan, report=report)
        await await_broker(hub, report=report)
        where = f"hub at {hub.url} with the broker {bus.url}"
        report.ready(f"Ready: {where}. Ctrl-C ends.", status=where, hub=hub.url, broker=bus.url)
        await forever()


async def enter_hub(
    stack: AsyncExitStack,
    home: Home,
    *,
    bus: BusSettings,
    options: HubOptions,
    lan: Lan | None,
    report: Reporter,
) -> Hub:
    """Fetch the sandbox, open the hub, and report its address and its models."""
    models = read_models(home)
    settings = HubSettings(
        home=home.directory,
        bus=bus,
        home_link=choose_home_link(home),
        protobuf=_protobuf(home),
        http=HttpSettings(port=options.http_port, lan=_lan_settings(home, lan, options)),
        ca=_authorities(lan, bus),
        models=models,
        embeddings=read_embeddings(home),
        gateway=read_gateway(home),
        turns=TurnSettings(limits=read_limits(home)),
        household=read_household(home),
        captures=read_captures(home) or CaptureSettings(),
        watchers=read_watchers(home) or WatcherSettings(),
    )
    await prepare_sandbox(home, report=report, without="sentences and 'strawberry call' work without it")
    with chosen_by("--http-port or --https-port"):
        hub = await stack.enter_async_context(open_hub(settings))
    urls = _lan_urls(hub, lan)
    report.state("hub", *_described(hub, lan, urls), url=hub.url, urls=urls, key=hub.registry.key.kid)
    if lan is not None and all(map(is_local, bus.addresses or (bus.url,))):
        report.say(
            "  note     other machines cannot reach the broker: start it with --lan, or list its addresses",
            f"           in [broker] of {home.directory / SETTINGS_FILE}",
        )
    report.state(
        "models",
        *(f"  model    {line}" for line in describe_models(models)),
        usable=[model.entry.name for model in models.usable],
        problems=models.problems,
    )
    await stack.enter_async_context(reloaded_models(home, hub, report))
    return hub


def _protobuf(home: Home) -> ProtobufSettings | None:
    table = read_protobuf(home)
    if table is None:
        return None
    files = tuple(home.directory / file for file in table.descriptors)
    return ProtobufSettings(descriptors=files, topics=table.topics)


async def await_broker(hub: Hub, *, report: Reporter) -> None:
    """Wait until the hub is connected to its broker; report why it is not, if it is not yet."""
    if hub.link.connected:
        return
    error = hub.link.last_error
    problem = error.message if error is not None else "the broker does not answer"
    hint = f" {error.hint}" if error is not None and error.hint else ""
    report.waiting(
        f"Not ready: {problem}.{hint} The hub tries again until it answers. Ctrl-C ends.",
        status=f"hub at {hub.url}; {problem}",
        problem=problem,
    )
    await hub.link.wait_connected()


def _lan_urls(hub: Hub, lan: Lan | None) -> tuple[str, ...]:
    if lan is None or hub.lan_port is None:
        return ()
    return lan.urls("http" if lan.context is None else "https", hub.lan_port)


def _described(hub: Hub, lan: Lan | None, urls: tuple[str, ...]) -> Iterator[str]:
    """Write where the hub is, and how other machines join it."""
    yield f"  hub      {hub.url}"
    if lan is None:
        return
    for url in urls:
        yield f"           {url} (from other machines)"
    yield f"  key      {hub.registry.key.kid} (fingerprint of the hub's key)"
    if urls:
        insecure = " --insecure" if lan.context is None else ""
        yield f"  join     strawberry spoke join {urls[0]}{insecure}"


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
    """Return all authorities that devices need: that of this home, and that of its broker."""
    found = [pem for pem in (lan.ca if lan is not None else None, bus.ca) if pem is not None]
    return "\n".join(found) or None


def describe_models(models: Models) -> list[str]:
    """List the models that can be asked, and why others cannot."""
    lines = [f"{model.entry.name} ({model.entry.model})" for model in models.usable]
    lines += [f"left out: {problem}" for problem in models.problems]
    if not models.usable:
        lines.insert(0, "no model answers: only declared sentences act")
    if models.hint:
        lines.append(models.hint)
    return lines
