"""``strawberry bus``: the values of topics, as a table or as they come."""

import argparse
import json
from typing import Any, Final
from urllib.parse import urlencode

from contracts.text import shortened
from deploy import limits
from deploy.cli.client import NeedsConfirmation, hub_of
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.tables import cell, moment
from deploy.logs.terminal import visible

_COLUMNS: Final = ("topic", "value", "at")


def latest(options: argparse.Namespace) -> None:
    """Print the last value of each topic and, with ``--follow``, each new one until Ctrl-C."""
    query = {"topic": options.topic, "link": options.link}
    if not options.follow:
        _print(options, f"/api/bus/latest?{urlencode(query)}", empty="No value of this topic is known.")
        return
    path = f"/api/bus/latest?{urlencode({**query, 'follow': 'true'})}"
    for item in hub_of(options).events(path, {}):
        if options.json:
            print(json.dumps(item), flush=True)
        elif "gap" in item:
            note(_gap(item["gap"]))
        elif "lost" in item:
            note(f"{item['lost']} values came too fast and are not shown.")
        else:
            shown = _shown(item)
            print(visible(f"{shown['at']}  {shown['topic']}  {shown['value']}"), flush=True)


def history(options: argparse.Namespace) -> None:
    """Print the recent values of a topic, oldest first."""
    names = ("topic", "link", "since", "limit")
    query = {name: getattr(options, name) for name in names}
    _print(options, f"/api/bus/history?{urlencode(query)}", empty="No value of this time is known.")


def publish(options: argparse.Namespace) -> int:
    """Publish a message, asking first where that needs a confirmation."""
    body = {
        "topic": options.topic,
        "payload": _payload(options),
        "link": options.link,
        "retain": options.retain,
        "qos": options.qos,
    }
    client = hub_of(options)
    try:
        answer = client.request("POST", "/api/bus/publish", body)
    except NeedsConfirmation as wanted:
        question = f"Publish {options.payload} on {options.topic}? {wanted.message}."
        if not agreed(question, otherwise="Nothing was published. Run it in a terminal."):
            note("Not confirmed; nothing was published.")
            return 1
        body["confirmation"] = wanted.confirmation
        answer = client.request("POST", "/api/bus/publish", body)
    Output(options.json).result(answer["result"])
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
    answer = hub_of(options).request("GET", path)
    if options.json:
        Output(as_json=True).result(answer)
        return
    Output(as_json=False).rows(answer["samples"], _COLUMNS, empty=empty, shown=_shown)
    for gap in answer["gaps"]:
        note(_gap(gap))


def _shown(sample: dict[str, Any]) -> dict[str, Any]:
    value = sample["value"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    at = moment(sample["at"])
    return {
        "topic": sample["topic"],
        "value": shortened(text, limits.MAX_VALUE_SHOWN),
        # A retained message may be older than its arrival.
        "at": f"{at}, or earlier" if sample["retained"] else at,
    }


def _gap(gap: dict[str, Any]) -> str:
    if gap["until"] is None:
        return f"Nothing is heard since {cell(gap['since'])}: there is no connection to the broker."
    return f"Nothing was heard from {cell(gap['since'])} to {cell(gap['until'])}."
