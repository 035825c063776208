"""The words of the command line, by subject; nothing here runs a command or imports what does."""

import argparse
from typing import NoReturn

from deploy.cli.parser import broker, devices, home, live, models, servers, service, talk, users, voice
from deploy.cli.parser.shared import Parents
from deploy.cli.parser.usage import USAGE_ERROR, Parser

__all__ = ["USAGE_ERROR", "make_parser"]

_EPILOG = """\
Files are kept in ~/.strawberry, or where STRAWBERRY_HOME points.
'strawberry COMMAND --help' explains a command.
"""


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of every command; it sets ``run`` to ``module:function``."""
    parents = Parents.make()
    parser = Parser(
        prog="strawberry",
        description="One assistant for a whole home, over MQTT.",
        epilog=_EPILOG,
        parents=[parents.common],
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    servers.add(commands, parents)
    service.add(commands, parents)
    broker.add(commands, parents)
    talk.add(commands, parents)
    voice.add(commands, parents)
    devices.add(commands, parents)
    users.add(commands, parents)
    live.add(commands, parents)
    models.add(commands, parents)
    home.add(commands, parents)
    return parser


class _Version(argparse.Action):
    """Prints the version, looked up only when asked for: reading package metadata takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"strawberry {version('strawberry-home')}")
        parser.exit()
