"""``strawberry watchers``: made, approved, shown, tried and stopped."""

import argparse
import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Final

from contracts.answers.watchers import (
    OUTCOMES,
    CheckedPredicate,
    DecisionEntry,
    MadeCall,
    ProposedWatcher,
    Report,
    TraceEntry,
    WatchedTopic,
    WatcherSummary,
    WatcherWithHistory,
)
from contracts.errors import ConfigError
from contracts.wire import Json
from deploy import limits
from deploy.cli.client import api, hub_of
from deploy.cli.live.watcher_options import add_options, fields_of, seconds_of
from deploy.cli.resources import add_declared
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, cell, moment, note, waiting
from deploy.cli.terminal.parser import Actions

_TRUTH: Final = {True: "true", False: "false", None: "not known"}
_WATCHER: Final = ("name", "the watcher")


def list_watchers(options: argparse.Namespace) -> None:
    """List the watchers and what they last decided."""
    Output(options.json).rows(
        hub_of(options).get("/api/watchers", list[WatcherSummary]),
        _cells,
        empty="There is no watcher yet. 'strawberry watchers add' makes one.",
    )


def add(options: argparse.Namespace) -> int:
    """Make a watcher.

    Makes a watcher of one sentence, as "tell me when the tank is above 95 %", or of what the options say.
    Without --predicate a model proposes one, which you approve.
    """
    body = {"name": options.name, "dry_run": options.dry_run, **fields_of(options)}
    client = hub_of(options)
    if not body.keys() & {"topics", "predicate", "schedule"}:
        sentence = options.instruction or options.name
        with waiting("Reading the sentence"):
            asked = {"sentence": sentence, "language": None}
            found = client.post("/api/watchers/from-words", asked, ProposedWatcher)
        if options.instruction:
            body = {"title": options.name, **body}
        body = {**found.watcher, **{name: each for name, each in body.items() if name != "instruction"}}
        if not (options.yes or options.json):
            note(found.sentence.replace("**", ""))
            if not agreed("Make it?", otherwise="--yes makes it; --predicate, --notify and --do change it."):
                return 1
    asks_model = "predicate" not in body and "then" not in body
    with waiting("Asking a model for a predicate" if asks_model else "Making the watcher"):
        made = client.post("/api/watchers", body, WatcherSummary)
    if made.state == "draft":
        if not options.json:
            note(_described(made))
        question = f"Approve {made.title}?"
        otherwise = f"It is a draft. 'strawberry watchers approve {made.name} --yes' approves it."
        if options.yes or (not options.json and agreed(question, otherwise=otherwise)):
            made = client.post(api("watchers", made.name, "approve"), {"digest": made.digest}, WatcherSummary)
    draft = f"{made.title} is a draft. 'strawberry watchers approve {made.name}' lets it begin."
    Output(options.json).result(made, text=draft if made.state == "draft" else _described(made))
    return 0


def edit(options: argparse.Namespace) -> None:
    """Change a watcher.

    Changes what is given; topics and calls are replaced as a whole. A watcher that makes calls is then a
    draft, until you approve it again.
    """
    changes = fields_of(options)
    if not changes:
        raise ConfigError(
            f"no change of {options.name} is given",
            hint="'strawberry watchers edit --help' lists what can be.",
        )
    _say(options, hub_of(options).send("PATCH", api("watchers", options.name), changes, WatcherSummary))


def show(options: argparse.Namespace) -> None:
    """Show a watcher and its history."""
    watcher = hub_of(options).get(api("watchers", options.name), WatcherWithHistory)
    output = Output(options.json)
    rows = watcher.history[: options.limit]
    output.result(watcher, text=_described(watcher) + "\n" * bool(rows))
    if not options.json:
        entry = partial(_entry, is_verbose=options.verbose)
        output.rows(rows, entry, empty="It has not decided anything yet.")


def trace(options: argparse.Namespace) -> None:
    """Show why a watcher did something or nothing.

    Shows its last looks at its values since the start of the hub, newest first.
    """
    looks = hub_of(options).get(api("watchers", options.name, "trace"), list[TraceEntry])
    look = partial(_look, is_verbose=options.verbose)
    Output(options.json).rows(looks, look, empty="It has not looked at anything since the hub was started.")


def approve(options: argparse.Namespace) -> int:
    """Approve a watcher, with changes, so that it begins.

    Approves the calls of a watcher, and lets it begin. Also changes one that runs.
    """
    client = hub_of(options)
    watcher = client.get(api("watchers", options.name), WatcherWithHistory)
    asked = {"predicate": options.predicate, "dry_run": options.dry_run}
    given = {name: value for name, value in asked.items() if value is not None}
    shown = watcher.model_copy(update={"truth": None, "reason": "", **given})
    if options.predicate:
        # A mistake in it is reported before the question.
        path = api("watchers", options.name, "predicate")
        checked = client.post(path, {"predicate": options.predicate}, CheckedPredicate)
        shown = shown.model_copy(update={"predicate": checked.predicate, "note": checked.note})
    if not (options.yes or options.json):
        note(_described(shown))
        if not agreed("Approve it?", otherwise="Approve it with --yes."):
            note("Nothing was changed.")
            return 1
    if options.predicate:
        given["predicate"] = checked.predicate
    approval = {**given, "digest": watcher.digest}
    _say(options, client.post(api("watchers", options.name, "approve"), approval, WatcherSummary))
    return 0


def test(options: argparse.Namespace) -> None:
    """Show when a watcher would have fired.

    Runs the predicate over recorded values. Nothing is called and no notification is sent.
    """
    body: dict[str, Json] = {"model": options.model}
    body |= {"capture": options.capture} if options.capture else {"since": options.since or "7d"}
    with waiting("Reading what was recorded"):
        report = hub_of(options).post(api("watchers", options.name, "test"), body, Report)
    Output(options.json).result(report, text="\n".join(_report(options.name, report)))


def _report(name: str, report: Report) -> Iterator[str]:
    if not report.evaluated:
        yield f"No values of the topics of {name} are recorded there."
        return
    yield f"{name} would have fired {report.fired} time{'' if report.fired == 1 else 's'}."
    for each in report.would_have_fired:
        decided = f"  → {each.decision.decision}: {each.decision.reason}" if each.decision else ""
        yield f"  {moment(each.at)}  {cell(_pairs(each.values))}{decided}"
    yield f"{report.evaluated} evaluations, {report.unknown} of them unknown. {report.reason}".rstrip()
    for gap in report.gaps:
        yield f"  nothing was recorded {_span(gap.since, gap.until)}"


def snooze(options: argparse.Namespace) -> None:
    """Keep a watcher quiet for some time."""
    body = {"seconds": seconds_of(options.duration)}
    _say(options, hub_of(options).post(api("watchers", options.name, "snooze"), body, WatcherSummary))


def run(options: argparse.Namespace) -> None:
    """Evaluate a watcher now; it may act."""
    with waiting("Evaluating"):
        entry = hub_of(options).post(api("watchers", options.name, "run"), {}, DecisionEntry)
    did = "".join(f"\n  {each}" for each in _did(entry.actions))
    Output(options.json).result(entry, text=f"{entry.decision}: {entry.reason}{did}")


def _say(options: argparse.Namespace, watcher: WatcherSummary) -> None:
    until = f" and goes on {moment(watcher.snoozed_until)}" if watcher.snoozed_until else ""
    Output(options.json).result(watcher, text=f"{watcher.title} is {watcher.state}{until}.")


def _span(since: datetime, until: datetime | None) -> str:
    if until is None:
        return f"since {moment(since)}"
    begin, end = since.astimezone(), until.astimezone()
    seconds = (end - begin).total_seconds()
    if seconds < limits.EXACT_TIME_S:
        return f"for {seconds:.0f} s at {begin:%Y-%m-%d %H:%M:%S}"
    return f"from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"


def _cells(watcher: WatcherSummary) -> dict[str, object]:
    last = watcher.last
    return {
        "name": watcher.title,
        "id": watcher.name,
        "state": f"{watcher.state} (dry run)" if watcher.dry_run else watcher.state,
        "does": watcher.sentence.replace("**", ""),
        "fired": watcher.fired,
        "last": last.decision if last else None,
        "at": moment(last.at) if last else None,
    }


def _entry(entry: DecisionEntry, *, is_verbose: bool) -> dict[str, object]:
    return {
        "at": moment(entry.at),
        "decision": entry.decision,
        "reason": entry.reason,
        "seen": _pairs(entry.seen),
        "did": _did(entry.actions, is_verbose=is_verbose),
        "tokens": entry.tokens,
    }


def _look(look: TraceEntry, *, is_verbose: bool) -> dict[str, object]:
    times = f" ({look.count} times)" if look.count > 1 else ""
    parts = [f"{each.text.replace('**', '')}: {_TRUTH[each.truth]}" for each in look.parts]
    return {
        "at": moment(look.at),
        "what": f"{look.outcome}{times}",
        "parts": parts,
        "did": _did(look.actions, is_verbose=is_verbose),
        "values": _pairs(look.values),
    }


def _did(calls: list[MadeCall], *, is_verbose: bool = False) -> list[str]:
    return [
        f"{each.path if is_verbose or not each.said else each.said.replace('**', '')}: "
        f"{each.error or OUTCOMES.get(each.outcome)}"
        for each in calls
    ]


def _pairs(values: dict[str, Json]) -> list[str]:
    return [f"{name} = {json.dumps(value, ensure_ascii=False)[:80]}" for name, value in values.items()]


def _source(source: WatchedTopic) -> str:
    return f"{source.ask} each {source.every or '5m'}" if source.ask else source.topic


def _described(watcher: WatcherSummary) -> str:
    allowed = [
        " ".join([each.path, *(f"{name}={json.dumps(rule)}" for name, rule in each.arguments.items())])
        for each in watcher.allow
    ]
    every = f"every {watcher.every_s:g} s" if watcher.every_s and not watcher.predicate else ""
    when = watcher.schedule or every or "each new value"
    truth = {True: "true now", False: "false now", None: ""}[watcher.truth]
    lines = {
        "id": watcher.name if watcher.name != watcher.title else "",
        "state": f"{watcher.state}{', dry run' if watcher.dry_run else ''}",
        "does": watcher.sentence.replace("**", ""),
        "predicate": " — ".join(filter(None, (watcher.predicate or "none", truth, watcher.reason))),
        "note": watcher.note,
        "evaluates": when,
        "topics": ", ".join(f"{name} = {_source(each)}" for name, each in watcher.topics.items()),
        "may call": "; ".join(allowed) or "nothing, it only notifies",
        "next step": moment(watcher.next_step_at) if watcher.next_step_at else "",
        "fired": str(watcher.fired),
        "model": "" if watcher.then else f"calls: {watcher.model_calls}, tokens: {watcher.tokens}",
    }
    return "\n".join([watcher.title, *(f"  {key:<12} {text}" for key, text in lines.items() if text)])


def add_watchers_actions(actions: Actions) -> None:
    """Declare 'strawberry watchers'."""
    actions.add_parser("list", run=list_watchers, hub=True)
    command = actions.add_parser("add", run=add, hub=True)
    command.takes("name", "what you call it; without topics and times, the sentence that says all")
    command.takes(
        "instruction",
        "what it should do, in your words, for a model; with --notify and --do none is asked",
        nargs="?",
    )
    add_options(command)
    command.set_defaults(title=None)
    command.add_flag("--dry-run", "decide and report, but call nothing")
    command.add_flag("--yes", "approve it without asking")
    command = actions.add_parser("edit", run=edit, hub=True, on=_WATCHER)
    command.takes("--title", "another name", metavar="TEXT")
    command.takes("--instruction", "what it should do, in your words", metavar="TEXT")
    add_options(command)
    calls = "the calls as they are written, in place of words"
    command = actions.add_parser("show", run=show, hub=True, on=_WATCHER)
    command.add_number("--limit", "entries; default %(default)s", default=10)
    command.add_flag("--verbose", calls)
    actions.add_parser("trace", run=trace, hub=True, on=_WATCHER).add_flag("--verbose", calls)
    command = actions.add_parser("approve", run=approve, hub=True, on=_WATCHER)
    command.takes("--predicate", "another condition; '' for none", metavar="EXPR")
    choice = command.add_mutually_exclusive_group()
    choice.add_flag("--dry-run", "call nothing", const=True)
    choice.add_flag("--live", "make the calls: no dry run", dest="dry_run", const=False)
    command.add_flag("--yes", "do not ask")
    command = actions.add_parser("test", run=test, hub=True, on=_WATCHER)
    choice = command.add_mutually_exclusive_group()
    choice.takes("--since", "how far back, as 7d; default 7d", metavar="TIME")
    choice.takes("--capture", "a capture: 'captures list' shows them", metavar="ID")
    command.add_flag("--model", "have the model decide each time, up to 10 times")
    actions.add_parser("run", run=run, hub=True, on=_WATCHER)
    actions.add_parser("snooze", run=snooze, hub=True, on=_WATCHER).takes("duration", "for example 30m or 8h")
    add_declared(actions, "watchers")
