"""``strawberry events`` and ``notify``: what happened, as lines, and a notification to try."""

import argparse
import time
from typing import Any

from contracts.answers.live import Event, SentTest
from contracts.answers.watchers import OUTCOMES
from contracts.errors import Forbidden, StrawberryError, Unauthorized
from deploy import limits
from deploy.cli.client import api, hub_of
from deploy.cli.terminal.output import Output, cell, columns, moment, note, waiting
from deploy.cli.terminal.parser import Actions, Parser
from deploy.logs.terminal import visible


def events(options: argparse.Namespace) -> None:
    """Show what happened: watchers, captures, devices, notifications.

    Shows the latest events, oldest first. With --json, one event per line.
    """
    client = hub_of(options)
    resumed: dict[str, str] = {}
    path = api("events", last=options.last, follow=str(options.follow).lower(), kind=options.kind)
    while True:
        try:
            for event in client.events(path, resumed, Event[dict[str, Any]]):
                resumed = {"Last-Event-ID": str(event.id)}
                if options.json:
                    Output(as_json=True).result(event)
                else:
                    print(visible(_line(event)), flush=True)
        except (Unauthorized, Forbidden):
            raise
        except StrawberryError as error:
            if not (options.follow and resumed):
                raise
            note(f"{error.message}; trying again")
        if not options.follow:
            if not resumed:
                note("Nothing has happened yet.")
            return
        time.sleep(limits.EVENTS_RETRY_S)


def _line(event: Event[dict[str, Any]]) -> str:
    data = event.data
    is_online = data.get("online")
    came = None if is_online is None else "online" if is_online else "offline"
    what = data.get("event") or data.get("decision") or data.get("state") or came
    why = data.get("text") or data.get("reason") or data.get("problem")
    did = [
        f"{each['path']}: {each.get('error') or OUTCOMES.get(each['outcome'])}"
        for each in data.get("actions") or ()
    ]
    due = moment(data["due"]) if data.get("due") else ""
    more = " · ".join(
        filter(None, (": ".join(filter(None, (what, why))), due, *did, *data.get("watchers", ())))
    )
    return f"{moment(event.at)}  {event.kind}  {data.get('title') or event.subject}  {cell(more)}".rstrip()


def register_events(parser: Parser) -> None:
    """Declare 'strawberry events'."""
    parser.runs(events, hub=True)
    parser.add_flag("--follow", "go on with new events until Ctrl-C")
    parser.takes("--kind", "only events of this kind, such as watcher or presence")
    parser.add_number("--last", "how many of the latest; default %(default)s", default=20)


def test(options: argparse.Namespace) -> int:
    """Send yourself a notification.

    Sends a notification to each address that [notifications] in strawberry.toml has for you. Ends with
    code 1 where a service does not take it.
    """
    client = hub_of(options)
    with waiting("sending"):
        found = client.post("/api/notifications/test", {}, list[SentTest])
    Output(options.json).rows(found, columns("name", "sent", "problem"), empty="")
    return 0 if all(each.sent for each in found) else 1


def add_notify_actions(actions: Actions) -> None:
    """Declare 'strawberry notify'."""
    actions.add_parser("test", run=test, hub=True)
