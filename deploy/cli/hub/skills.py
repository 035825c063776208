"""``strawberry skills``, ``call``, ``exec`` and ``audit``: what devices can do, doing it, what was done."""

import argparse
import sys
from functools import partial
from typing import Any, Final

from contracts.answers.devices import DeviceAnswer
from contracts.answers.record import AuditEntry, AuditPage
from contracts.answers.skills import (
    FailingBody,
    MethodsBody,
    ProviderAnswer,
    ResultBody,
    RunSummary,
    SearchBody,
    SentencesOfSkill,
)
from contracts.errors import ConfigError, StrawberryError
from deploy.cli.authors.trying import add_author_actions
from deploy.cli.client import api, hub_of
from deploy.cli.hub import skill_packages
from deploy.cli.hub.calling import MethodCall, ask_for_secrets, call_method, settings, typed_value
from deploy.cli.resources import add_declared
from deploy.cli.terminal.output import Output, columns, moment, note, waiting
from deploy.cli.terminal.parser import Actions, Parser
from deploy.logs.terminal import visible

_FILTERS: Final = ("q", "user", "device", "outcome", "since", "until", "limit")
"""Of records; options and parameters of the route have these names."""


def list_skills(options: argparse.Namespace) -> None:
    """List every method of every device."""
    if options.installed:
        skill_packages.list_installed(options)
        return
    empty = "No skill is registered yet. 'strawberry devices list' shows which devices there are."
    _print_skills(options, "/api/skills", empty=empty)


def sentences(options: argparse.Namespace) -> None:
    """List what you can say without a model, by room and skill.

    With WORDS, the sentences that have them; where none has all of them, the nearest ones.
    """
    path = api("sentences", q=" ".join(options.words), language=options.language)
    groups = hub_of(options).get(path, list[SentencesOfSkill])
    lines = [
        "\n  ".join(
            [", ".join(filter(None, (each.area, each.device or "this home", each.skill))), *each.sentences]
        )
        for each in groups
    ]
    empty = "No skill understands sentences yet. 'strawberry skills list' shows which skills there are."
    Output(options.json).result(groups, text="\n".join(lines) or empty)


def search(options: argparse.Namespace) -> None:
    """Find methods by words, best match first."""
    path = api("skills", "search", q=" ".join(options.query))
    _print_skills(options, path, empty="No skill matches. 'strawberry skills list' shows them all.")


def _print_skills(options: argparse.Namespace, path: str, *, empty: str) -> None:
    answer = hub_of(options).get(path, SearchBody)
    rows = [*answer.results, *map(_failing, answer.failing)]
    Output(options.json).rows(rows, _cells, empty=empty)
    # Notes go to standard error: a program reads the rows alone.
    if answer.more:
        note(f"… and {answer.more} more. Narrower words find fewer: 'strawberry skills search WORD …'.")
    if answer.silent:
        note(f"Left out, because they were not heard for long: {', '.join(answer.silent)}.")


def _failing(skill: FailingBody) -> ResultBody:
    return ResultBody(
        path=f"devices.{skill.device}.{skill.skill}",
        signature="",
        summary="",
        devices=[skill.device],
        more_devices=0,
        flags=[],
        available=False,
        unavailable={skill.device: skill.reason},
    )


def _cells(found: ResultBody) -> dict[str, object]:
    reasons = found.unavailable
    devices = [f"{key} ({reasons[key]})" if key in reasons else key for key in found.devices]
    if found.more_devices:
        devices.append(f"and {found.more_devices} more")
    return {"path": found.path, "summary": found.summary, "flags": found.flags, "devices": devices}


def allow(options: argparse.Namespace) -> None:
    """Allow the assistant to call a method whose author declared nothing without asking."""
    match options.path.split("."):
        case ["devices", device, skill, method]:
            client = hub_of(options)
        case _:
            raise ConfigError(f"{options.path!r} is no path", hint="'strawberry skills list' shows them.")
    path, digest = api("skills", "methods", device=device, skill=skill), None
    if not options.ask:
        found = [each for skill in client.get(path, MethodsBody).skills for each in skill.methods]
        digest = next((each.digest for each in found if each.name == method), "")
    body = {"method": f"{skill}.{method}", "digest": digest}
    answer = client.send("PUT", api("devices", device, "allowed"), body, DeviceAnswer)
    Output(options.json).result(
        answer,
        text=f"{options.path} is called {'after a question' if options.ask else 'without a question'} now.",
    )


def prefer(options: argparse.Namespace) -> None:
    """Set which devices serve a skill for any device.

    Sets which devices are called first for devices.hub.SKILL, and approves them as its providers. Without
    a DEVICE it prints the order.
    """
    if options.reset and options.devices:
        raise ConfigError("--reset takes no DEVICE", hint="Leave one of the two out.")
    client, path = hub_of(options), api("skills", options.skill, "providers")
    if options.devices or options.reset:
        found = client.send("PUT", path, {"devices": options.devices}, list[ProviderAnswer])
    else:
        found = client.get(path, list[ProviderAnswer])
    Output(options.json).rows(
        found,
        columns("name", "key", "online", "preferred"),
        empty=f"No device serves {options.skill} for any device.",
    )


def call(options: argparse.Namespace) -> int:
    """Call a method of a skill.

    Calls a method of a skill.
    """
    skill, dot, method = options.method.rpartition(".")
    if not dot or not skill or not method:
        raise ConfigError(f"{options.method!r} names no method", hint="For example LampSkill.turn_on.")
    args, kwargs = _arguments(options.arguments)
    wanted = MethodCall(options.device, skill, method, args, kwargs, text=not options.json)
    client = hub_of(options)
    if args or kwargs:
        ask_for_secrets(client, wanted)
    answer = call_method(client, wanted)
    if answer is None:
        return 1
    Output(options.json).result(answer.result, text=answer.text)
    return 0


def _arguments(words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Split words: ``KEY=VALUE`` by name, anything else by position, in order."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            args.append(typed_value(word))
        elif name in kwargs:
            raise ConfigError(f"{name} is given twice", hint="Give each argument once.")
        else:
            kwargs[name] = typed_value(text)
    return args, kwargs


def execute(options: argparse.Namespace) -> int:
    """Run Python in the sandbox, as the assistant does.

    Runs Python in the sandbox, as the assistant does; variables stay for the next run.
    """
    code = sys.stdin.read() if options.code == "-" else options.code
    with waiting("running"):
        answer = hub_of(options).post("/api/exec", {"code": code}, RunSummary)
    if options.json:
        Output(as_json=True).result(answer)
        return 0 if answer.status == "ok" else 1
    if answer.stdout:
        print(visible(answer.stdout), end="" if answer.stdout.endswith("\n") else "\n")
    if answer.status != "ok":
        raise StrawberryError(f"the program failed: {str(answer.error).strip() or answer.status}")
    Output(as_json=False).result(answer.value)
    return 0


def audit(options: argparse.Namespace) -> None:
    """Show who called what, and what was refused.

    Lists calls and refused attempts, newest first. An admin sees those of all people, others their own
    and those on their devices. Of arguments only a hash is kept.
    """
    hub = hub_of(options)
    found = hub.get(api("audit", **{name: getattr(options, name) for name in _FILTERS}), AuditPage)
    devices = [] if options.json else hub.get("/api/devices", list[DeviceAnswer])
    cells = partial(_recorded, {each.id: each.key for each in devices})
    Output(options.json).rows(found.entries, cells, empty="No records match.")
    if found.before is not None and not options.json:
        note("There is more: --since, --until, --user, --device and --outcome find less, --limit shows more.")


def _recorded(keys: dict[str, str], entry: AuditEntry) -> dict[str, object]:
    actor, device = entry.actor, keys.get(entry.device, entry.device)
    through = ("watcher", "timer", "agent", "address")
    by = next((f"{name} {actor[name]}" for name in through if actor.get(name)), "")
    return {
        "at": moment(entry.at),
        "user": entry.user,
        "call": ".".join(filter(None, (device, entry.skill, entry.method))),
        "outcome": entry.outcome,
        "through": by or entry.through or entry.token_name,
    }


def register_call(parser: Parser) -> None:
    """Declare 'strawberry call'."""
    parser.runs(call, hub=True)
    parser.takes(
        "device", "its name, key or id; 'hub' for the hub's own skills, and for any device that has the skill"
    )
    parser.takes("method", "for example LampSkill.turn_on")
    parser.takes(
        "arguments", "arguments by name, or values in order; JSON or text", metavar="KEY=VALUE", nargs="*"
    )


def register_exec(parser: Parser) -> None:
    """Declare 'strawberry exec'."""
    parser.runs(execute, hub=True)
    parser.takes("code", "for example 'devices.bedroom_pc.LampSkill.turn_on()'; - for standard input")


def add_skills_actions(actions: Actions) -> None:
    """Declare 'strawberry skills'."""
    command = actions.add_parser("list", run=list_skills, hub=True)
    command.add_flag("--installed", "only those that you installed here")
    command = actions.add_parser("search", run=search, hub=True)
    command.takes("query", "what to look for", metavar="WORD", nargs="+")
    command = actions.add_parser("allow", run=allow, hub=True)
    command.takes("path", "as 'skills list' shows it, for example devices.nas.PowerSkill.tidy")
    command.add_flag("--ask", "take it back: you are asked again")
    command = actions.add_parser("settings", run=settings, hub=True)
    command.takes("skill", "for example WeatherSkill", metavar="NAME")
    command.takes(
        "changes",
        "what to change; a secret by its name alone, and you are asked for it",
        metavar="SETTING=VALUE",
        nargs="*",
    )
    command.takes("--device", "its name, key or id, where several devices have the skill")
    command.add_flag("--yes", "change it without a question")
    command = actions.add_parser("prefer", run=prefer, hub=True)
    command.takes("skill", "for example CalculatorSkill")
    command.takes("devices", "first one first", metavar="DEVICE", nargs="*")
    command.add_flag("--reset", "forget the order")
    skill_packages.register(actions)
    actions.add_parser("available", run=skill_packages.available)
    command = actions.add_parser("enable", run=skill_packages.enable)
    command.takes("name", "as 'skills available' shows it, for example weather")
    command.takes("settings", "its settings, but no secret", metavar="SETTING=VALUE", nargs="*")
    actions.add_parser("disable", run=skill_packages.disable).takes("name", "for example weather")
    add_author_actions(actions)
    add_declared(actions, "skills")


def register_sentences(parser: Parser) -> None:
    """Declare 'strawberry sentences'."""
    parser.runs(sentences, hub=True)
    parser.takes("words", "only sentences with these words, for example lamp", metavar="WORD", nargs="*")
    parser.takes("--language", "in this language, for example de; without it, in yours")


def register_audit(parser: Parser) -> None:
    """Declare 'strawberry audit'."""
    parser.runs(audit, hub=True)
    parser.takes("q", "only records that contain this text, for example unlock", metavar="TEXT", nargs="?")
    parser.takes("--user", "only records of this person, by name or id")
    parser.takes("--device", "only calls on this device; hub for the hub's own skills")
    parser.takes("--outcome", "only with this outcome: result, forbidden, refused, offline, …")
    parser.takes("--since", "only after this: a duration such as 2h or 7d, or a time", metavar="TIME")
    parser.takes("--until", "only before this: a duration or a time", metavar="TIME")
    parser.add_number("--limit", "at most this many records; default %(default)s", default=100)
