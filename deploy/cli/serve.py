"""The commands that serve until they are stopped: ``up``, ``hub``, ``broker run`` and ``spoke run``.

Settings and ports are checked before the modules that do the work are imported, which takes longer than all
that the checks need.
"""

import argparse
import asyncio
import faulthandler
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from contracts.errors import ConfigError
from deploy import limits
from deploy.cli.hub.join import join
from deploy.cli.terminal import arguments
from deploy.cli.terminal.asking import secret_in
from deploy.cli.terminal.output import note
from deploy.cli.terminal.parser import Actions, Parser
from deploy.directory import Home, only_hub
from deploy.home.child import run_child
from deploy.home.running import Reporter, Restart, quick_imports, run_until_stopped
from deploy.logs.logs import set_up_logging
from deploy.service.notify import ServiceManager
from deploy.settings.options import (
    BrokerPorts,
    Exposure,
    HubOptions,
    LanOptions,
    NodeOptions,
    UpOptions,
    check_broker_ports,
    check_hub_ports,
    sample_names,
)
from identity.files import make_private_directory

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from pydantic import SecretStr

    from agent_core.models.entries import Models
    from spoke.app import Spoke
    from spoke.settings import SpokeSettings

_WARNING = (
    "WARNING, --insecure-lan: everybody in your network can read what devices and people send,\n"
    "tokens and answers included, and can act with them. Use --lan, unless something else protects\n"
    "that network."
)
_TOKEN_VARIABLE = "HUB_DEVICE_TOKEN"  # noqa: S105  the name of a variable


def _start(options: argparse.Namespace, *, quiet: bool = False) -> Home:
    """Set up what every server process needs, and return its data directory, owner-only."""
    home = Home.find()
    # systemd aborts a service that is silent; this writes where each thread was.
    faulthandler.enable(2)
    make_private_directory(home.directory)
    as_json = home.unchecked_table("log").get("format") == "json"
    set_up_logging(debug=options.debug, quiet=quiet, as_json=as_json)
    return home


def up(options: argparse.Namespace) -> None:
    """Run a broker, a hub and a local spoke.

    Runs a broker, a hub and a local spoke, for this machine only unless --lan is given.
    """
    from deploy.home.single_host import run_up

    home = _start(options, quiet=True)
    _complete_restore(home)
    if options.samples is not None:
        sample_names(options.samples)
    chosen = UpOptions(
        hub=_hub(home, options),
        ports=_broker_ports(options),
        spoke=not options.no_spoke,
        samples=options.samples,
    )
    restart = Restart(ServiceManager.take())
    _serve(options, restart, partial(run_up, home, options=chosen, restart=restart))
    restart.follow()


def _serve(
    options: argparse.Namespace, restart: Restart, serve: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    """Run what gets a ``report`` until it is stopped."""
    report = Reporter(lambda line: print(line, flush=True), as_json=options.json, manager=restart.manager)
    run_until_stopped(serve(report=report), restart=restart, on_stop=partial(report.state, "stopping"))


def _complete_restore(home: Home) -> None:
    """Put a backup in place whose restore was decided while the hub ran, or that was interrupted."""
    if not home.restore_plan.exists():
        return
    from deploy.backup.restoring import complete

    with only_hub(home):
        aside = complete(home)
    note(f"Restored a backup. What was there before is in {aside}.")


def run_broker(options: argparse.Namespace) -> int:
    """Run a broker alone: the embedded one, or a NATS server."""
    home = _start(options, quiet=options.with_parent)
    if options.with_parent:
        return _run_broker_child(home)
    if options.kind != "nats" and options.cluster:
        raise ConfigError("the embedded broker has no cluster", hint="Add --kind nats.")
    with quick_imports():
        from deploy.settings.settings import read_broker_port
    lan = _lan(home, options)
    ports, moved = check_broker_ports(_broker_ports(options), lan, setting=read_broker_port(home))
    if moved is not None and not (options.kind == "nats" and lan.exposure == "tls"):
        note(moved)
    _serve(options, Restart(ServiceManager.take()), _broker_of(home, options, ports, lan))
    return 0


def _broker_of(
    home: Home, options: argparse.Namespace, ports: BrokerPorts, lan: LanOptions
) -> Callable[..., Coroutine[Any, Any, None]]:
    if options.kind == "embedded":
        with quick_imports():
            from deploy.home.brokers import embedded
        return partial(embedded.run_broker, home, ports=ports, lan=lan)
    from deploy.home.brokers import nats

    node = NodeOptions(options.nats_port, options.cluster_port, options.cluster)
    return partial(nats.run_nats, home, ports=ports, node=node, lan=lan)


def _run_broker_child(home: Home) -> int:
    """Run the embedded broker of ``strawberry up``; see `deploy.home.brokers.processes`."""
    with quick_imports():
        from deploy.home.brokers import embedded
        from identity.keys import PublicKey

    async def serve(
        report: Reporter, *, hub_id: str, hub_key: dict[str, str], ports: dict[str, int], exposure: Exposure
    ) -> None:
        issuer, lan = embedded.Issuer(hub_id, PublicKey.from_jwk(hub_key)), LanOptions(exposure)
        await embedded.run_broker(home, issuer=issuer, ports=BrokerPorts(**ports), lan=lan, report=report)

    return run_child(serve)


def run_hub(options: argparse.Namespace) -> None:
    """Run the hub alone."""
    from deploy.settings.settings import check_settings

    home = _start(options)
    chosen = _hub(home, options)
    _complete_restore(home)
    check_settings(home)
    with only_hub(home):
        check_hub_ports(chosen)
        with quick_imports():
            from deploy.home import local_hub
        restart = Restart(ServiceManager.take())
        _serve(options, restart, partial(local_hub.run_hub, home, options=chosen, restart=restart))
    restart.follow()


def _hub(home: Home, options: argparse.Namespace) -> HubOptions:
    return HubOptions(
        broker=options.broker,
        trust=options.trust_broker,
        http_port=options.http_port,
        replica=getattr(options, "replica", None) or "",
        lan=_lan(home, options),
    )


def _broker_ports(options: argparse.Namespace) -> BrokerPorts:
    return BrokerPorts(mqtt=options.mqtt_port, mqtts=options.mqtts_port, websocket=options.ws_port)


def _lan(home: Home, options: argparse.Namespace) -> LanOptions:
    if options.insecure_lan:
        note(_WARNING)
    is_given = options.lan or options.insecure_lan
    by_settings = not is_given and home.unchecked_table("lan").get("enabled") is True
    exposure: Exposure = (
        "insecure" if options.insecure_lan else "tls" if options.lan or by_settings else "loopback"
    )
    # 'broker run' has no HTTP.
    return LanOptions(exposure, https_port=getattr(options, "https_port", 0), by_settings=by_settings)


def run_spoke(options: argparse.Namespace) -> int:
    """Offer this machine's skills to the hub.

    The device must have joined: with 'strawberry spoke join', or here with an enrolment token from
    HUB_DEVICE_TOKEN or --token-file.
    """
    # Skills, and what they start, may use plugins.
    os.environ.pop("PYDANTIC_DISABLE_PLUGINS", None)
    home = _start(options, quiet=options.with_parent)
    if options.with_parent:
        return _run_child(home, options)
    settings = _spoke_settings(home, options)
    token = _enrolment_token(options.token_file)
    manager = ServiceManager.take()
    _serve(options, Restart(manager), partial(_serve_skills, home, settings, token, manager=manager))
    return 0


def _run_child(home: Home, options: argparse.Namespace) -> int:
    """Run the spoke of ``strawberry up``; see `deploy.home.local_spoke`."""
    with quick_imports():
        from pydantic import SecretStr

        # Also what its samples need: it has time now, and the start waits for it later.
        import spoke.app
        import spoke.chat.server
        from spoke.landlock import hide
    settings = _spoke_settings(home, options)
    # Made now: what comes into the data directory later could not be read.
    for directory in (home.spoke, home.sandbox):
        make_private_directory(directory)
    code = (Path(spoke.__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix))
    # Before skills are loaded, and before there are threads that could load them.
    hide(home.directory, but=(home.spoke, home.sandbox, settings.nodes, *settings.skills, *code))

    loaded = None

    def prepare() -> None:
        nonlocal loaded
        loaded = asyncio.run(spoke.app.load_ahead(settings))

    async def serve(
        report: Reporter, *, token: str | None, hub_url: str, hub_key: str, insecure: bool
    ) -> None:
        where = {"hub_url": hub_url, "hub_key": hub_key, "insecure": insecure}
        secret = None if token is None else SecretStr(token)
        opening = spoke.app.open_spoke(settings.model_copy(update=where), token=secret, loaded=loaded)
        await _serve_child(opening, report)

    return run_child(serve, prepare=prepare)


async def _serve_child(opening: "AbstractAsyncContextManager[Spoke]", report: Reporter) -> None:
    # The settings are hidden from it by now, so it keeps its models; the hub beside it takes new ones.
    async with opening as spoke:
        told = None
        while True:
            if spoke.problem is not None:
                state, fields = "refused", {"problem": spoke.problem, "hint": ""}
            elif spoke.connected:
                await spoke.announced()
                state, fields = "online", {}
            else:
                state, fields = "away", {}
            if state not in (told, "away"):
                report.state(state, **fields)
                told = state
            await asyncio.sleep(limits.SPOKE_START_LOOK_S if told is None else limits.REVOKED_LOOK_S)


def _spoke_settings(home: Home, options: argparse.Namespace) -> "SpokeSettings":
    from deploy.settings.settings import read_gateway, read_household, read_limits, read_models, read_voice
    from spoke.settings import SpokeSettings

    folders = tuple(Path(folder).absolute() for folder in options.skills or [home.skills])
    for folder in folders:
        if folder == home.skills:
            _make_skills_folder(folder)
        elif not folder.is_dir():
            raise ConfigError(
                f"there is no folder {folder}", hint="Create it, or give another with --skills."
            )
    return SpokeSettings(
        home=home.directory,
        hub_url=options.hub,
        hub_key=options.hub_key,
        insecure=options.insecure,
        skills=folders,
        samples=sample_names(options.samples),
        models=read_models(home),
        gateway=read_gateway(home),
        limits=read_limits(home),
        household=read_household(home),
        voice=read_voice(home),
    )


async def _serve_skills(
    home: Home,
    settings: "SpokeSettings",
    token: "SecretStr | None",
    *,
    report: Reporter,
    manager: ServiceManager,
) -> None:
    with quick_imports():
        from chat.tasks import open_tasks
        from deploy.home.model_reload import reloaded_models
        from spoke.app import open_spoke

    def prepare(models: "Models") -> None:
        if any(model.entry.tools == "code" for model in models.usable):
            from deploy.home.sandbox import prepare_sandbox

            without = "models get skills as tools of their own"
            tasks.create_task(prepare_sandbox(home, report=report, without=without), name="sandbox")

    async with (
        open_spoke(settings, token=token) as spoke,
        open_tasks() as tasks,
        reloaded_models(home, spoke, report, then=prepare),
    ):
        # It serves this machine whether the hub is there or not.
        manager.ready(f"{spoke.name} serves this machine")
        prepare(settings.models)
        await _report_state(spoke, report, manager)


async def _report_state(spoke: "Spoke", report: Reporter, manager: ServiceManager) -> NoReturn:
    """Report that it is on the bus, or why it is not; and again when that changes."""
    is_ready, state, words, told = False, "", "", ""
    while True:
        if spoke.problem is not None:
            is_ready, state, words = False, "refused", spoke.problem
        elif spoke.connected:
            is_ready, state = True, "ready"
            words = f"Ready: {spoke.name} offers {_listed(spoke.skills)}. Ctrl-C ends."
        elif not is_ready:
            state = "away"
            words = (
                f"{spoke.name} is not on the bus yet: no broker answers. It goes on trying, and then "
                f"offers {_listed(spoke.skills)}. Ctrl-C ends."
            )
        # A broker that is lost later, and found again, is for the log.
        if words != told:
            report.state(state, words, device=spoke.device, skills=spoke.skills, problem=spoke.problem)
            manager.status(words.removesuffix(" Ctrl-C ends."))
            told = words
        await asyncio.sleep(limits.REVOKED_LOOK_S)


def _listed(skills: Sequence[str]) -> str:
    return ", ".join(skills) or "no skill yet"


def _make_skills_folder(folder: Path) -> None:
    """Make the folder for the user's own skills, with a page in it that says how to write one."""
    from spoke import samples

    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "README.md"
    if not page.exists():
        page.write_text((Path(samples.__path__[0]) / page.name).read_text("utf-8"), "utf-8")


def _enrolment_token(file: str | None) -> "SecretStr | None":
    from pydantic import SecretStr

    # Taken out of the environment, so that no skill and no child of one finds it there.
    given = os.environ.pop(_TOKEN_VARIABLE, "") if file is None else secret_in(file, what="token")
    return SecretStr(given.strip()) if given.strip() else None


def register_up(parser: Parser) -> None:
    """Declare 'strawberry up'."""
    parser.runs(up)
    arguments.add_up_arguments(parser)


def register_hub(parser: Parser) -> None:
    """Declare 'strawberry hub'."""
    parser.runs(run_hub)
    arguments.add_hub_arguments(parser)


def add_spoke_actions(actions: Actions) -> None:
    """Declare 'strawberry spoke'."""
    command = actions.add_parser("join", run=join)
    command.takes("url", "for example https://hub.local:8443; default: search the network", nargs="?")
    command.takes("--name", "display name of this device; default: the host name")
    command.takes("--hub-key", "expected fingerprint of the hub's key", metavar="F")
    arguments.add_insecure(command)
    command = actions.add_parser("run", run=run_spoke)
    arguments.add_spoke_arguments(command)
