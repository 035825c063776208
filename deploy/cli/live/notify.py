"""``strawberry notify``: notifications outside of the web UI."""

import argparse

from contracts.answers.live import SentTest
from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output, columns, waiting
from deploy.cli.terminal.parser import Parser


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


def register_notify(parser: Parser) -> None:
    """Declare 'strawberry notify'."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    actions.add_parser("test", run=test, hub=True)
