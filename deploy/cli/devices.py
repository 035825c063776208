"""``strawberry devices`` and ``tokens``: who may take part."""

import argparse
from typing import Any
from urllib.parse import quote

from contracts.errors import ConfigError, NotFound
from deploy.cli.asking import agreed
from deploy.cli.client import HubClient
from deploy.cli.output import Output, note, waiting
from deploy.home.directory import Home

_COLUMNS = ("id", "key", "name", "area", "state", "last_seen")
_WAITING_COLUMNS = ("code", "name", "source", "fingerprint", "expires_at")
_JOINING = "/api/devices/join"


def list_devices(options: argparse.Namespace) -> None:
    """Print all devices, and whether they are there."""
    rows = _client(options).request("GET", "/api/devices")
    Output(options.json).rows(rows, _COLUMNS, empty="No device yet. 'strawberry devices add NAME' adds one.")


def add(options: argparse.Namespace) -> None:
    """Make an enrolment token for a new device and print the command that uses it."""
    body = {"name": options.name, **_lifetime(options)}
    answer = _client(options).request("POST", "/api/devices", body)
    Output(options.json).result(answer, text=_invitation(options.name, answer))


def invite(options: argparse.Namespace) -> None:
    """Make an enrolment token for a device that is in the list, also for one that was locked out."""
    answer = _client(options).request("POST", _path(options.device) + "/invitations", _lifetime(options))
    Output(options.json).result(answer, text=_invitation(options.device, answer))


def _lifetime(options: argparse.Namespace) -> dict[str, int]:
    return {} if options.minutes is None else {"lifetime_s": options.minutes * 60}


def _invitation(name: str, answer: dict[str, Any]) -> str:
    lines = [
        f"Enrolment token for {name} (id {answer['id']}), good once, until {answer['expires_at']}:",
        "",
        f"  {answer['token']}",
        "",
        "On that device:",
        "",
        "  read -rs HUB_DEVICE_TOKEN && export HUB_DEVICE_TOKEN   # paste the token, press Enter",
        f"  {answer['command']}",
    ]
    if not answer["reachable"]:
        lines += ["", "Only this machine reaches the hub there: start it with --lan for others."]
    return "\n".join(lines)


def rename(options: argparse.Namespace) -> None:
    """Change what people call a device; its id stays."""
    if not options.name.strip():
        raise ConfigError("a device needs a name", hint="For example 'Bedroom PC'.")
    answer = _client(options).request("PATCH", _path(options.device), {"name": options.name})
    Output(options.json).result(
        answer, text=f"{answer['id']} is now {answer['name']} ({answer['key']} in code)."
    )


def revoke(options: argparse.Namespace) -> None:
    """Lock a device out at once; only a new invitation lets it in again."""
    answer = _client(options).request("POST", _path(options.device) + "/revoke", {})
    Output(options.json).result(answer, text=f"{options.device} is locked out.")


def remove(options: argparse.Namespace) -> None:
    """Lock a device out, forget it, and clear what it left on the bus."""
    with waiting("removing"):
        answer = _client(options).request("DELETE", _path(options.device))
    Output(options.json).result(answer, text=f"{answer['name']} ({answer['id']}) is gone.")


def approve(options: argparse.Namespace) -> int:
    """Let in a device that shows a code, once the person has compared the fingerprints."""
    client, output = _client(options), Output(options.json)
    waiting_ones = client.request("GET", _JOINING)
    if options.code is None:
        output.rows(
            waiting_ones,
            _WAITING_COLUMNS,
            empty="No device waits. 'strawberry spoke join' on the new device shows a code.",
        )
        return 0
    code = _plain(options.code)
    found = next((each for each in waiting_ones if _plain(each["code"]) == code), None)
    if found is None:
        raise NotFound(
            f"no device waits with the code {options.code}",
            hint="Codes are good for ten minutes, once; 'strawberry spoke join' shows a new one.",
        )
    if not options.yes:
        note(
            f"{found['name']} at {found['source']} wants to join.\n"
            f"  fingerprint  {found['fingerprint']}\n"
            "The screen of the device must show the same fingerprint."
        )
        if not agreed("Is it the same, and may the device join?"):
            client.request("DELETE", f"{_JOINING}/{quote(found['code'], safe='')}")
            note("It was not let in, and its code is void.")
            return 1
    named = {} if options.name is None else {"name": options.name}
    answer = client.request("POST", f"{_JOINING}/{quote(found['code'], safe='')}/approve", named)
    output.result(
        answer,
        text=f"{answer['name']} may join as {answer['id']}; it does so by itself.",
    )
    return 0


def _plain(code: str) -> str:
    """A code however it was typed: in small letters, with or without its dash."""
    return "".join(letter for letter in code.upper() if letter.isalnum())


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
