"""What several commands have in common."""

import argparse
from dataclasses import dataclass
from typing import Self, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


@dataclass(frozen=True)
class Parents:
    """Options that commands inherit.

    Attributes:
        common: For each command.
        client: For those that ask a hub.
    """

    common: argparse.ArgumentParser
    client: argparse.ArgumentParser

    @classmethod
    def make(cls) -> Self:
        """Make them once; they are for one parser."""
        common = argparse.ArgumentParser(add_help=False)
        shared = common.add_argument_group("options of every command")
        # Without a default, a command does not undo what stood in front of it.
        never_said = argparse.SUPPRESS
        shared.add_argument(
            "--json", action="store_true", default=never_said, help="print the result as JSON"
        )
        shared.add_argument(
            "--debug", action="store_true", default=never_said, help="show tracebacks and debug logs"
        )
        client = argparse.ArgumentParser(add_help=False, parents=[common])
        client.add_argument("--hub", metavar="URL", help="a hub other than the one running here")
        return cls(common, client)


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
    """Read a port; 0 stands for any free one."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return number
