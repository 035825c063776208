"""``strawberry purge``: remove everything of Strawberry from the brokers."""

import argparse
from collections.abc import Iterator
from typing import Any

from deploy.cli.client import hub_of
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, note, waiting


def purge(options: argparse.Namespace) -> int:
    """Make the running hub empty every retained topic that it or a device ever published."""
    client = hub_of(options)
    if not options.yes:
        note(
            "This removes every retained message of Strawberry from its broker and from the home broker.\n"
            "Devices, tokens and conversations stay. Stop the spokes first: a running one publishes again.\n"
            "'strawberry up --no-spoke' runs without the local one."
        )
        if not agreed("Remove them?", otherwise="Nothing was changed. Add --yes."):
            note("Nothing was changed.")
            return 1
    with waiting("removing messages"):
        answer: dict[str, Any] = client.request("POST", "/api/purge", {})
    Output(options.json).result(answer, text="\n".join(_report(answer)))
    return 1 if answer["left"] else 0


def _report(answer: dict[str, Any]) -> Iterator[str]:
    yield f"{answer['emptied']} topics are empty now."
    if answer["left"]:
        yield f"Not emptied: {', '.join(answer['left'])}"
    if answer["connected"]:
        yield f"Still running, and publishing again: {', '.join(answer['connected'])}"
    yield "The hub publishes again after its next start."
