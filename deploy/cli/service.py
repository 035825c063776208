"""``strawberry service``: hub and spoke started with the machine, and kept running."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contracts.errors import ConfigError
from deploy.cli.terminal.arguments import add_hub_arguments, add_spoke_arguments, add_up_arguments
from deploy.cli.terminal.output import Output, columns, note
from deploy.cli.terminal.parser import Actions, Parser
from deploy.directory import Home
from deploy.service.plan import KINDS, MEMORY, Kind, ServicePlan, is_size, own_code, own_program, typed
from deploy.service.systemd import Systemd
from identity.files import make_private_directory
from spoke.membership.enrolment import FILE_NAME

_cells: Final = columns("service", "state", "detail", "enabled", "restarts", "memory_bytes", "since")
_SERVICES: Final[dict[Kind, tuple[str, Callable[[Parser], None]]]] = {
    "up": ("broker, hub and a local spoke, as 'strawberry up'", add_up_arguments),
    "hub": ("the hub alone, as 'strawberry hub'", add_hub_arguments),
    "spoke": ("the skills of this machine, as 'strawberry spoke run'", add_spoke_arguments),
}
_OTHERS: Final[dict[Kind, tuple[Kind, ...]]] = {"up": ("hub", "spoke"), "hub": ("up",), "spoke": ("up",)}
"""What holds the same files, so that both cannot run."""


def install(options: argparse.Namespace) -> None:
    """Set up a service, or show what would be written."""
    plan = _plan(options)
    manager = _systemd(options)
    if options.print:
        unit, notes = manager.unit(plan)
        value = {"path": str(manager.path_of(plan.kind)), "content": unit, "notes": list(notes)}
        Output(options.json).result(value, text=f"# {manager.path_of(plan.kind)}\n{unit}".rstrip("\n"))
        return
    for other in _OTHERS[plan.kind]:
        if manager.path_of(other).exists():
            raise ConfigError(
                f"the service {other} is installed and uses the same files",
                hint=f"'strawberry service remove {other}' first.",
            )
    _check_home(plan)
    done = manager.install(plan, now=options.now)
    Output(options.json).result(
        {"path": str(done.path), "changed": done.changed, "started": options.now, "notes": list(done.notes)},
        text=f"{done.path} is {'written' if done.changed else 'as it was'}; "
        + ("it runs." if options.now else "it starts with the next start, or with --now."),
    )
    for each in () if options.json else done.notes:
        note(f"  note: {each}")


def status(options: argparse.Namespace) -> int:
    """Show whether the services run.

    Ends with code 1 where one does not run, or there is none.
    """
    manager = _systemd(options)
    found = [state for kind in _kinds(options) if (state := manager.state(kind)) is not None]
    Output(options.json).rows(found, _cells, empty="no service; 'strawberry service install' sets one up")
    return 0 if found and all(each.state == "active" for each in found) else 1


def logs(options: argparse.Namespace) -> int:
    """Show the log of a service."""
    manager = _systemd(options)
    kinds = [kind for kind in _kinds(options) if manager.path_of(kind).exists()]
    if not kinds:
        raise ConfigError("no service is installed", hint="'strawberry service install' installs one.")
    command = manager.log_command(kinds, lines=options.lines, follow=options.follow, as_json=options.json)
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except FileNotFoundError:
        raise ConfigError("there is no journalctl here", hint="It comes with systemd.") from None


def remove(options: argparse.Namespace) -> None:
    """Stop a service and remove it."""
    manager = _systemd(options)
    removed = manager.remove(options.service)
    Output(options.json).result(
        {"service": options.service, "removed": removed},
        text=f"The service {options.service} is gone; its data are still there."
        if removed
        else f"There was no service {options.service}.",
    )


def _systemd(options: argparse.Namespace) -> Systemd:
    if sys.platform != "linux":
        raise ConfigError(
            "services are set up with systemd, which this system does not have",
            hint="Use the service manager of this system to start 'strawberry up', 'hub' or 'spoke run'.",
        )
    return Systemd(system=bool(options.system))


def _kinds(options: argparse.Namespace) -> tuple[Kind, ...]:
    return (options.service,) if options.service else KINDS


def _plan(options: argparse.Namespace) -> ServicePlan:
    kind: Kind = options.command
    _make_absolute(options)
    if options.memory is not None and not is_size(options.memory):
        raise ConfigError(f"{options.memory!r} is not a size", hint="Write it as 512M or 2G.")
    user = _user(options)
    parser = Parser()
    _SERVICES[kind][1](parser)
    defaults = parser.parse_args([])
    plan = ServicePlan(
        kind=kind,
        program=own_program(),
        options=typed(options, defaults),
        home=_home_of(user),
        writable=tuple(Path(folder).absolute() for folder in options.writable),
        code=own_code(),
        memory=options.memory or MEMORY[kind],
        user=user,
    )
    missing = next((folder for folder in plan.writable if not folder.is_dir()), None)
    if missing is not None:
        raise ConfigError(f"there is no folder {missing}", hint="Create it first.")
    return plan


def _make_absolute(options: argparse.Namespace) -> None:
    """Make the paths ones that mean the same from any directory."""
    if options.command != "spoke":
        return
    if options.token_file == "-":  # noqa: S105  no token, but a word for standard input
        raise ConfigError("a service has no standard input", hint="Join first: 'strawberry spoke join'.")
    if options.token_file is not None:
        options.token_file = str(Path(options.token_file).absolute())
    options.skills = [str(Path(folder).absolute()) for folder in options.skills]


def _user(options: argparse.Namespace) -> str | None:
    if not options.system:
        if options.run_as is not None:
            raise ConfigError("--run-as is only for services of the whole machine", hint="Add --system.")
        return None
    user: str | None = options.run_as or os.environ.get("SUDO_USER")
    if user is None:
        raise ConfigError(
            "there is no user to run the service as", hint="Add --run-as NAME, preferably not root."
        )
    # It becomes a line of the unit, and a part of paths and commands.
    if not user.isprintable() or user.split() != [user] or "/" in user:
        raise ConfigError(f"{user!r} is not a user name", hint="'id -un' prints yours.")
    return user


def _home_of(user: str | None) -> Path:
    """Return the data directory: the one that is named, or that of the user whose rights it has."""
    if user is None or os.environ.get("STRAWBERRY_HOME"):
        return Home.find().directory
    home = Path(f"~{user}").expanduser()
    if str(home).startswith("~"):
        raise ConfigError(f"there is no user {user} here", hint=f"'adduser {user}' makes one.")
    return home / Home.find().directory.name


def _check_home(plan: ServicePlan) -> None:
    """See that it can start: its directory is there, and a spoke has joined."""
    if not plan.home.exists():
        make_private_directory(plan.home)
        if plan.user is not None:
            shutil.chown(plan.home, plan.user)
    joined = (plan.home / "spoke" / FILE_NAME).exists()
    if (
        plan.kind == "spoke"
        and not joined
        and not any(word.startswith("--token-file") for word in plan.options)
    ):
        raise ConfigError(
            "this machine has joined no hub yet",
            hint="'strawberry spoke join' first"
            + (f", as {plan.user}." if plan.user is not None else "; or add --token-file."),
        )


def _add_manager(parser: Parser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_flag("--user", "for this user, without root (default)", dest="system", const=False)
    choice.add_flag("--system", "for the whole machine; needs root", const=True)


def _add_installing(parser: Parser) -> None:
    _add_manager(parser)
    parser.add_flag("--now", "also start it now; a running one is restarted if its unit changed")
    parser.add_flag("--print", "print the unit and change nothing")
    parser.takes("--memory", "memory cap; default: 1G for a spoke, 3584M for hub and up", metavar="SIZE")
    parser.add_list(
        "--writable",
        "a directory that skills may write to, besides the data directory; may be repeated",
        metavar="DIR",
    )
    parser.takes(
        "--run-as", "with --system: user it runs as; default: the user who called sudo", metavar="NAME"
    )


def add_service_actions(actions: Actions) -> None:
    """Declare 'strawberry service'."""
    installing = actions.add_parser(
        "install",
        help="install a service, or change it",
        description="Writes a systemd unit with these options; passwords and tokens are never in it.",
    )
    services = installing.add_subparsers(title="services", metavar="SERVICE", required=True)
    for kind, (about, add_arguments) in _SERVICES.items():
        command = services.add_parser(kind, run=install, help=about)
        _add_installing(command)
        add_arguments(command)
    command = actions.add_parser("status", run=status)
    command.takes("service", "default: all", choices=KINDS, nargs="?")
    _add_manager(command)
    command = actions.add_parser("logs", run=logs)
    command.takes("service", "default: all", choices=KINDS, nargs="?")
    _add_manager(command)
    command.add_argument("-f", "--follow", action="store_true", help="keep showing new lines; Ctrl-C ends")
    command.add_argument("-n", "--lines", type=int, metavar="N", default=100, help="default %(default)s")
    command = actions.add_parser("remove", run=remove)
    command.takes("service", "which one", choices=KINDS)
    _add_manager(command)
