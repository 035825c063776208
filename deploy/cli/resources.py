"""Commands made of the hub's operations: one request, and its answer as a table, a sentence or JSON.

``operations.json`` has their declarations, so that a command starts without the hub's packages; ``make
generated`` writes it.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, moment
from deploy.cli.terminal.parser import Actions, Parser

DECLARATIONS: Final = Path(__file__).with_name("operations.json")

_TYPES: Final = {"int": int, "float": float, "str": str}


@dataclass(frozen=True)
class Argument:
    """A parameter of an operation on the command line.

    Attributes:
        flag: None of a positional argument.
        kind: ``str``, ``int``, ``float``, ``bool`` for a switch.
        is_list: Whether it may have several values; several words of a text are joined.
    """

    name: str
    flag: str | None
    kind: str
    help: str
    in_path: bool = False
    is_required: bool = False
    is_list: bool = False
    choices: Sequence[str] = ()
    metavar: str = ""


@dataclass(frozen=True)
class Declaration:
    """A command.

    Attributes:
        columns: Heading, field and format of each column.
        says: Template of what a person reads.
        asks: Template of what a person is asked before.
        formats: Formats of fields in ``says``.
    """

    name: str
    help: str
    description: str
    method: str
    path: str
    arguments: Sequence[Argument]
    columns: Sequence[tuple[str, str, str]]
    says: str
    asks: str
    empty: str
    formats: dict[str, str]

    def add_to(self, parser: Parser) -> None:
        """Add its arguments to its parser."""
        for each in self.arguments:
            settings: dict[str, Any] = {"help": each.help}
            if each.kind == "bool":
                settings |= {"action": "store_true", "default": None}
            else:
                settings |= {"type": _TYPES[each.kind], "metavar": each.metavar or None}
                settings |= {"choices": each.choices} if each.choices else {}
            if each.flag is not None:
                settings |= {"action": "append"} if each.is_list else {}
                parser.add_argument(each.flag, dest=each.name, **settings)
                continue
            if each.is_list:
                settings["nargs"] = "+" if each.is_required else "*"
            elif not each.is_required:
                settings["nargs"] = "?"
            parser.add_argument(each.name, **settings)
        if self.asks:
            parser.add_flag("--yes", "do not ask")
        parser.set_defaults(declaration=self)


def add_declared(actions: Actions, group: str) -> None:
    """Add the commands of a group that are made of operations."""
    for each in json.loads(DECLARATIONS.read_text("utf-8"))[group]:
        command = Declaration(**{**each, "arguments": [Argument(**one) for one in each["arguments"]]})
        parser = actions.add_parser(command.name, run=run, hub=True, help=command.help)
        parser.description = command.description or None
        command.add_to(parser)


def run(options: argparse.Namespace) -> int:
    """Send the request of a command, and print the answer."""
    # Finding the hub is slow to import, and no help needs it.
    from deploy.cli.client import hub_of

    command: Declaration = options.declaration
    given = {each.name: _joined(each, getattr(options, each.name)) for each in command.arguments}
    if command.asks and not is_sure(command.asks.format(**given), yes=options.yes):
        return 1
    path = command.path.format(**{name: quote(str(value), safe="") for name, value in given.items()})
    in_path = {each.name for each in command.arguments if each.in_path}
    fields = {name: value for name, value in given.items() if value is not None and name not in in_path}
    body: dict[str, Any] | None = None
    if command.method in ("POST", "PUT", "PATCH"):
        body = fields
    elif fields:
        path = f"{path}?{urlencode({name: _word(value) for name, value in fields.items()})}"
    answer = hub_of(options).request(command.method, path, body)
    output = Output(options.json)
    if isinstance(answer, list):
        output.rows(answer, lambda row: dict(_cells(command, row)), empty=command.empty)
    else:
        told = given if answer is None else answer
        shown = {name: _formatted(command.formats.get(name), each) for name, each in told.items()}
        output.result(told, text=command.says.format(**given | shown) or None)
    return 0


def _joined(argument: Argument, value: Any) -> Any:
    is_text = argument.is_list and argument.flag is None and argument.kind == "str" and not argument.choices
    return " ".join(value) if is_text and isinstance(value, list) else value


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cells(command: Declaration, row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for heading, field, how in command.columns:
        yield heading, _formatted(how, row.get(field))


def _formatted(how: str | None, value: Any) -> Any:
    match how:
        case "time":
            return moment(value)
        case "size" if value is not None:
            # Slow to import, and few answers have one.
            from agent_core.sentences.responses import bytes_text

            return bytes_text(value)
    return value
