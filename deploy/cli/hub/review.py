"""``strawberry devices review``: what devices declare and the owner has not approved."""

import argparse
import difflib
import sys
from collections.abc import Iterator
from itertools import islice

from contracts.answers.devices import Item, ReviewAnswer
from deploy.cli.client import HubClient, api, hub_of
from deploy.cli.terminal.asking import answer_to
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.tables import cell


def review(options: argparse.Namespace) -> None:
    """Approve what skills of devices declare.

    Shows what waits for your approval: looser flags, sentences with free text, serving the whole home,
    documentation for the assistant. In a terminal it asks for each device.
    """
    client, output = hub_of(options), Output(options.json)
    if options.device is None:
        found = client.get("/api/devices/review", list[ReviewAnswer])
    else:
        found = [client.get(api("devices", options.device, "review"), ReviewAnswer)]
    is_asking = sys.stdin.isatty() and not options.json
    results = []
    for each in filter(lambda each: each.items, found):
        if not options.json:
            output.result(None, text=_shown(each))
        approve = options.decision
        if approve is None and is_asking:
            approve = answer_to("Approve all of it? 'n' denies it for good, Enter leaves it for later.")
        results.append(each if approve is None else _decide(client, each, approve=approve))
    if options.json or not results:
        output.result(results, text="Nothing waits for approval.")


def _decide(client: HubClient, each: ReviewAnswer, *, approve: bool) -> ReviewAnswer:
    # The digest makes sure that nothing is decided that was not shown.
    body = {"digest": each.digest, "approve": approve}
    decided = client.post(api("devices", each.id, "review"), body, ReviewAnswer)
    note(f"{each.name}: {len(each.items)} {'approved' if approve else 'denied'}.")
    return decided


def _shown(device: ReviewAnswer) -> str:
    return "\n".join([f"{device.name} ({device.key})", *_lines(device.items), ""])


def _lines(items: list[Item]) -> Iterator[str]:
    for item in items:
        name = ".".join(filter(None, (item.skill, item.method)))
        denied = " (denied)" if item.denied else ""
        match item.kind:
            case "flags":
                yield f"  {name}: flags {item.before} → {item.after}{denied}"
            case "sentence":
                yield f"  {name}: hears on every device, with free text{denied}"
                yield f"    + {cell(item.after)}"
            case "uses":
                yield f"  {name}: calls {item.after}{denied}"
            case "provider":
                yield f"  {name}: {item.after} beside other devices{denied}"
            case _:
                yield f"  {name}: documentation that the assistant reads{denied}"
                yield from _changes(item.before, item.after)


def _changes(before: str, after: str) -> Iterator[str]:
    # All of it, however long: what is not shown could be approved unseen.
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    for line in islice(lines, 2, None):
        if not line.startswith("@"):
            yield f"    {line[0]} {line[1:]}"
