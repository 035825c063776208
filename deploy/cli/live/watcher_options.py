"""Options that describe a watcher, and the fields of a request that they make."""

import argparse
import json
import re
import shlex
from collections.abc import Sequence
from typing import Final

from contracts.errors import ConfigError
from contracts.wire import Json
from deploy.cli.terminal.parser import Parser

_NAMED: Final = re.compile(r"([A-Za-z_]\w*)=(.+)")
_RANGE: Final = re.compile(r"(-?[\d.]+)\.\.(-?[\d.]+)")


def add_options(parser: Parser) -> None:
    parser.add_list(
        "--topic",
        "a topic of the bus, or a name that 'strawberry world' prints, and its name in the predicate; "
        "default: its last part",
        metavar="[NAME=]TOPIC",
        dest="topics",
    )
    parser.add_list("--home-topic", "a topic of the home broker", metavar="[NAME=]TOPIC", dest="home_topics")
    parser.add_list(
        "--entity", "an entity of Home Assistant, as binary_sensor.door", metavar="[NAME=]ID", dest="entities"
    )
    parser.add_list(
        "--ask",
        "a read-only method that is asked for the value, each 5m or as --every says: "
        "'devices.yard.TankSkill.level'",
        metavar="[NAME=]CALL",
        dest="asks",
    )
    parser.add_list(
        "--value",
        "where the value is in the payload, as temp=state.temperature",
        metavar="NAME=PATH",
        dest="values",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.takes(
        "--every",
        "evaluate so often, as 30s, also while nothing is heard; with a predicate at most so often; "
        "with --ask, ask so often",
        metavar="DURATION",
    )
    choice.add_flag("--on-change", "evaluate each new value")
    choice.takes("--schedule", "'every weekday at 7', 'sunset', or cron", metavar="WHEN")
    parser.takes(
        "--missed",
        "tell or run: what happens to scheduled times that come while the hub is stopped; of a new "
        "watcher tell",
    )
    parser.takes("--predicate", "condition, as 'disk > 95'", metavar="EXPR")
    # One list, which keeps their order among each other.
    for kind, metavar, about in (
        ("notify", "TEXT", "what it does without a model, in this order: a text, as 'Tank at {level} %%'"),
        ("do", "CALL", "likewise a call: 'devices.yard.TankSkill.pump speed=30'"),
        ("after", "DURATION", "before what it delays, as 20m"),
        ("if-still", "DURATION", "the same; dropped when the condition ends before"),
    ):
        parser.add_list(
            f"--{kind}", about, metavar=metavar, dest="then", type=lambda text, kind=kind: (kind, text)
        )
    parser.add_list(
        "--allow",
        "a call that a model may choose: 'devices.nas.CameraSkill.stop node=camera'; a range is "
        "level=0..50, a choice mode=low|high",
        metavar="CALL",
    )


def fields_of(options: argparse.Namespace) -> dict[str, Json]:
    """Return the fields of a watcher that are given."""
    asked = {
        "title": options.title,
        "instruction": options.instruction,
        "topics": _topics(options) or None,
        "allow": [_allowed(text) for text in options.allow] or None,
        "then": _steps(options.then) or None,
        "every_s": seconds_of(options.every) if options.every and not options.asks else None,
        "on_change": options.on_change or None,
        "schedule": options.schedule,
        "missed": options.missed,
        "predicate": options.predicate,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _topics(options: argparse.Namespace) -> dict[str, Json]:
    topics: dict[str, Json] = {}
    given = {"bus": options.topics, "home": options.home_topics, "home_assistant": options.entities}
    for link, texts in given.items():
        for text in texts:
            match = _NAMED.fullmatch(text)
            topic = match[2] if match else text
            if link == "home_assistant":
                topic = topic.replace(".", "/", 1)
            name = match[1] if match else re.sub(r"\W+", "_", re.split(r"[/.\s]", topic)[-1])
            if name in topics:
                raise ConfigError(f"two topics are named {name}", hint="Name one: --topic NAME=TOPIC.")
            topics[name] = {"topic": topic, "link": link}
    for text in options.asks:
        match = _NAMED.fullmatch(text)
        call = _allowed(match[2] if match else text, option="--ask")
        name = match[1] if match else call["path"].rpartition(".")[2]
        topics[name] = {"ask": call["path"], "arguments": call["arguments"], "every": options.every}
    for text in options.values:
        match = _NAMED.fullmatch(text)
        if match is None or match[1] not in topics:
            raise ConfigError(
                f"--value {text} names no topic", hint=f"Write NAME=PATH; names: {', '.join(topics)}."
            )
        topics[match[1]]["value"] = match[2]
    return topics


def _steps(given: Sequence[tuple[str, str]]) -> list[Json]:
    """Return the steps of the options, which stand in their order: a delay before what it delays."""
    steps: list[Json] = []
    delay: dict[str, Json] = {}
    for kind, text in given:
        if kind in ("after", "if-still"):
            delay = {"after": text, **({"if_still": True} if kind == "if-still" else {})}
            continue
        call = _allowed(text, option="--do") if kind == "do" else {}
        step: dict[str, Json] = (
            {"call": call["path"], "arguments": call["arguments"]} if call else {"notify": text}
        )
        steps.append({**step, **delay})
        delay = {}
    if delay:
        raise ConfigError(
            "a delay stands before what it delays",
            hint="Write --after 20m --do 'devices.yard.TankSkill.stop', or --if-still 20m --notify TEXT.",
        )
    return steps


def _allowed(text: str, *, option: str = "--allow") -> dict[str, Json]:
    try:
        path, *pairs = shlex.split(text)
    except ValueError:
        path, pairs = "", []
    arguments: dict[str, Json] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            path = ""
        arguments[name] = _rule(value)
    if not path:
        raise ConfigError(
            f"{option} {text!r} is not a call", hint="Write 'devices.nas.CameraSkill.stop node=camera'."
        )
    return {"path": path, "arguments": arguments}


def _rule(text: str) -> Json:
    if match := _RANGE.fullmatch(text):
        return {"minimum": _value(match[1]), "maximum": _value(match[2])}
    if "|" in text:
        return {"enum": [_value(each) for each in text.split("|")]}
    return _value(text)


def _value(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def seconds_of(text: str) -> float:
    from agent_core.times import parse_duration

    return parse_duration(text)
