"""``strawberry world``, ``memory`` and ``prompt``: what there is, what is remembered, what a model reads."""

import argparse
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from contracts.answers.live import ShownEntry, ShownThing, ShownWorld
from contracts.answers.system import PromptSection, ShownPrompt
from contracts.errors import ConfigError
from deploy.cli.client import api, hub_of, whole_id
from deploy.cli.resources import add_declared
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, cell, moment, note
from deploy.cli.terminal.parser import Actions, Parser
from deploy.directory import Home

_MEMORY_FILE: Final = "MEMORY.md"


def world(options: argparse.Namespace) -> None:
    """Show what there is in the home, with its state.

    Lists devices, skills, areas and entities, with state and age.
    """
    query = {name: getattr(options, name) for name in ("area", "kind", "name", "limit")}
    found = hub_of(options).get(api("world", **query), ShownWorld)
    Output(options.json).rows(found.things, _cells, empty="Nothing matches.", answer=found)
    if options.json:
        return
    if found.more:
        note(f"… and {found.more} more. --area, --kind and --name find fewer, --limit shows more.")
    if found.left_out:
        note(f"{found.left_out} more entities of the home broker are not known: there are too many.")


def _cells(thing: ShownThing) -> dict[str, object]:
    state = cell(thing.state) if thing.state is not None else ""
    since = None if thing.age_s is None else datetime.now(UTC) - timedelta(seconds=thing.age_s)
    return {
        "kind": thing.kind,
        "name": thing.name,
        "area": thing.area,
        "device": thing.device,
        "state": f"{state} {thing.unit or ''}".strip(),
        "since": moment(since),
    }


def show_prompt(options: argparse.Namespace) -> None:
    """Show the prompt in sections, each with its tokens.

    Shows the prompt of the next message, in sections, with an estimate of their tokens.
    """
    path = api("prompt", message=options.message or "", agent=options.agent)
    prompt = hub_of(options).get(path, ShownPrompt)
    Output(options.json).result(prompt, text=_prompt_text(prompt))
    for problem in prompt.problems:
        note(f"{problem}; the last good content stays in force")


def _prompt_text(shown: ShownPrompt) -> str:
    lines = [f"## Stable: about {shown.tokens.stable} tokens", *_sections(shown.stable)]
    lines += [f"# tool {tool.name}: {tool.tokens} tokens" for tool in shown.tools]
    lines += ["", f"## Changing: about {shown.tokens.changing} tokens", *_sections(shown.changing)]
    return "\n".join(lines)


def _sections(sections: list[PromptSection]) -> list[str]:
    return [f"--- {each.name}: {each.tokens} tokens\n{each.text.rstrip()}\n" for each in sections]


def edit_soul(options: argparse.Namespace) -> int:
    """Edit SOUL.md: what the assistant is like.

    Opens SOUL.md of this machine's hub in $VISUAL or $EDITOR; a new one has an example.
    """
    from hub_agent.prompt.soul import TEMPLATE, open_soul
    from identity.files import write_private

    home = Home.find()
    if not home.has_hub:
        raise ConfigError("no hub was started on this machine", hint="Run this on the machine of the hub.")
    soul = open_soul(home.hub)
    if not soul.path.exists():
        write_private(soul.path, TEMPLATE.encode())
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if editor and sys.stdin.isatty():
        subprocess.run([*shlex.split(editor), str(soul.path)], check=False)
    problem = soul.problem
    result = {"path": str(soul.path), "problem": problem.message if problem is not None else None}
    Output(options.json).result(result, text=str(soul.path))
    if problem is not None:
        note(problem.message)
        return 1
    return 0


def register_world(parser: Parser) -> None:
    """Declare 'strawberry world'."""
    parser.runs(world, hub=True)
    parser.takes("--area", "only what is in this area or on this floor", metavar="NAME")
    parser.takes(
        "--kind", "device, skill, node, area, state or a kind of entity such as light; entity for all"
    )
    parser.takes("--name", "only what is called so, or has these words in its name")
    parser.add_number("--limit", "at most so many; default %(default)s", default=200)


def add_prompt_actions(actions: Actions) -> None:
    """Declare 'strawberry prompt'."""
    command = actions.add_parser("show", run=show_prompt, hub=True)
    command.takes("--agent", "of this agent; default: assistant", metavar="NAME")
    command.takes("--message", "the message it is for", metavar="TEXT")
    actions.add_parser("edit", run=edit_soul)


def list_entries(options: argparse.Namespace) -> None:
    """List everything that is remembered."""
    client = hub_of(options)
    entries = client.get("/api/memory", list[ShownEntry])
    Output(options.json).rows(entries, _remembered, empty="Nothing is remembered yet.")
    for problem in client.get("/api/prompt", ShownPrompt).problems:
        if _MEMORY_FILE in problem:
            note(f"The file is broken, and this is what it said before: {problem}")


def search(options: argparse.Namespace) -> None:
    """Find entries, best match first."""
    found = hub_of(options).get(api("memory", q=" ".join(options.query)), list[ShownEntry])
    Output(options.json).rows(found, _remembered, empty="Nothing was found.")


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


def _remembered(entry: ShownEntry) -> dict[str, object]:
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
