"""Calls of skills from the command line: values as they are typed, and the question before a call."""

import json
import sys
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from contracts.answers.skills import CallResult, MethodsBody
from contracts.errors import ConfigError
from contracts.wire import Json
from deploy.cli.client import HubClient, NeedsConfirmation, api
from deploy.cli.terminal.asking import agreed, call_question, typed_unseen
from deploy.cli.terminal.output import note, waiting


@dataclass(frozen=True)
class MethodCall:
    """A call of a method; see ``hub_agent.calls.direct.CallBody``."""

    device: str
    skill: str
    method: str
    args: list[Json] = field(default_factory=list)
    kwargs: dict[str, Json] = field(default_factory=dict)
    text: bool = False
    confirmation: str | None = None


def call_method(client: HubClient, call: MethodCall, *, yes: bool = False) -> CallResult | None:
    """Call a method, and ask where it needs a confirmation; None where the answer is no.

    Args:
        yes: Whether it is confirmed without a question.
    """
    name = f"{call.skill}.{call.method}"
    try:
        with waiting(name):
            return client.post("/api/skills/call", asdict(call), CallResult)
    except NeedsConfirmation as wanted:
        question = call_question(f"{call.device}: {name}", wanted.arguments)
        if not yes and not agreed(question, otherwise="Nothing was done. Run it in a terminal."):
            note("Not confirmed; nothing was done.")
            return None
        confirmed = replace(call, confirmation=wanted.confirmation)
    with waiting(name):
        return client.post("/api/skills/call", asdict(confirmed), CallResult)


def typed_value(text: str) -> Any:
    """Read what only JSON can say as JSON; the hub turns plain text into what the method takes."""
    if text[:1] in ("{", "[", '"') or text == "null":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def is_secret(schema: dict[str, Any]) -> bool:
    ways = schema.get("anyOf") or [schema]
    return any(way.get("format") == "password" for way in ways)


def typed_secret(name: str) -> str:
    """Ask for a secret without showing it, or read it from the standard input.

    Raises:
        ConfigError: Nothing was given.
    """
    value = typed_unseen(f"{name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not value:
        raise ConfigError(f"no value was given for {name}", hint="Nothing was changed.")
    return value


def secret_on_command_line(name: str, *, instead: str) -> ConfigError:
    hint = f"Leave the value out, and you are asked for it: {instead}"
    return ConfigError(f"{name} is a secret, which others could see on a command line", hint=hint)


def ask_for_secrets(client: HubClient, call: MethodCall) -> None:
    """Ask for the secrets of a call that are named without a value.

    Raises:
        ConfigError: One has a value.
    """
    device = None if call.device == "hub" else call.device
    found = client.get(api("skills", "methods", skill=call.skill, device=device), MethodsBody).skills
    offered = (each.parameters for one in found for each in one.methods if each.name == call.method)
    for place, (name, schema) in enumerate(next(offered, {}).get("properties", {}).items()):
        if is_secret(schema) and (place < len(call.args) or call.kwargs.get(name)):
            raise secret_on_command_line(name, instead=f"{name}=")
        if is_secret(schema) and name in call.kwargs:
            call.kwargs[name] = typed_secret(name)
