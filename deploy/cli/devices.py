"""``strawberry devices`` and ``tokens``: who may take part."""

import argparse
from typing import Any
from urllib.parse import quote

from contracts.errors import ConfigError
from deploy.cli.client import HubClient
from deploy.cli.output import Output
from deploy.home import Home

_COLUMNS = ("id", "key", "name", "area", "state", "last_seen")


def list_devices(options: argparse.Namespace) -> None:
    """Print all devices, and whether they are there."""
    rows = _client(options).request("GET", "/api/devices")
    Output(options.json).rows(rows, _COLUMNS, empty="No device yet. 'strawberry devices add NAME' adds one.")


def add(options: argparse.Namespace) -> None:
    """Make an enrolment token and print the command that uses it."""
    answer = _client(options).request("POST", "/api/devices", {"name": options.name})
    Output(options.json).result(
        answer,
        text=(
            f"Enrolment token for {options.name} (id {answer['id']}), good once, for ten minutes:\n\n"
            f"  {answer['token']}\n\n"
            "On the new device:\n\n"
            "  read -rs HUB_DEVICE_TOKEN && export HUB_DEVICE_TOKEN   # paste the token, press Enter\n"
            f"  {answer['command']}"
        ),
    )


def rename(options: argparse.Namespace) -> None:
    """Change what people call a device; its id stays."""
    if not options.name.strip():
        raise ConfigError("a device needs a name", hint="For example 'Bedroom PC'.")
    answer = _client(options).request("PATCH", _path(options.device), {"name": options.name})
    Output(options.json).result(
        answer, text=f"{answer['id']} is now {answer['name']} ({answer['key']} in code)."
    )


def revoke(options: argparse.Namespace) -> None:
    """Lock a device out at once and for good."""
    answer = _client(options).request("POST", _path(options.device) + "/revoke", {})
    Output(options.json).result(answer, text=f"{options.device} is locked out.")


def add_token(options: argparse.Namespace) -> None:
    """Make a token with which a program acts as the person who asks."""
    scopes = [scope for scope in options.scope.replace(" ", ",").split(",") if scope]
    answer: dict[str, Any] = _client(options).request(
        "POST", "/api/tokens", {"name": options.name, "scopes": scopes}
    )
    Output(options.json).result(answer, text=answer["token"])


def _path(device: str) -> str:
    return f"/api/devices/{quote(device, safe='')}"


def _client(options: argparse.Namespace) -> HubClient:
    return HubClient.find(Home.find(), url=options.hub)
