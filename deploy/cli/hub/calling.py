"""Calls of skills from the command line, the question before one, and ``strawberry skills settings``."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from contracts.answers.skills import CallResult, MethodsBody, SkillBody
from contracts.errors import ConfigError, NotFound
from contracts.wire import Json
from deploy.cli.client import HubClient, NeedsConfirmation, api, hub_of
from deploy.cli.terminal.asking import agreed, call_question, typed_unseen
from deploy.cli.terminal.output import Output, note, waiting

_CHANGE: Final = "change_settings"


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


def settings(options: argparse.Namespace) -> int:
    """Show the settings of a skill, or change some.

    Shows the settings of a skill without its secrets, or changes those that you name. Secrets that are
    missing, and those that you name without a value, are asked for and not shown while you type.
    """
    client = hub_of(options)
    skill = _found(client, options.skill, options.device)
    properties = next(each for each in skill.methods if each.name == _CHANGE).parameters["properties"]
    given = _given(options.changes, properties)
    present = _present(client, skill)
    wanted = [name for name, value in given.items() if value is None]
    if not options.changes:
        wanted += [name for name in _missing(properties, present) if is_secret(properties[name])]
    if sys.stdin.isatty() or options.changes:
        given |= {name: typed_secret(name) for name in wanted}
    if given:
        change = MethodCall(skill.device, skill.skill, _CHANGE, kwargs=given)
        if call_method(client, change, yes=options.yes) is None:
            return 1
        present = _present(client, skill)
    missing = _missing(properties, present)
    lines = [f"{name}: {'(missing)' if name in missing else _text(present.get(name))}" for name in properties]
    Output(options.json).result({"settings": present, "missing": missing}, text="\n".join(lines))
    if missing:
        words = " ".join(each if is_secret(properties[each]) else f"{each}=…" for each in missing)
        note(f"{skill.skill} waits for them: 'strawberry skills settings {skill.skill} {words}'.")
    return 0


def _found(client: HubClient, name: str, device: str | None) -> SkillBody:
    path = api("skills", "methods", skill=name, device=device)
    found = [
        skill
        for skill in client.get(path, MethodsBody).skills
        if any(method.name == _CHANGE for method in skill.methods)
    ]
    if not found:
        hint = "'strawberry skills list' shows the skills, and which have change_settings."
        raise NotFound("there is no {name} with settings", name=name, hint=hint)
    if len(found) > 1:
        devices = ", ".join(each.device for each in found)
        raise ConfigError(f"{name} is on several devices: {devices}", hint="Choose one with --device.")
    return found[0]


def _given(changes: list[str], properties: dict[str, Json]) -> dict[str, Json]:
    """Return what is to be set; None for a secret that is asked for."""
    given: dict[str, Json] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if name not in properties:
            known = ", ".join(properties)
            raise ConfigError(f"there is no setting {name!r}", hint=f"The settings are {known}.")
        if equals and is_secret(properties[name]):
            raise secret_on_command_line(name, instead=name)
        if not equals and not is_secret(properties[name]):
            raise ConfigError(f"{name} has no value", hint=f"Write {name}=VALUE.")
        given[name] = typed_value(text) if equals else None
    return given


def _present(client: HubClient, skill: SkillBody) -> dict[str, Json]:
    answer = call_method(client, MethodCall(skill.device, skill.skill, "get_settings"))
    return answer.result if answer is not None and isinstance(answer.result, dict) else {}


def _missing(properties: dict[str, Json], present: dict[str, Json]) -> list[str]:
    return [name for name, each in properties.items() if "default" not in each and name not in present]


def _text(value: Any) -> str:
    return "(empty)" if value in (None, "") else str(value)
