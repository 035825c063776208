"""The hub of this home: its models, its sandbox, its HTTP address."""

import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from pydantic import SecretStr

from agent_core.models.entries import SETTINGS_FILE, Models
from chat.tasks import open_tasks
from deploy import limits
from deploy.directory import Home
from deploy.home.brokers.bus import choose_bus, choose_home_link
from deploy.home.brokers.registry import is_local
from deploy.home.home_assistant import choose_home_assistant
from deploy.home.maintenance import Maintenance
from deploy.home.model_reload import reloaded_models
from deploy.home.running import Reporter, Restart, enter_lan
from deploy.home.sandbox import prepare_sandbox
from deploy.settings.options import HubOptions, chosen_by
from deploy.settings.settings import (
    HomeAssistantTable,
    read_database,
    read_embeddings,
    read_gateway,
    read_household,
    read_limits,
    read_models,
    read_or_default,
    read_table,
)
from hub_agent import settings as hub_settings
from hub_server.live import Live
from hub_server.service import Hub, open_hub
from hub_web import open_web

if TYPE_CHECKING:
    from deploy.home.lan import Lan


async def run_hub(home: Home, *, options: HubOptions, report: Reporter, restart: Restart) -> None:
    """Run the hub until cancelled, or until it is to start again.

    Raises:
        ConfigError: If the port is taken or a file cannot be used, or the broker is not one of ours.
    """
    async with AsyncExitStack() as stack:
        bus = await choose_bus(home, options.broker, trust=options.trust)
        lan = await enter_lan(stack, home, options.lan, report=report)
        host = Maintenance(home, restart=restart, lan=options.lan, is_replica=bool(options.replica))
        hub = await enter_hub(stack, home, bus=bus, options=options, lan=lan, report=report, host=host)
        await await_broker(hub, report=report)
        where = f"hub at {hub.url} with the broker {bus.url}"
        report.ready(f"Ready: {where}. Ctrl-C ends.", status=where, hub=hub.url, broker=bus.url)
        await stay(home, hub, restart)


async def stay(home: Home, hub: Hub, restart: Restart) -> None:
    """Load what the start need not wait for, and serve until the hub is to start again."""
    # So that the first program need not wait for its process.
    hub.sandbox.start()
    async with open_web(hub, household=read_household(home)):
        try:
            await restart.requested()
        finally:
            await hub.leave()


async def enter_hub(
    stack: AsyncExitStack,
    home: Home,
    *,
    bus: hub_settings.BusSettings,
    options: HubOptions,
    lan: "Lan | None",
    report: Reporter,
    host: Maintenance,
) -> Hub:
    """Fetch the sandbox, open the hub, and report its address and its models."""
    sys.setswitchinterval(limits.THREAD_SWITCH_S)
    models = read_models(home)
    settings = hub_settings.HubSettings(
        home=home.directory,
        instance=options.replica or hub_settings.MAIN,
        is_replica=bool(options.replica),
        bus=bus,
        home_link=choose_home_link(home, bus),
        home_assistant_access=choose_home_assistant(home),
        protobuf=_protobuf(home),
        http=hub_settings.HttpSettings(
            port=options.http_port,
            lan=_lan_settings(home, lan, options),
            **read_or_default(home, "http", hub_settings.HttpTable).model_dump(),
        ),
        ca=_authorities(lan, bus),
        models=models,
        embeddings=read_embeddings(home),
        gateway=read_gateway(home),
        turns=hub_settings.TurnSettings(limits=read_limits(home)),
        household=read_household(home),
        captures=read_or_default(home, "captures", hub_settings.CaptureSettings),
        watchers=read_or_default(home, "watchers", hub_settings.WatcherSettings),
        audit=read_or_default(home, "audit", hub_settings.AuditSettings),
        metrics=read_or_default(home, "metrics", hub_settings.MetricsSettings),
        # The variable that all programs have for it; the exporter reads the others, such as its headers.
        otlp_endpoint=os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        discovery=read_or_default(home, "home_assistant", HomeAssistantTable).discovery,
        notifications=read_or_default(home, "notifications", hub_settings.NotificationSettings),
        wyoming=read_table(home, "wyoming", hub_settings.WyomingSettings),
        database_url=SecretStr(place) if isinstance(place := read_database(home), str) else None,
    )
    tasks = await stack.enter_async_context(open_tasks())
    without = "sentences and 'strawberry call' work without it"
    preparing = tasks.create_task(prepare_sandbox(home, report=report, without=without), name="sandbox")
    with chosen_by("--http-port or --https-port"):
        hub = await stack.enter_async_context(open_hub(settings, host=host))
    if lan is not None and hub.reload_certificate is not None:
        lan.on_renewed(hub.reload_certificate)
    # They are loaded once the hub is ready, and asked for before.
    hub.pages.expect()
    urls: tuple[str, ...] = ()
    if lan is not None and hub.lan_port is not None:
        urls = lan.urls("http" if lan.context is None else "https", hub.lan_port)
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

    def take_over() -> None:
        access = choose_home_assistant(home)
        notifications = read_or_default(home, "notifications", hub_settings.NotificationSettings)

        def change(live: Live) -> None:
            live.home_assistant.client.use(access)
            live.notifications.use(notifications)

        hub.leader.change("settings", change)

    await stack.enter_async_context(reloaded_models(home, hub, report, also=take_over))
    await report_setup(hub, report)
    await preparing
    return hub


async def report_setup(hub: Hub, report: Reporter) -> None:
    """Report how the admin chooses a password, as long as no admin has one."""
    people, admin = hub.registry.people, hub.registry.admin.id
    if not await people.needs_setup():
        return
    if report.is_supervised or hub.registry.settings.is_replica:
        # Others read that log, and it stays; and each replica's code would end that of another one.
        command = f"strawberry users code {admin}"
        report.state("setup", f"  password '{command}' shows how you choose your password", command=command)
        return
    code = (await people.make_code(admin)).code
    # No browser sends what stands behind the "#", and so no log gets it.
    link = f"{hub.registry.settings.url or hub.url}/setup#{code}"
    report.state("setup", f"  password {link} (choose your password; works once)", code=code, link=link)


def _protobuf(home: Home) -> hub_settings.ProtobufSettings | None:
    table = read_table(home, "protobuf", hub_settings.ProtobufSettings)
    if table is None:
        return None
    return table.model_copy(
        update={"descriptors": tuple(home.directory / each for each in table.descriptors)}
    )


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


def _described(hub: Hub, lan: "Lan | None", urls: tuple[str, ...]) -> Iterator[str]:
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


def _lan_settings(home: Home, lan: "Lan | None", options: HubOptions) -> hub_settings.LanSettings | None:
    if lan is None:
        return None
    return hub_settings.LanSettings(
        port=options.lan.https_port,
        certificates=None if lan.context is None else home.certs,
        insecure=lan.context is None,
        names=lan.names,
        told=lan.told,
    )


def _authorities(lan: "Lan | None", bus: hub_settings.BusSettings) -> str | None:
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
