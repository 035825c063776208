"""``strawberry watchers``: made, approved, shown, tried and stopped."""

import argparse
import json
import re
import shlex
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from contracts.errors import ConfigError
from deploy import limits
from deploy.cli.client import HubClient, hub_of
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, note, waiting
from deploy.cli.terminal.tables import cell, moment

_COLUMNS: Final = ("name", "state", "predicate", "fired", "last", "at")
_NAMED: Final = re.compile(r"([A-Za-z_]\w*)=(.+)")
_DONE: Final = {"result": "done", "dry_run": "dry run", "unknown": "perhaps done"}
"""How an action that has no error is shown."""
_RANGE: Final = re.compile(r"(-?[\d.]+)\.\.(-?[\d.]+)")


def list_watchers(options: argparse.Namespace) -> None:
    """Print the watchers."""
    Output(options.json).rows(
        hub_of(options).request("GET", "/api/watchers"),
        _COLUMNS,
        empty="There is no watcher yet. 'strawberry watchers add' makes one.",
        shown=_row,
    )


def add(options: argparse.Namespace) -> int:
    """Make a watcher, show its predicate, and approve it if the person agrees."""
    body = {"name": options.name, "dry_run": options.dry_run, **_asked(options)}
    if "topics" not in body:
        raise ConfigError(
            "a watcher needs a topic to follow",
            hint="Add --topic NAME=TOPIC, or --entity NAME=ID of Home Assistant; --help lists more.",
        )
    client = hub_of(options)
    with waiting("Asking a model for a predicate"):
        made: dict[str, Any] = client.request("POST", "/api/watchers", body)
    if made["state"] == "draft":
        if not options.json:
            note(_described(made))
        question = f"Approve {made['name']}?"
        otherwise = f"It is a draft. 'strawberry watchers approve {made['name']} --yes' approves it."
        if options.yes or (not options.json and agreed(question, otherwise=otherwise)):
            made = _post(client, made["name"], "approve", {"digest": made["digest"]})
    if options.json:
        Output(as_json=True).result(made)
    elif made["state"] == "draft":
        print(f"{made['name']} is a draft. 'strawberry watchers approve {made['name']}' lets it begin.")
    else:
        print(_described(made))
    return 0


def edit(options: argparse.Namespace) -> None:
    """Change a watcher."""
    changes = _asked(options)
    if not changes:
        raise ConfigError(
            f"no change of {options.name} is given",
            hint="'strawberry watchers edit --help' lists what can be.",
        )
    _say(options, hub_of(options).request("PATCH", _path(options.name), changes))


def show(options: argparse.Namespace) -> None:
    """Print a watcher and its history."""
    watcher = hub_of(options).request("GET", _path(options.name))
    if options.json:
        Output(as_json=True).result(watcher)
        return
    print(_described(watcher))
    rows = [{**entry, "at": moment(entry["at"])} for entry in watcher["history"][: options.limit]]
    if rows:
        print()
    columns = ("at", "decision", "reason", "seen", "did", "tokens")
    Output(as_json=False).rows(rows, columns, empty="It has not decided anything yet.", shown=_entry)


def approve(options: argparse.Namespace) -> int:
    """Approve a watcher."""
    client = hub_of(options)
    watcher = client.request("GET", _path(options.name))
    change = {
        name: value for name in ("predicate", "dry_run") if (value := getattr(options, name)) is not None
    }
    if options.predicate:
        # A mistake in it is reported before the question.
        change |= _post(client, options.name, "predicate", {"predicate": options.predicate})
    if not (options.yes or options.json):
        note(_described({**watcher, "truth": None, "reason": "", **change}))
        if not agreed("Approve it?", otherwise="Approve it with --yes."):
            note("Nothing was changed.")
            return 1
    given = {name: value for name, value in change.items() if name in ("predicate", "dry_run")}
    _say(options, _post(client, options.name, "approve", {**given, "digest": watcher["digest"]}))
    return 0


def test(options: argparse.Namespace) -> None:
    """Print when a watcher would have fired."""
    body: dict[str, Any] = {"model": options.model}
    body |= {"capture": options.capture} if options.capture else {"since": options.since or "7d"}
    with waiting("Reading what was recorded"):
        report = _post(hub_of(options), options.name, "test", body)
    if options.json:
        Output(as_json=True).result(report)
        return
    if not report["evaluated"]:
        print(f"No values of the topics of {options.name} are recorded there.")
        return
    count = report["fired"]
    print(f"{options.name} would have fired {count} time{'' if count == 1 else 's'}.")
    for each in report["would_have_fired"]:
        decision = each.get("decision")
        decided = f"  → {decision['decision']}: {decision['reason']}" if decision else ""
        print(f"  {moment(each['at'])}  {cell(_pairs(each['values']))}{decided}")
    print(
        f"{report['evaluated']} evaluations, {report['unknown']} of them unknown. {report['reason']}".rstrip()
    )
    for gap in report["gaps"]:
        print(f"  nothing was recorded {_span(gap['since'], gap['until'])}")


def snooze(options: argparse.Namespace) -> None:
    """Keep a watcher quiet for some time."""
    body = {"seconds": _seconds(options.duration)}
    _say(options, _post(hub_of(options), options.name, "snooze", body))


def run(options: argparse.Namespace) -> None:
    """Evaluate a watcher now."""
    with waiting("The model decides"):
        entry = _post(hub_of(options), options.name, "run")
    did = "".join(f"\n  {each}" for each in _entry(entry)["did"])
    Output(options.json).result(entry, text=f"{entry['decision']}: {entry['reason']}{did}")


def _path(name: str) -> str:
    return f"/api/watchers/{quote(name, safe='')}"


def _post(client: HubClient, name: str, action: str, body: Any = None) -> Any:
    return client.request("POST", f"{_path(name)}/{action}", {} if body is None else body)


def _say(options: argparse.Namespace, watcher: dict[str, Any]) -> None:
    until = f" and goes on {moment(watcher['snoozed_until'])}" if watcher["snoozed_until"] else ""
    Output(options.json).result(watcher, text=f"{watcher['name']} is {watcher['state']}{until}.")


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a watcher that are given."""
    asked = {
        "instruction": options.instruction,
        "topics": _topics(options) or None,
        "allow": [_allowed(text) for text in options.allow] or None,
        "every_s": _seconds(options.every) if options.every else None,
        "on_change": options.on_change or None,
        "schedule": options.schedule,
        "missed": options.missed,
        "predicate": options.predicate,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _topics(options: argparse.Namespace) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    given = {"bus": options.topics, "home": options.home_topics, "home_assistant": options.entities}
    for link, texts in given.items():
        for text in texts:
            match = _NAMED.fullmatch(text)
            topic = match[2] if match else text
            if link == "home_assistant":
                topic = topic.replace(".", "/", 1)
            name = match[1] if match else re.sub(r"\W+", "_", topic.rpartition("/")[2])
            if name in topics:
                raise ConfigError(f"two topics are named {name}", hint="Name one: --topic NAME=TOPIC.")
            topics[name] = {"topic": topic, "link": link}
    for text in options.values:
        match = _NAMED.fullmatch(text)
        if match is None or match[1] not in topics:
            raise ConfigError(
                f"--value {text} names no topic", hint=f"Write NAME=PATH; names: {', '.join(topics)}."
            )
        topics[match[1]]["value"] = match[2]
    return topics


def _allowed(text: str) -> dict[str, Any]:
    try:
        path, *pairs = shlex.split(text)
    except ValueError:
        path, pairs = "", []
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            path = ""
        arguments[name] = _rule(value)
    if not path:
        raise ConfigError(
            f"--allow {text!r} is not a call", hint="Write 'devices.nas.CameraSkill.stop node=camera'."
        )
    return {"path": path, "arguments": arguments}


def _rule(text: str) -> Any:
    if match := _RANGE.fullmatch(text):
        return {"minimum": _value(match[1]), "maximum": _value(match[2])}
    if "|" in text:
        return {"enum": [_value(each) for each in text.split("|")]}
    return _value(text)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _seconds(text: str) -> float:
    from agent_core.times import parse_duration

    return parse_duration(text)


def _span(since: str, until: str | None) -> str:
    if until is None:
        return f"since {moment(since)}"
    begin, end = (datetime.fromisoformat(each).astimezone() for each in (since, until))
    seconds = (end - begin).total_seconds()
    if seconds < limits.EXACT_TIME_S:
        return f"for {seconds:.0f} s at {begin:%Y-%m-%d %H:%M:%S}"
    return f"from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"


def _row(watcher: dict[str, Any]) -> dict[str, Any]:
    last = watcher["last"] or {}
    return {
        **watcher,
        "state": f"{watcher['state']} (dry run)" if watcher["dry_run"] else watcher["state"],
        "predicate": watcher["predicate"] or watcher["note"],
        "last": last.get("decision"),
        "at": moment(last.get("at")),
    }


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    did = [f"{each['path']}: {each.get('error') or _DONE.get(each['outcome'])}" for each in entry["actions"]]
    return {**entry, "seen": _pairs(entry["seen"]), "did": did}


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(value, ensure_ascii=False)[:80]}" for name, value in values.items()]


def _described(watcher: dict[str, Any]) -> str:
    allowed = [
        " ".join([each["path"], *(f"{name}={json.dumps(rule)}" for name, rule in each["arguments"].items())])
        for each in watcher["allow"]
    ]
    every = f"every {watcher['every_s']:g} s" if watcher["every_s"] and not watcher["predicate"] else ""
    when = watcher["schedule"] or every or "each new value"
    truth = {True: "true now", False: "false now", None: ""}[watcher["truth"]]
    lines = {
        "state": f"{watcher['state']}{', dry run' if watcher['dry_run'] else ''}",
        "instruction": watcher["instruction"],
        "predicate": " — ".join(filter(None, (watcher["predicate"] or "none", truth, watcher["reason"]))),
        "note": watcher["note"],
        "evaluates": when,
        "topics": ", ".join(f"{name} = {each['topic']}" for name, each in watcher["topics"].items()),
        "may call": "; ".join(allowed) or "nothing, it only notifies",
        "fired": str(watcher["fired"]),
        "model": f"calls: {watcher['model_calls']}, tokens: {watcher['tokens']}",
    }
    return "\n".join([watcher["name"], *(f"  {key:<12} {text}" for key, text in lines.items() if text)])
