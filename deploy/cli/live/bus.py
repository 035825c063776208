"""``strawberry bus``: the values of topics, as a table or as they come."""

import argparse
import json
from typing import Any

from pydantic import TypeAdapter

from contracts.answers.live import LostValues, NewGap, ShownGap, ShownSample, ShownSamples
from contracts.answers.skills import CallResult
from contracts.text import shortened
from contracts.wire import rfc3339
from deploy import limits
from deploy.cli.client import NeedsConfirmation, api, hub_of
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, moment, note
from deploy.cli.terminal.parser import Parser
from deploy.logs.terminal import visible


def latest(options: argparse.Namespace) -> None:
    """Show the last value of a topic, or of all that a filter matches.

    Shows the last value of each topic, or of all that a filter with + and # matches. With --json and
    --follow, one JSON object per line.
    """
    follow = "true" if options.follow else None
    path = api("bus", "latest", topic=options.topic, link=options.link, follow=follow)
    if not options.follow:
        _print(options, path, empty="No value of this topic is known.")
        return
    told: TypeAdapter[ShownSample | NewGap | LostValues] = TypeAdapter(ShownSample | NewGap | LostValues)
    for item in hub_of(options).events(path, {}, told):
        if options.json:
            Output(as_json=True).result(item)
        elif isinstance(item, NewGap):
            note(_gap(item.gap))
        elif isinstance(item, LostValues):
            note(f"{item.lost} values came too fast and are not shown.")
        else:
            print(visible(f"{_time(item)}  {item.topic}  {_value(item)}"), flush=True)


def history(options: argparse.Namespace) -> None:
    """Show the recent values of a topic.

    Shows the recent values of a topic, oldest first. They are kept from the first time that it is
    watched, recorded or asked for.
    """
    names = ("topic", "link", "since", "limit")
    path = api("bus", "history", **{name: getattr(options, name) for name in names})
    _print(options, path, empty="No value of this time is known.")


def publish(options: argparse.Namespace) -> int:
    """Publish on a topic.

    Publishes on the home broker, after a confirmation unless [home_broker] publish has the topic; on the
    bus only on users/<your id>/events/<name>.
    """
    body = {
        "topic": options.topic,
        "payload": _payload(options),
        "link": options.link,
        "retain": options.retain,
        "qos": options.qos,
    }
    client = hub_of(options)
    try:
        answer = client.post("/api/bus/publish", body, CallResult)
    except NeedsConfirmation as wanted:
        question = f"Publish {options.payload} on {options.topic}? {wanted.message}."
        if not agreed(question, otherwise="Nothing was published. Run it in a terminal."):
            note("Not confirmed; nothing was published.")
            return 1
        body["confirmation"] = wanted.confirmation
        answer = client.post("/api/bus/publish", body, CallResult)
    Output(options.json).result(answer.result)
    return 0


def _payload(options: argparse.Namespace) -> Any:
    """Return the payload; that of an event of the bus is a value, not a text."""
    if options.link == "bus":
        try:
            return json.loads(options.payload)
        except ValueError:
            pass
    return options.payload


def _print(options: argparse.Namespace, path: str, *, empty: str) -> None:
    answer = hub_of(options).get(path, ShownSamples)
    Output(options.json).rows(
        answer.samples,
        lambda sample: {"topic": sample.topic, "value": _value(sample), "at": _time(sample)},
        empty=empty,
        answer=answer,
    )
    for gap in () if options.json else answer.gaps:
        note(_gap(gap))


def _value(sample: ShownSample) -> str:
    value = sample.value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, limits.MAX_VALUE_SHOWN)


def _time(sample: ShownSample) -> str:
    # A retained message may be older than its arrival.
    return f"{moment(sample.at)}, or earlier" if sample.retained else moment(sample.at)


def _gap(gap: ShownGap) -> str:
    if gap.until is None:
        return f"Nothing is heard since {rfc3339(gap.since)}: there is no connection to the broker."
    return f"Nothing was heard from {rfc3339(gap.since)} to {rfc3339(gap.until)}."


def _add_topic(parser: Parser) -> None:
    parser.takes("topic", "topic")
    parser.takes("--link", "bus, home or home_assistant; default %(default)s", default="bus")


def register_bus(parser: Parser) -> None:
    """Declare 'strawberry bus'."""
    parser.description = (
        "Reads and publishes MQTT topics through the hub: on Strawberry's own bus, or with --link home on "
        "the broker of [home_broker]."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    command = actions.add_parser("latest", run=latest, hub=True)
    _add_topic(command)
    command.add_flag("--follow", "go on with new values until Ctrl-C")
    command = actions.add_parser("history", run=history, hub=True)
    _add_topic(command)
    command.takes(
        "--since", "10m, 2h, 1d, or a date and time; default %(default)s", metavar="TIME", default="1h"
    )
    command.add_number("--limit", "at most so many, the newest; default %(default)s", default=100)
    command = actions.add_parser("publish", run=publish, hub=True)
    _add_topic(command)
    command.takes("payload", "text or JSON, sent as it is")
    command.add_flag("--retain", "have the broker keep it for later subscribers")
    command.takes("--qos", "1 waits until the broker has it", type=int, metavar="N", default=0)
