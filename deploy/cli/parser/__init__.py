"""The commands, declared by subject; nothing here runs a command or imports what does."""

import argparse
from collections.abc import Collection
from typing import NoReturn

from contracts.errors import ConfigError
from deploy.cli.parser import access, home, live, servers, talk
from deploy.cli.parser.declarations import add_commands
from deploy.cli.parser.usage import USAGE_ERROR, Parser
from deploy.cli.terminal.asking import secret_in

__all__ = ["USAGE_ERROR", "make_parser"]

_EPILOG = """\
Files are kept in ~/.strawberry, or where STRAWBERRY_HOME points.
'strawberry COMMAND --help' explains a command.
"""


def make_parser(words: Collection[str] = ()) -> argparse.ArgumentParser:
    """Make the parser of every command, or of those among the words; it sets ``run``."""
    common, client = _parents()
    parser = Parser(
        prog="strawberry",
        description="One assistant for a whole home, over MQTT.",
        epilog=_EPILOG,
        parents=[common],
    )
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    texts = (servers.TEXT, talk.TEXT, access.TEXT, live.TEXT, home.TEXT)
    add_commands(commands, common, client, *texts, only=words)
    return parser


def _parents() -> tuple[Parser, Parser]:
    """Return the options of every command, and with them those of commands that ask a hub."""
    common = Parser(add_help=False)
    shared = common.add_argument_group("options of every command")
    # Without a default, a command does not undo what stood in front of it.
    unset = argparse.SUPPRESS
    shared.add_argument("--json", action="store_true", default=unset, help="print the result as JSON")
    shared.add_argument("--debug", action="store_true", default=unset, help="show tracebacks and debug logs")
    client = Parser(add_help=False, parents=[common])
    client.add_argument("--hub", metavar="URL", help="a hub other than the one running here")
    client.add_argument(
        "--token-file",
        metavar="FILE",
        dest="hub_token",
        type=_token_in,
        help="file with the token for that hub, - for standard input; default: STRAWBERRY_TOKEN",
    )
    return common, client


def _token_in(name: str) -> str:
    """Return the token in a file: it is never an argument itself, which other users could read."""
    try:
        # For standard input one line: what follows may be the messages of a conversation.
        token = secret_in(name, what="token").strip()
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.message) from None
    if not token:
        raise argparse.ArgumentTypeError(f"there is no token in {'standard input' if name == '-' else name}")
    return token


class _Version(argparse.Action):
    """Prints the version, looked up only when asked for: reading package metadata takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"strawberry {version('strawberry-home')}")
        parser.exit()
