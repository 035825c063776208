"""``strawberry service``: hub and spoke as system services."""

import argparse
from collections.abc import Callable
from typing import Final

from deploy.cli.parser.servers import add_hub_options, add_spoke_options, add_up_options
from deploy.cli.parser.shared import Commands, Parents, add_actions

OPTIONS: Final[dict[str, Callable[[argparse.ArgumentParser], None]]] = {
    "up": add_up_options,
    "hub": add_hub_options,
    "spoke": add_spoke_options,
}
_ABOUT: Final = {
    "up": "broker, hub and a local spoke, as 'strawberry up'",
    "hub": "the hub alone, as 'strawberry hub'",
    "spoke": "the skills of this machine, as 'strawberry spoke run'",
}


def add(commands: Commands, parents: Parents) -> None:
    """Add the command with its actions."""
    actions = add_actions(
        commands, "service", help_="run hub or spoke as a service that starts with the machine"
    )
    kinds = actions.add_parser(
        "install",
        help="install a service, or change it",
        description="Writes a systemd unit with these options; passwords and tokens are never in it.",
    ).add_subparsers(title="services", metavar="SERVICE", required=True)
    for kind, add_options in OPTIONS.items():
        install = kinds.add_parser(kind, parents=[parents.common], help=_ABOUT[kind])
        _add_install(install)
        add_options(install)
        install.set_defaults(run="deploy.cli.service:install", service=kind)

    status = actions.add_parser("status", parents=[parents.common], help="show whether the services run")
    _add_service(status, nargs="?")
    _add_manager(status)
    status.set_defaults(run="deploy.cli.service:status")

    logs = actions.add_parser("logs", parents=[parents.common], help="show the log of a service")
    _add_service(logs, nargs="?")
    _add_manager(logs)
    logs.add_argument("-f", "--follow", action="store_true", help="keep showing new lines; Ctrl-C ends")
    logs.add_argument("-n", "--lines", type=int, default=100, metavar="N", help="default %(default)s")
    logs.set_defaults(run="deploy.cli.service:logs")

    remove = actions.add_parser("remove", parents=[parents.common], help="stop a service and remove it")
    _add_service(remove)
    _add_manager(remove)
    remove.set_defaults(run="deploy.cli.service:remove")


def _add_install(install: argparse.ArgumentParser) -> None:
    how = install.add_argument_group("the service")
    _add_manager(install)
    how.add_argument(
        "--now",
        action="store_true",
        help="also start it now; a running one is restarted if its unit changed",
    )
    how.add_argument("--print", action="store_true", help="print the unit and change nothing")
    how.add_argument(
        "--memory", metavar="SIZE", help="memory cap; default: 1G for a spoke, 3584M for hub and up"
    )
    how.add_argument(
        "--writable",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory that skills may write to, besides the data directory; may be repeated",
    )
    how.add_argument(
        "--run-as", metavar="NAME", help="with --system: user it runs as; default: the user who called sudo"
    )


def _add_manager(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--user", action="store_false", dest="system", help="for this user, without root (default)"
    )
    choice.add_argument("--system", action="store_true", help="for the whole machine; needs root")
    parser.set_defaults(system=False)


def _add_service(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    default = "; default: all" if nargs else ""
    parser.add_argument(
        "service", nargs=nargs, choices=tuple(OPTIONS), metavar="SERVICE", help=f"up, hub or spoke{default}"
    )
