"""The words of the command line, by subject; nothing here runs a command or imports what does."""

import argparse
from typing import NoReturn

from deploy.cli.parser import broker, devices, home, models, servers, service, talk
from deploy.cli.parser.shared import Parents

__all__ = ["make_parser"]

_EPILOG = """\
Files lie in ~/.strawberry; STRAWBERRY_HOME moves them. STRAWBERRY_TOKEN is the token for --hub.
"""


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of every command; ``run`` of what it gives is ``module:function``."""
    parents = Parents.make()
    parser = argparse.ArgumentParser(
        prog="strawberry",
        description="One assistant for a whole home, over MQTT.",
        epilog=_EPILOG,
        parents=[parents.common],
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and end")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    servers.add(commands, parents)
    service.add(commands, parents)
    broker.add(commands, parents)
    talk.add(commands, parents)
    devices.add(commands, parents)
    models.add(commands, parents)
    home.add(commands, parents)
    return parser


class _Version(argparse.Action):
    """Prints the version, looked up only when somebody asks: reading package metadata takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"strawberry {version('strawberry-home')}")
        parser.exit()
