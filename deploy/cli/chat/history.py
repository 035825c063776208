"""``strawberry history``: conversations listed, shown and deleted."""

import argparse
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from contracts.errors import ConfigError
from deploy.cli.client import HubClient, nearest_of
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.tables import moment

_COLUMNS: Final = ("when", "asked", "id")


def history(options: argparse.Namespace) -> int:
    """List the conversations, newest first; or show or delete one."""
    if options.delete and options.id is None:
        raise ConfigError("--delete needs the ID of a conversation", hint="'strawberry history' lists them.")
    client, output = nearest_of(options), Output(options.json)
    if options.delete:
        return _delete(client, options)
    if options.id is not None:
        kept = exchanges(client, options.id, limit=options.limit)
        if output.as_json:
            output.result({"id": options.id, "exchanges": kept})
        else:
            output.result(None, text=as_text(kept))
        return 0
    output.rows(
        conversations(client, limit=options.limit),
        _COLUMNS,
        empty="There is no conversation yet. 'strawberry chat' starts one.",
        shown=lambda each: {**each, "when": moment(each["at"])},
    )
    return 0


def _delete(client: HubClient, options: argparse.Namespace) -> int:
    if not options.yes:
        # Who deletes sees what: an id alone says nothing.
        note(as_text(exchanges(client, options.id, limit=1)))
        if not agreed("\nDelete this conversation for good?", otherwise="Nothing was deleted. Add --yes."):
            note("Nothing was deleted.")
            return 1
    client.request("DELETE", _path(options.id))
    Output(options.json).result({"id": options.id, "deleted": True}, text="The conversation is deleted.")
    return 0


def conversations(client: HubClient, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the conversations, newest first: ``id``, ``asked`` (the first question) and ``at``."""
    found: list[dict[str, Any]] = client.request("GET", f"/api/conversations{_query(limit)}")
    return found


def exchanges(client: HubClient, conversation: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the last questions and answers of a conversation, oldest first.

    Raises:
        NotFound: If there is no such conversation.
    """
    answer = client.request("GET", _path(conversation) + _query(limit))
    found: list[dict[str, Any]] = answer["exchanges"]
    return found


def latest(client: HubClient) -> str:
    """Return the id of the conversation with the latest message.

    Raises:
        ConfigError: If there is none.
    """
    known = conversations(client, limit=1)
    if not known:
        raise ConfigError("there is no conversation to continue", hint="'strawberry chat' starts one.")
    return str(known[0]["id"])


def as_text(kept: Iterable[dict[str, Any]]) -> str:
    """Return questions and answers for a person: local time, who answered, question, answer."""
    return "\n\n".join(
        f"{_local(each['at'])}  {_mark(each)}\n> {each['question']}\n{each['answer'] or ''}".rstrip()
        for each in kept
    )


def _mark(exchange: dict[str, Any]) -> str:
    # Only a complete answer has a mode.
    if exchange["mode"]:
        return f"({exchange['mode']})"
    match exchange.get("state"):
        case "running":
            return "(not finished)"
        case "cancelled":
            return "(stopped)"
    return "(broken off)" if exchange["answer"] else "(no answer)"


def _local(at: str) -> str:
    return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M}"


def _path(conversation: str) -> str:
    return f"/api/conversations/{quote(conversation, safe='')}"


def _query(limit: int | None) -> str:
    return "" if limit is None else f"?limit={limit}"
