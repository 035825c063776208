"""``strawberry notify``: notifications outside of the web UI."""

import argparse
from typing import Final

from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output, waiting

_COLUMNS: Final = ("name", "sent", "problem")


def test(options: argparse.Namespace) -> int:
    """Send yourself a notification; the exit code is 1 where a service does not take it."""
    client = hub_of(options)
    with waiting("sending"):
        found = client.request("POST", "/api/notifications/test")
    Output(options.json).rows(found, _COLUMNS, empty="")
    return 0 if all(each["sent"] for each in found) else 1
