"""Commands declared as their help reads, and the parsers made of them.

A declaration is a line that names the command and says in one line what it does, then its description, then
its arguments, two blanks before what each is::

    devices ACTION (hub.devices, hub): list, add and remove devices
    devices add: add a device
      Makes an enrolment token, and prints the command to run on the device.
      NAME                display name, for example 'Bedroom PC'
      --minutes N:number  how long the token is valid

In parentheses stand ``module:function`` below ``deploy.cli``, and ``hub`` where options name a hub to ask,
or ``local`` where not; a module that is left out is the group's, and a function has the command's name.

======================  ==============================================================================
``[WORD]``              may be left out; ``WORD...`` may be several
``--name N:type``       an option with a value, of a type of `_TYPES`; without a value it is a switch
``{on,off}``            one of these
``... = 5``             the default; of a switch: what it sets, ``yes`` or ``no``
``--name WORD ...``     may be repeated
``other=--name``        kept as ``other``, not under its own name
``| --name``            excludes the others of the lines around it that begin so
``+ up``                the arguments of the command ``up``, or of the part ``+ up``
======================  ==============================================================================
"""

import argparse
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from deploy.cli.parser.usage import Parser
from deploy.cli.resources import Declaration, declared


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


_HEADER: Final = re.compile(r"([a-z+][a-z -]*?)(?: (\[?[A-Z]+\]?))?(?: \((.*?)\))?: (.*)")
_ARGUMENT: Final = re.compile(r"(\| )?(?:([a-z_]+)=)?(\S.*?)(?: = (\S+))?  +(.*)")
_HIDDEN: Final = "(hidden)"
_TYPES: Final[dict[str, Callable[[str], Any]]] = {
    "days": lambda text: 0 if text == "never" else positive(text),
    "int": int,
    "number": positive,
    "path": Path,
    "port": port,
    "seconds": float,
}


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_commands(
    commands: Commands, common: Parser, client: Parser, *texts: str, only: Collection[str] = ()
) -> None:
    """Make the parsers of all commands that the texts declare.

    Args:
        common: The options of every command.
        client: Those of commands that ask a hub.
        only: Names of commands that may be meant; of the others there is only the name and what it does.
    """
    declarations = _Declarations(commands, common, client, only)
    for text in texts:
        for block in re.split(r"\n(?=\S)", text.strip()):
            declarations.add(*block.splitlines())
    declarations.add_resources()


class _Declarations:
    """What was declared so far: a command stands below its group, a part above the commands that name it."""

    def __init__(self, commands: Commands, common: Parser, client: Parser, only: Collection[str]) -> None:
        self._common, self._client, self._only = common, client, only
        self._below = {"": commands}
        self._runs = {"": ("", False)}
        self._parts: dict[str, list[str]] = {}

    def add(self, header: str, *lines: str) -> None:
        """Add a command, a group or a part."""
        found = _HEADER.fullmatch(header)
        assert found is not None, header
        name, below, run, about = found.groups()
        above, _, word = name.rpartition(" ")
        module, asks_hub = self._runs[above]
        for each in filter(None, (run or "").split(", ")):
            if each in ("hub", "local"):
                asks_hub = each == "hub"
            else:
                module = f"{module}{each}" if each.startswith(":") else each
        self._runs[name] = (module, asks_hub)
        description, self._parts[name] = self._sorted_out(lines)
        is_meant = not self._only or name.split(" ")[0] in self._only
        if name.startswith("+") or (above and not is_meant):
            return
        is_group = below is not None and not below.startswith("[")
        parent = self._client if asks_hub else self._common
        parser = self._below[above].add_parser(
            word, parents=[] if is_group else [parent], help=about, description=description or None
        )
        if not is_meant:
            return
        if below is not None:
            title = {"title": f"{below.lower()}s"} if is_group else {"help": "connect something else"}
            self._below[name] = parser.add_subparsers(metavar=below, required=is_group, **title)
        if is_group:
            # What there is comes first, what else is made of operations last.
            self._add_declared(name, (each for each in declared(name) if each.name == "list"))
            return
        _add_arguments(parser, self._parts[name])
        function = module if ":" in module else f"{module}:{word.replace('-', '_')}"
        parser.set_defaults(run=f"deploy.cli.{function}", command=word)

    def add_resources(self) -> None:
        """Add the commands that are made of operations, below their groups."""
        for group in self._below:
            if group and (not self._only or group in self._only):
                self._add_declared(group, (each for each in declared(group) if each.name != "list"))

    def _add_declared(self, group: str, declarations: Iterable[Declaration]) -> None:
        for each in declarations:
            parser = self._below[group].add_parser(
                each.name, parents=[self._client], help=each.help, description=each.description or None
            )
            each.add_to(parser)

    def _sorted_out(self, lines: tuple[str, ...]) -> tuple[str, list[str]]:
        """Return the description, and the arguments, each in one line."""
        joined: list[str] = []
        for line in lines:
            if line.startswith("   "):
                joined[-1] += f" {line.strip()}"
            elif line:
                joined.append(line.strip())
        arguments: list[str] = []
        for line in joined:
            if line.startswith("+ "):
                arguments += self._parts[line.removeprefix("+ ")]
            elif _ARGUMENT.fullmatch(line):
                arguments.append(line)
        return " ".join(line for line in joined if line[:2] != "+ " and line not in arguments), arguments


def _add_arguments(parser: Parser, lines: list[str]) -> None:
    choice = None
    for line in lines:
        found = _ARGUMENT.fullmatch(line)
        assert found is not None, line
        excludes, to, words, default, about = found.groups()
        choice = (choice or parser.add_mutually_exclusive_group()) if excludes else None
        names = [each.rstrip(",") for each in words.split(" ") if each.startswith("-")]
        keywords: dict[str, Any] = {"help": argparse.SUPPRESS if about == _HIDDEN else about}
        if to and names:
            keywords["dest"] = to
        if values := [each for each in words.split(" ") if not each.startswith("-")]:
            keywords |= _value(values[0]) | {"default": default}
            if values[-1] == "...":
                keywords |= {"action": "append", "default": []}
        elif default is not None:
            keywords |= {"action": "store_const", "const": default == "yes"}
        else:
            keywords["action"] = "store_true"
        (choice or parser).add_argument(*(names or [to or keywords["metavar"].lower()]), **keywords)


def _value(text: str) -> dict[str, Any]:
    """Return how a value is read and shown."""
    shown, _, kind = text.partition(":")
    several, shown = shown.endswith("..."), shown.removesuffix("...")
    optional = shown.startswith("[") and shown.endswith("]")
    shown = shown[1:-1] if optional else shown
    keywords: dict[str, Any] = {"type": _TYPES[kind]} if kind else {}
    if shown.startswith("{"):
        read = keywords.get("type", str)
        keywords["choices"] = tuple(map(read, shown[1:-1].split(",")))
    else:
        keywords["metavar"] = shown
    if optional or several:
        keywords["nargs"] = ("*" if optional else "+") if several else "?"
    return keywords
