"""``strawberry skills``, ``call``, ``exec`` and ``audit``: what devices can do, doing it, what was done."""

import argparse
import json
import sys
from functools import partial
from typing import Any, Final

from contracts.errors import ConfigError, StrawberryError
from deploy.cli.client import NeedsConfirmation, api, hub_of
from deploy.cli.terminal.asking import agreed, call_question
from deploy.cli.terminal.output import Output, note, waiting
from deploy.cli.terminal.tables import moment
from deploy.logs.terminal import visible

_COLUMNS: Final = ("path", "summary", "flags", "devices")
_PROVIDER_COLUMNS: Final = ("name", "key", "online", "preferred")
_RECORD_COLUMNS: Final = ("at", "user", "call", "outcome", "through")
_FILTERS: Final = ("q", "user", "device", "outcome", "since", "until", "limit")
"""Of records; options and parameters of the route have these names."""


def list_skills(options: argparse.Namespace) -> None:
    """Print every method of every device."""
    empty = "No skill is registered yet. 'strawberry devices list' shows which devices there are."
    _print_skills(options, "/api/skills", empty=empty)


def search(options: argparse.Namespace) -> None:
    """Print the methods that match some words, best first."""
    path = api("skills", "search", q=" ".join(options.query))
    _print_skills(options, path, empty="No skill matches. 'strawberry skills list' shows them all.")


def _print_skills(options: argparse.Namespace, path: str, *, empty: str) -> None:
    answer = hub_of(options).request("GET", path)
    Output(options.json).rows(answer["results"], _COLUMNS, empty=empty, shown=_shown)
    # Notes go to standard error: a program reads the rows alone.
    if answer["more"]:
        note(f"… and {answer['more']} more. Narrower words find fewer: 'strawberry skills search WORD …'.")
    if answer["silent"]:
        note(f"Left out, because they were not heard for long: {', '.join(answer['silent'])}.")


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    reasons = found["unavailable"]
    devices = [f"{key} ({reasons[key]})" if key in reasons else key for key in found["devices"]]
    if found["more_devices"]:
        devices.append(f"and {found['more_devices']} more")
    return {**found, "devices": devices}


def allow(options: argparse.Namespace) -> None:
    """Let the model call a method that declares nothing without a question, or have it ask again."""
    match options.path.split("."):
        case ["devices", device, skill, method]:
            client = hub_of(options)
        case _:
            raise ConfigError(f"{options.path!r} is no path", hint="'strawberry skills list' shows them.")
    path, digest = api("skills", "methods", device=device, skill=skill), None
    if not options.ask:
        found = [each for skill in client.request("GET", path)["skills"] for each in skill["methods"]]
        digest = next((each["digest"] for each in found if each["name"] == method), "")
    body = {"method": f"{skill}.{method}", "digest": digest}
    answer = client.request("PUT", api("devices", device, "allowed"), body)
    Output(options.json).result(
        answer,
        text=f"{options.path} is called {'after a question' if options.ask else 'without a question'} now.",
    )


def prefer(options: argparse.Namespace) -> None:
    """Set, reset or print the order in which devices serve a device-agnostic skill."""
    if options.reset and options.devices:
        raise ConfigError("--reset takes no DEVICE", hint="Leave one of the two out.")
    client, path = hub_of(options), api("skills", options.skill, "providers")
    if options.devices or options.reset:
        found = client.request("PUT", path, {"devices": options.devices})
    else:
        found = client.request("GET", path)
    Output(options.json).rows(
        found, _PROVIDER_COLUMNS, empty=f"No device serves {options.skill} for any device."
    )


def call(options: argparse.Namespace) -> int:
    """Call a method of a skill, asking first where the method needs a confirmation."""
    skill, dot, method = options.method.rpartition(".")
    if not dot or not skill or not method:
        raise ConfigError(f"{options.method!r} names no method", hint="For example LampSkill.turn_on.")
    args, kwargs = _arguments(options.arguments)
    body: dict[str, Any] = {
        "device": options.device,
        "skill": skill,
        "method": method,
        "args": args,
        "kwargs": kwargs,
        "text": not options.json,
    }
    client = hub_of(options)
    try:
        with waiting(options.method):
            answer = client.request("POST", "/api/skills/call", body)
    except NeedsConfirmation as wanted:
        if not _confirmed(options, wanted):
            note("Not confirmed; nothing was done.")
            return 1
        confirmed = {**body, "confirmation": wanted.confirmation}
        with waiting(options.method):
            answer = client.request("POST", "/api/skills/call", confirmed)
    Output(options.json).result(answer["result"], text=answer.get("text"))
    return 0


def _confirmed(options: argparse.Namespace, wanted: NeedsConfirmation) -> bool:
    question = call_question(f"{options.device}: {options.method}", wanted.arguments)
    return agreed(question, otherwise="Nothing was done. Run it in a terminal.")


def _arguments(words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Split words: ``KEY=VALUE`` by name, anything else by position, in order."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            args.append(_value(word))
        elif name in kwargs:
            raise ConfigError(f"{name} is given twice", hint="Give each argument once.")
        else:
            kwargs[name] = _value(text)
    return args, kwargs


def _value(text: str) -> Any:
    """Read what only JSON can say as JSON; the hub turns plain text into what the method takes."""
    if text[:1] in ("{", "[", '"') or text == "null":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def execute(options: argparse.Namespace) -> int:
    """Run Python in the sandbox and print its output and value."""
    code = sys.stdin.read() if options.code == "-" else options.code
    with waiting("running"):
        answer = hub_of(options).request("POST", "/api/exec", {"code": code})
    if options.json:
        Output(as_json=True).result(answer)
        return 0 if answer["status"] == "ok" else 1
    if answer["stdout"]:
        print(visible(answer["stdout"]), end="" if answer["stdout"].endswith("\n") else "\n")
    if answer["status"] != "ok":
        raise StrawberryError(f"the program failed: {str(answer['error']).strip() or answer['status']}")
    Output(as_json=False).result(answer["value"])
    return 0


def audit(options: argparse.Namespace) -> None:
    """Print the newest records that fit."""
    hub = hub_of(options)
    found = hub.request("GET", api("audit", **{name: getattr(options, name) for name in _FILTERS}))
    keys = {} if options.json else {each["id"]: each["key"] for each in hub.request("GET", "/api/devices")}
    shown = partial(_recorded, keys)
    Output(options.json).rows(found["entries"], _RECORD_COLUMNS, empty="No records match.", shown=shown)
    if found["before"] is not None and not options.json:
        note("There is more: --since, --until, --user, --device and --outcome find less, --limit shows more.")


def _recorded(keys: dict[str, str], entry: dict[str, Any]) -> dict[str, Any]:
    actor, device = entry["actor"], keys.get(entry["device"], entry["device"])
    by = next((f"{name} {actor[name]}" for name in ("watcher", "agent", "address") if actor.get(name)), "")
    return {
        "at": moment(entry["at"]),
        "user": entry["user"],
        "call": ".".join(filter(None, (device, entry["skill"], entry["method"]))),
        "outcome": entry["outcome"],
        "through": by or entry["through"] or entry["token_name"],
    }
