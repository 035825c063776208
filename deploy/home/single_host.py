"""All of one home on one machine: the hub in this process, the broker and the local spoke in their own.

Imports little at its head: the process of the broker is started at once, and that of the spoke when the
broker has loaded its code. They do so while the hub loads its own, which takes longer than both together. Of
two cores one is theirs: three processes that import at once would keep each other waiting.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from contracts import own_version
from contracts.errors import ConfigError
from deploy import limits
from deploy.directory import Home, only_hub
from deploy.home.child import Child, start_broker
from deploy.home.local_spoke import local_spoke, start_process
from deploy.home.running import Reporter, Restart, enter_lan, quick_imports
from deploy.settings.options import UpOptions, check_broker_ports, check_hub_ports
from identity.files import is_held

if TYPE_CHECKING:
    from deploy.home.lan import Lan
    from hub_agent.settings import BusSettings


_KINDS = {
    "embedded": "embedded, run elsewhere",
    "mosquitto": "Mosquitto, set up by Strawberry",
    "emqx": "EMQX",
    "nats": "NATS, set up by Strawberry",
    "shared": "shared with others: topics stand below strawberry/, logins are ordinary ones",
}


async def run_up(home: Home, *, options: UpOptions, report: Reporter, restart: Restart) -> None:
    """Run everything until cancelled, or until it is to start again.

    Raises:
        ConfigError: If a setting is wrong, a port is taken or a file cannot be used, or the broker is not
            one of ours.
    """
    wanted = options.hub.broker or (None if _names_broker(home) else "embedded")
    is_run = wanted in ("embedded", "mosquitto")
    if wanted is not None and "://" not in wanted and not is_run:
        raise ConfigError(
            f"{wanted!r} is not a broker",
            hint="Use embedded, mosquitto, or an address such as mqtt://host:1883.",
        )
    if options.hub.trust and is_run:
        raise ConfigError(
            "--trust-broker needs the address of a running broker",
            hint="Add it, for example --broker mqtt://127.0.0.1:1883.",
        )
    async with AsyncExitStack() as stack:
        stack.enter_context(only_hub(home))
        # It loads its code while this process does.
        broker = await stack.enter_async_context(start_broker(home)) if wanted == "embedded" else None
        with quick_imports():
            from deploy.settings.settings import check_settings, read_broker_port

        check_settings(home)
        check_hub_ports(options.hub)
        moved = None
        if is_run:
            await _released(home)
            ports, moved = check_broker_ports(options.ports, options.hub.lan, setting=read_broker_port(home))
            options = replace(options, ports=ports)
        report.state(
            "starting",
            f"Strawberry {own_version()}, files in {home.directory}",
            version=own_version(),
            home=str(home.directory),
        )
        if moved is not None:
            report.state("port", f"  {moved}", port=options.ports.mqtt)
        starting = _Start(
            home,
            options=options,
            report=report,
            restart=restart,
            stack=stack,
            wanted=wanted,
            is_run=is_run,
            broker=broker,
        )
        await starting.run()


def _names_broker(home: Home) -> bool:
    """Return whether the settings name a broker, not only the port of ours."""
    return bool(home.unchecked_table("broker").keys() - {"port"})


async def _released(home: Home) -> None:
    """Wait a moment for the broker of a run that was killed: it ends by itself."""
    for _ in range(limits.HOST_LOCK_LOOKS):
        if not is_held(home.broker):
            return
        await asyncio.sleep(limits.HOST_LOCK_LOOK_S)


@dataclass
class _Start:
    """A start of everything, once its settings and ports are checked.

    Attributes:
        wanted: The broker, or its address; None for the one of the settings.
        is_run: Whether that is one to be run.
        broker: The process of the embedded one, which waits.
    """

    home: Home
    _: KW_ONLY
    options: UpOptions
    report: Reporter
    restart: Restart
    stack: AsyncExitStack
    wanted: str | None
    is_run: bool
    broker: Child | None
    spoke: Child | None = None

    async def run(self) -> None:
        home, options, report = self.home, self.options, self.report
        lan = await enter_lan(self.stack, home, options.hub.lan, report=report)
        bus = await self._enter_bus(lan)
        from deploy.home.local_hub import await_broker, enter_hub, stay
        from deploy.home.maintenance import Maintenance

        # Mosquitto's directory is held by this process itself.
        ours = [home.broker] * self.is_run + [home.spoke] * options.spoke
        mqtts = options.ports.mqtts if self.is_run else None
        host = Maintenance(home, restart=self.restart, ours=ours, lan=options.hub.lan, mqtts=mqtts)
        hub = await enter_hub(
            self.stack, home, bus=bus, options=options.hub, lan=lan, report=report, host=host
        )
        if self.spoke is not None:
            keeping = local_spoke(
                home,
                self.spoke,
                samples=options.samples,
                hub_url=hub.url,
                registry=hub.registry,
                bus=bus,
                report=report,
            )
            serving = await self.stack.enter_async_context(keeping)
            await await_broker(hub, report=report)
            await serving.first_report()
        await await_broker(hub, report=report)
        report.ready(
            'Ready. Try: strawberry chat "turn on the lamp"   Ctrl-C ends.',
            status=f"hub at {hub.url} with the broker {bus.url}",
            hub=hub.url,
            broker=bus.url,
        )
        await stay(home, hub, self.restart)

    async def _load_rest(self) -> None:
        """Start the spoke's process, which loads its code, and load the hub's, which takes half a second."""
        if self.options.spoke:
            starting = start_process(self.home, self.options.samples)
            self.spoke = await self.stack.enter_async_context(starting)
        with quick_imports():
            import hub_web  # noqa: F401
            from deploy.home import local_hub, maintenance  # noqa: F401

    async def _enter_bus(self, lan: "Lan | None") -> "BusSettings":
        """Run a broker where one is to be run, and settle how the hub uses it."""
        stack, home, ports, report = self.stack, self.home, self.options.ports, self.report
        with quick_imports():
            from deploy.home.brokers.processes import enter_embedded, enter_mosquitto
        if self.is_run:
            if self.broker is not None:
                broker = await enter_embedded(
                    stack, home, self.broker, ports=ports, lan=lan, report=report, meanwhile=self._load_rest
                )
            else:
                await self._load_rest()
                broker = await enter_mosquitto(stack, home, ports=ports, lan=lan, report=report)
            from deploy.home.brokers.bus import own_bus

            return own_bus(home, broker.urls[0], broker)
        await self._load_rest()
        from deploy.home.brokers.bus import choose_bus

        bus = await choose_bus(home, self.wanted, trust=self.options.hub.trust)
        awaited = bus.kind == "embedded" and not bus.is_ours()
        lines = [f"  broker   {bus.url} ({'no broker answers there yet' if awaited else _KINDS[bus.kind]})"]
        if bus.kind == "shared" and bus.login is None:
            lines.append("           without a login: [broker] in strawberry.toml may name one")
        report.state("broker", *lines, kind=bus.kind, url=bus.url)
        return bus
