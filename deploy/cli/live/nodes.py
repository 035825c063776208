"""``strawberry nodes``: list, start, stop, restart and build programs on devices, and read their logs."""

import argparse
from typing import Any, Final
from urllib.parse import quote, urlencode

from contracts.errors import ConfigError, NotFound, StrawberryError
from deploy.cli.client import HubClient, hub_of
from deploy.cli.terminal.output import Output, note, waiting
from deploy.cli.terminal.tables import moment

_COLUMNS: Final = ("device", "name", "state", "health", "since", "restarts", "reason")


def list_nodes(options: argparse.Namespace) -> None:
    """Print the nodes of all devices."""
    found = _all(hub_of(options), options.device)
    Output(options.json).rows(
        found, _COLUMNS, empty="There is no node. 'docs/live.md' says how to make one.", shown=_shown
    )


def act(options: argparse.Namespace) -> None:
    """Act on a node, and print its new state."""
    client = hub_of(options)
    device, name = _which(client, options)
    path = f"/api/nodes/{quote(device, safe='')}/{quote(name, safe='')}/{options.command}"
    result: Any = None
    with waiting(f"{options.command} {name}"):
        for told in client.stream(path, None, {"Accept": "text/event-stream"}):
            if "error" in told:
                raise StrawberryError(told["error"]["message"], hint=told["error"]["hint"])
            if "progress" in told and not options.json:
                print(told["progress"])
            result = told.get("result")
    state = result["state"] if isinstance(result, dict) else "built"
    Output(options.json).result(result, text=f"{name} on {device}: {state}")


def logs(options: argparse.Namespace) -> None:
    """Print the last lines that a node wrote."""
    client = hub_of(options)
    device, name = _which(client, options)
    path = f"/api/nodes/{quote(device, safe='')}/{quote(name, safe='')}/logs?lines={options.lines}"
    found = client.request("GET", path)
    Output(options.json).result(found, text="\n".join(found["lines"]))


def _all(client: HubClient, device: str | None = None) -> list[dict[str, Any]]:
    query = f"?{urlencode({'device': device})}" if device else ""
    answer = client.request("GET", f"/api/nodes{query}")
    for each in answer["problems"]:
        note(f"{each['device']}: {each['problem']}")
    nodes: list[dict[str, Any]] = answer["nodes"]
    return nodes


def _which(client: HubClient, options: argparse.Namespace) -> tuple[str, str]:
    """Return device and node, also where the device was left out."""
    name: str = options.node
    if options.device is not None:
        return options.device, name
    devices = [each["device"] for each in _all(client) if each["name"] == name]
    if len(devices) == 1:
        return devices[0], name
    if not devices:
        raise NotFound(f"there is no node {name!r}", hint="'strawberry nodes list' lists them.")
    raise ConfigError(
        f"{len(devices)} devices have a node {name!r}",
        hint=f"Name the device first: strawberry nodes … {devices[0]} {name}",
    )


def _shown(node: dict[str, Any]) -> dict[str, Any]:
    health = "" if node["health"] == "unknown" else node["health"]
    return {**node, "health": health, "since": moment(node["since"]) if node["since"] else ""}
