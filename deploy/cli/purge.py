"""``strawberry purge``: nothing of Strawberry stays on a broker."""

import argparse
from collections.abc import Iterator
from typing import Any

from deploy.cli.client import hub_of
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, note, waiting


def purge(options: argparse.Namespace) -> int:
    """Have the running hub empty every retained topic that it or a device ever published."""
    client = hub_of(options)
    if not options.yes:
        note(
            "Every retained topic that Strawberry published is emptied, on the bus and on the home broker.\n"
            "Devices, tokens and conversations stay. Stop the spokes before, or they publish again at once;\n"
            "the one of 'strawberry up' is not there with 'strawberry up --no-spoke'."
        )
        if not agreed("Empty them?"):
            note("Nothing was changed.")
            return 1
    with waiting("emptying topics"):
        answer: dict[str, Any] = client.request("POST", "/api/purge", {})
    Output(options.json).result(answer, text="\n".join(_report(answer)))
    return 1 if answer["left"] else 0


def _report(answer: dict[str, Any]) -> Iterator[str]:
    yield f"{answer['emptied']} topics were emptied."
    if answer["left"]:
        yield f"Not emptied: {', '.join(answer['left'])}"
    if answer["connected"]:
        yield f"Still there, and publishing again: {', '.join(answer['connected'])}"
    yield "The hub publishes again when it is started anew."
