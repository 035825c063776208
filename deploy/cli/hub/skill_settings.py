"""``strawberry skills settings``: what the owner of a device sets of a skill."""

import argparse
import sys
from typing import Any, Final

from contracts.answers.skills import MethodsBody, SkillBody
from contracts.errors import ConfigError, NotFound
from contracts.wire import Json
from deploy.cli.client import HubClient, api, hub_of
from deploy.cli.hub.calling import (
    MethodCall,
    call_method,
    is_secret,
    secret_on_command_line,
    typed_secret,
    typed_value,
)
from deploy.cli.terminal.output import Output, note

_CHANGE: Final = "change_settings"


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
