"""``strawberry nodes``: list, start, stop, restart and build programs on devices, and read their logs."""

import argparse
import json
from collections.abc import Iterator
from typing import Final

from pydantic import TypeAdapter

from contracts.answers.live import (
    LostLines,
    NodeEvent,
    NodeFailed,
    NodeList,
    NodeLogs,
    NodeProgress,
    NodeResult,
    NodeSummary,
)
from contracts.errors import ConfigError, NotFound, StrawberryError
from contracts.wire import Json
from deploy.cli.client import HubClient, api, hub_of
from deploy.cli.terminal.output import Output, moment, note, waiting
from deploy.cli.terminal.parser import Actions, Parser
from deploy.logs.terminal import visible
from spoke.nodes.manifest import refuse_own

_EVENT: Final[TypeAdapter[NodeEvent]] = TypeAdapter(NodeEvent)
_ACTIONS: Final = {
    "start": "start a program",
    "stop": "stop a program",
    "restart": "stop and start a program",
    "build": "build a program as its node.yaml says, and show what the build writes",
}


def list_nodes(options: argparse.Namespace) -> None:
    """List the programs of all devices.

    Ends with code 1 where those of a device are missing.
    """
    found, is_complete = _all(hub_of(options), options.device)
    empty = (
        "There is no node. Make nodes/NAME/node.yaml in the data directory of a device and restart its spoke."
    )
    Output(options.json).rows(found, _cells, empty=empty)
    if not is_complete:
        raise SystemExit(1)


def act(options: argparse.Namespace) -> None:
    """Act on a node, and print its new state."""
    client = hub_of(options)
    device, name = _which(client, options)
    path = api("nodes", device, name, options.command)
    result: Json = None
    with waiting(f"{options.command} {name}"):
        for event in _events(client, "POST", path):
            if isinstance(event, NodeResult):
                result = event.result
            # A device that only says that it goes on says it without words.
            elif isinstance(event, NodeProgress) and event.progress and not options.json:
                print(visible(event.progress), flush=True)
    state = result["state"] if isinstance(result, dict) else "built"
    Output(options.json).result(result, text=f"{name} on {device}: {state}")


def logs(options: argparse.Namespace) -> None:
    """Show what a program wrote last.

    Shows the last lines that a program wrote. With --json and --follow, one JSON object per line.
    """
    client = hub_of(options)
    device, name = _which(client, options)
    if not options.follow:
        found = client.get(api("nodes", device, name, "logs", lines=options.lines), NodeLogs)
        Output(options.json).result(found, text="\n".join(found.lines))
        return
    begin = {"lines": options.lines}
    while True:  # the device ends each stream after some minutes
        path = api("nodes", device, name, "logs", follow="true", **begin)
        # A device of an earlier version does not tell where it ended.
        begin = {"lines": 1}
        for event in _events(client, "GET", path):
            match event:
                case LostLines():
                    note(f"{event.lost} lines came too fast and are not shown.")
                # A device that only says that it goes on says it without words.
                case NodeProgress(progress=str() as line):
                    print(json.dumps({"line": line}) if options.json else visible(line), flush=True)
                case NodeResult(result={"position": position}):
                    begin = {"after": position}


def _events(client: HubClient, method: str, path: str) -> Iterator[NodeEvent]:
    """Yield the events of a call on a node until it ends."""
    for told in client.stream(path, None, {"Accept": "text/event-stream"}, method=method):
        event = _EVENT.validate_python(told)
        if isinstance(event, NodeFailed):
            raise StrawberryError(event.error.message, hint=event.error.hint)
        yield event


def _all(client: HubClient, device: str | None = None) -> tuple[list[NodeSummary], bool]:
    """Return the nodes, and whether these are all; print of which devices they are missing."""
    answer = client.get(api("nodes", device=device), NodeList)
    for each in answer.problems:
        note(f"{each.device}: {each.problem}")
    return answer.nodes, not answer.problems


def _which(client: HubClient, options: argparse.Namespace) -> tuple[str, str]:
    """Return device and node, also where the device was left out."""
    name: str = options.node
    if options.device is not None:
        return options.device, name
    devices = [each.device for each in _all(client)[0] if each.name == name]
    if len(devices) == 1:
        return devices[0], name
    if not devices:
        refuse_own(name)
        raise NotFound(f"there is no node {name!r}", hint="'strawberry nodes list' lists them.")
    raise ConfigError(
        f"{len(devices)} devices have a node {name!r}",
        hint=f"Name the device first: strawberry nodes … {devices[0]} {name}",
    )


def _cells(node: NodeSummary) -> dict[str, object]:
    return {
        "device": node.device,
        "name": node.name,
        "state": node.state,
        "health": "" if node.health == "unknown" else node.health,
        "since": moment(node.since),
        "restarts": node.restarts,
        "reason": node.reason,
    }


def _add_node(parser: Parser) -> None:
    parser.takes("device", "needed if several devices have the program", nargs="?")
    parser.takes("node", "the program")


def add_nodes_actions(actions: Actions) -> None:
    """Declare 'strawberry nodes'."""
    command = actions.add_parser("list", run=list_nodes, hub=True)
    command.takes("--device", "only of this device", metavar="NAME")
    for name, text in _ACTIONS.items():
        _add_node(actions.add_parser(name, run=act, hub=True, help=text))
    command = actions.add_parser("logs", run=logs, hub=True)
    _add_node(command)
    command.add_flag("--follow", "go on with new lines until Ctrl-C")
    command.add_number("--lines", "default %(default)s, at most 1000", default=50)
