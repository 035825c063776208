"""What several commands have in common."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeAlias

from deploy.cli.parser.usage import Parser

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


@dataclass(frozen=True)
class Parents:
    """Options that commands inherit.

    Attributes:
        common: For each command.
        client: For those that ask a hub.
    """

    common: Parser
    client: Parser

    @classmethod
    def make(cls) -> Self:
        """Make them once; they are for one parser."""
        common = Parser(add_help=False)
        shared = common.add_argument_group("options of every command")
        # Without a default, a command does not undo what stood in front of it.
        unset = argparse.SUPPRESS
        shared.add_argument("--json", action="store_true", default=unset, help="print the result as JSON")
        shared.add_argument(
            "--debug", action="store_true", default=unset, help="show tracebacks and debug logs"
        )
        client = Parser(add_help=False, parents=[common])
        client.add_argument("--hub", metavar="URL", help="a hub other than the one running here")
        client.add_argument(
            "--token-file",
            metavar="FILE",
            dest="hub_token",
            type=token_in,
            help="file with the token for that hub, - for standard input; default: STRAWBERRY_TOKEN",
        )
        return cls(common, client)


LINKS: Final = ("bus", "home", "home_assistant")
"""Where topics are: Strawberry's bus, the home broker, the entities of Home Assistant."""


def add_actions(commands: Commands, name: str, *, help_: str, description: str | None = None) -> Commands:
    """Add a command that only groups others."""
    group = commands.add_parser(name, help=help_, description=description)
    return group.add_subparsers(title="actions", metavar="ACTION", required=True)


def add_port(parser: argparse.ArgumentParser, option: str, default: int, *, what: str = "") -> None:
    """Add an option that takes a port."""
    about = f"{what}; " if what else ""
    parser.add_argument(
        option, type=port, default=default, metavar="N", help=f"{about}default {default}; 0 for any free one"
    )


def port(text: str) -> int:
    """Read a port; 0 means any free one."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return number


def positive(text: str) -> int:
    """Read a whole number above 0."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def token_in(name: str) -> str:
    """Return the token in a file: it is never an argument itself, which other users could read."""
    if name == "-":
        # One line: what follows may be the messages of a conversation.
        token = sys.stdin.readline().strip()
    else:
        try:
            token = Path(name).read_text().strip()
        except UnicodeDecodeError:
            token = ""
        except OSError as error:
            raise argparse.ArgumentTypeError(f"cannot read {name}: {error.strerror}") from None
    if not token:
        raise argparse.ArgumentTypeError(f"there is no token in {'standard input' if name == '-' else name}")
    return token
