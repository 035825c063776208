"""``strawberry memory``: what the assistant remembers, listed, added, searched and forgotten."""

import argparse
from typing import Final

from contracts.answers.live import ShownEntry
from contracts.answers.system import ShownPrompt
from deploy.cli.client import api, hub_of, whole_id
from deploy.cli.resources import add_declared
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, moment, note
from deploy.cli.terminal.parser import Actions

FILE_NAME: Final = "MEMORY.md"


def list_entries(options: argparse.Namespace) -> None:
    """List everything that is remembered."""
    client = hub_of(options)
    entries = client.get("/api/memory", list[ShownEntry])
    Output(options.json).rows(entries, _cells, empty="Nothing is remembered yet.")
    for problem in client.get("/api/prompt", ShownPrompt).problems:
        if FILE_NAME in problem:
            note(f"The file is broken, and this is what it said before: {problem}")


def search(options: argparse.Namespace) -> None:
    """Find entries, best match first."""
    found = hub_of(options).get(api("memory", q=" ".join(options.query)), list[ShownEntry])
    Output(options.json).rows(found, _cells, empty="Nothing was found.")


def forget(options: argparse.Namespace) -> int:
    """Forget an entry for good."""
    client, which = hub_of(options), " ".join(options.entry)
    entries = client.get("/api/memory", list[ShownEntry])
    which = whole_id(which, [each.id for each in entries])
    if not options.yes:
        wanted = which.casefold()
        found = [each for each in entries if wanted in (each.id, each.text.casefold())]
        found = found or [each for each in entries if wanted in each.text.casefold()]
        # Of none or of several, the hub says what is near.
        if len(found) == 1:
            if not is_sure(f"Forget for good: {found[0].text}?", yes=False):
                return 1
            which = found[0].id
    entry = client.delete(api("memory", which), ShownEntry)
    Output(options.json).result(entry, text=f"Forgotten: {entry.text}")
    return 0


def _cells(entry: ShownEntry) -> dict[str, object]:
    marks = ["private"] * entry.private + ["untrusted"] * entry.untrusted
    return {
        "category": f"{entry.category} ({', '.join(marks)})" if marks else entry.category,
        "text": entry.text,
        "when": moment(entry.at),
        "from": entry.by,
        "id": entry.id,
    }


def add_memory_actions(actions: Actions) -> None:
    """Declare 'strawberry memory'."""
    actions.add_parser("list", run=list_entries, hub=True)
    command = actions.add_parser("search", run=search, hub=True)
    command.takes("query", "what to look for", metavar="WORD", nargs="+")
    command = actions.add_parser("forget", run=forget, hub=True)
    command.takes("entry", "its id or the beginning of it, or a part of its text", nargs="+")
    command.add_flag("--yes", "do not ask")
    add_declared(actions, "memory")
