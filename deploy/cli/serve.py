"""The commands that stay: ``up``, ``broker run``, ``hub`` and ``spoke run``."""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from pydantic import SecretStr

from chat.tasks import open_tasks
from contracts.errors import ConfigError
from deploy.cli.terminal.output import note
from deploy.home.directory import Home
from deploy.home.running import run_until_stopped
from deploy.logs.logs import set_up_logging
from deploy.logs.terminal import visible
from deploy.service.notify import ServiceManager
from identity.files import make_private_directory

if TYPE_CHECKING:
    from deploy.home.lan import LanOptions
    from deploy.home.local_broker import BrokerPorts
    from deploy.home.local_hub import HubOptions
    from spoke.app import Spoke
    from spoke.settings import SpokeSettings

_WARNING = (
    "WARNING, --insecure-lan: everybody in your network can read along what devices and people send,\n"
    "tokens and answers included, and can act with them. Use --lan, unless something else protects\n"
    "that network."
)
_TOKEN_VARIABLE = "HUB_DEVICE_TOKEN"  # noqa: S105  the name of a variable
_LOOK_S: Final = 0.5
"""How late a person may read that the spoke is let in no longer."""


def say(line: str) -> None:
    """Show a line to the person who started this."""
    print(visible(line), flush=True)


def _start(options: argparse.Namespace, *, quiet: bool = False) -> Home:
    """Set up what every process that stays needs, and give its data directory, owner-only."""
    home = Home.find()
    make_private_directory(home.directory)
    set_up_logging(debug=options.debug, quiet=quiet)
    return home


def up(options: argparse.Namespace) -> None:
    """Run broker, hub and the local spoke."""
    from deploy.home.single_host import UpOptions, run_up

    home = _start(options, quiet=True)
    chosen = UpOptions(hub=_hub(options), ports=_broker_ports(options), spoke=not options.no_spoke)
    manager = ServiceManager.take()
    run_until_stopped(run_up(home, options=chosen, say=say, ready=manager.ready), manager=manager)


def run_broker(options: argparse.Namespace) -> None:
    """Run the embedded broker alone."""
    from deploy.home import local_broker

    home = _start(options)
    manager = ServiceManager.take()
    run_until_stopped(
        local_broker.run_broker(
            home, ports=_broker_ports(options), lan=_lan(options), say=say, ready=manager.ready
        ),
        manager=manager,
    )


def run_hub(options: argparse.Namespace) -> None:
    """Run the hub alone."""
    from deploy.home import local_hub

    home = _start(options)
    manager = ServiceManager.take()
    serving = local_hub.run_hub(home, options=_hub(options), say=say, ready=manager.ready)
    run_until_stopped(serving, manager=manager)


def _hub(options: argparse.Namespace) -> "HubOptions":
    from deploy.home.local_hub import HubOptions

    return HubOptions(
        broker=options.broker, trust=options.trust_broker, http_port=options.http_port, lan=_lan(options)
    )


def _broker_ports(options: argparse.Namespace) -> "BrokerPorts":
    from deploy.home.local_broker import BrokerPorts

    return BrokerPorts(mqtt=options.mqtt_port, mqtts=options.mqtts_port, websocket=options.ws_port)


def _lan(options: argparse.Namespace) -> "LanOptions":
    from deploy.home.lan import Exposure, LanOptions

    if options.insecure_lan:
        note(_WARNING)
    exposure: Exposure = "tls" if options.lan else "insecure" if options.insecure_lan else "loopback"
    # 'broker run' has no HTTP.
    return LanOptions(exposure, https_port=getattr(options, "https_port", 0))


def run_spoke(options: argparse.Namespace) -> None:
    """Join a hub if need be, and offer skills to it."""
    from deploy.settings.settings import read_gateway, read_household, read_limits, read_models
    from spoke.settings import SpokeSettings

    home = _start(options, quiet=options.with_parent)
    token = _enrolment_token(options.token_file)
    folders = tuple(Path(folder).absolute() for folder in options.skills or [home.skills])
    for folder in folders:
        if folder == home.skills:
            _make_skills_folder(folder)
        elif not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}", hint="Make it, or name another with --skills.")
    settings = SpokeSettings(
        home=home.directory,
        hub_url=options.hub,
        hub_key=options.hub_key,
        insecure=options.insecure,
        skills=folders,
        samples=options.samples,
        version=version("strawberry-home"),
        models=read_models(home),
        gateway=read_gateway(home),
        limits=read_limits(home),
        household=read_household(home),
    )

    manager = ServiceManager.take()
    serving = _serve_skills(home, settings, token, with_parent=options.with_parent, manager=manager)
    run_until_stopped(serving, manager=manager)


async def _serve_skills(
    home: Home,
    settings: "SpokeSettings",
    token: SecretStr | None,
    *,
    with_parent: bool,
    manager: ServiceManager,
) -> None:
    from spoke.app import open_spoke

    if with_parent:
        _stop_with_parent()
    async with open_spoke(settings, token=token) as spoke, open_tasks() as tasks:
        # It serves this machine whether the hub is there or not.
        manager.ready(f"{spoke.device} serves this machine")
        writes_programs = any(model.entry.tools == "code" for model in settings.models.usable)
        if writes_programs and not with_parent:
            # Who started the parent has the sandbox of this home already.
            from deploy.home.sandbox import prepare_sandbox

            without = "models get skills as tools of their own"
            tasks.create_task(prepare_sandbox(home, say=say, without=without), name="sandbox")
        await _tell_state(spoke, manager)


async def _tell_state(spoke: "Spoke", manager: ServiceManager) -> NoReturn:
    """Say that it is on the bus, or why it is not; and again when that changes."""
    is_ready, words, told = False, "", ""
    while True:
        if spoke.problem is not None:
            is_ready, words = False, spoke.problem
        elif spoke.connected:
            is_ready, words = True, f"Ready: {spoke.device} offers {_listed(spoke.skills)}. Ctrl-C ends."
        elif not is_ready:
            words = (
                f"{spoke.device} is not on the bus yet: no broker answers. It goes on trying, and then "
                f"offers {_listed(spoke.skills)}. Ctrl-C ends."
            )
        # A broker that is lost later, and found again, is for the log.
        if words != told:
            say(words)
            manager.status(words.removesuffix(" Ctrl-C ends."))
            told = words
        await asyncio.sleep(_LOOK_S)


def _listed(skills: Sequence[str]) -> str:
    return ", ".join(skills) or "no skill yet"


def _make_skills_folder(folder: Path) -> None:
    """Make the folder for the user's own skills, with a page in it that says how to write one."""
    from spoke import samples

    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "README.md"
    if not page.exists():
        page.write_text((Path(samples.__path__[0]) / page.name).read_text("utf-8"), "utf-8")


def _enrolment_token(file: str | None) -> SecretStr | None:
    """Take the enrolment token from where no other user can see it: never from an argument."""
    if file == "-":
        text = sys.stdin.readline()
    elif file is not None:
        try:
            text = Path(file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token file {file}: {error}") from None
    else:
        # Taken out of the environment, so that no skill and no child of one finds it there.
        text = os.environ.pop(_TOKEN_VARIABLE, "")
    return SecretStr(text.strip()) if text.strip() else None


def _stop_with_parent() -> None:
    """Stop once the other end of standard input is closed: then the process that started us is gone."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def wait() -> None:
        # Not through sys.stdin: a daemon thread that holds its lock aborts the interpreter's end.
        while os.read(sys.stdin.fileno(), 1):
            pass
        loop.call_soon_threadsafe(task.cancel)

    threading.Thread(target=wait, name="watch parent", daemon=True).start()
