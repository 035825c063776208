"""``strawberry history``: what was said, and with which words one goes on."""

import argparse
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from contracts.errors import ConfigError
from deploy.cli.client import HubClient
from deploy.cli.output import Output
from deploy.home.directory import Home

_COLUMNS: Final = ("when", "asked", "id")


def history(options: argparse.Namespace) -> None:
    """List the conversations, newest first, or show one, oldest first."""
    client, output = _client(options), Output(options.json)
    if options.id is not None:
        kept = exchanges(client, options.id, limit=options.limit)
        if output.as_json:
            output.result({"id": options.id, "exchanges": kept})
        else:
            output.result(None, text=as_text(kept))
        return
    known = conversations(client, limit=options.limit)
    shown = known if output.as_json else [{**each, "when": _local(each["at"])} for each in known]
    output.rows(shown, _COLUMNS, empty="Nothing was said yet. 'strawberry chat' begins.")


def conversations(client: HubClient, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Give the conversations, newest first: ``id``, ``asked`` (the first question) and ``at``."""
    found: list[dict[str, Any]] = client.request("GET", f"/api/conversations{_query(limit)}")
    return found


def exchanges(client: HubClient, conversation: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Give what was said last in a conversation, oldest first.

    Raises:
        NotFound: If it is not known there.
    """
    answer = client.request("GET", f"/api/conversations/{quote(conversation, safe='')}{_query(limit)}")
    found: list[dict[str, Any]] = answer["exchanges"]
    return found


def newest(client: HubClient) -> str:
    """Give the id of the conversation in which something was said last.

    Raises:
        ConfigError: If there is none.
    """
    known = conversations(client, limit=1)
    if not known:
        raise ConfigError("there is no conversation to go on with", hint="'strawberry chat' begins one.")
    return str(known[0]["id"])


def as_text(kept: Iterable[dict[str, Any]]) -> str:
    """Show what was said, for a person: when, in local time, who answered, the question and the answer."""
    return "\n\n".join(
        f"{_local(each['at'])}  {_mark(each)}\n> {each['question']}\n{each['answer'] or ''}".rstrip()
        for each in kept
    )


def _mark(exchange: dict[str, Any]) -> str:
    # Who answered is told at the end of an answer.
    return f"({exchange['mode'] or ('broken off' if exchange['answer'] else 'no answer')})"


def _local(at: str) -> str:
    return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M}"


def _query(limit: int | None) -> str:
    return "" if limit is None else f"?limit={limit}"


def _client(options: argparse.Namespace) -> HubClient:
    home = Home.find()
    return HubClient.nearest(home) if options.hub is None else HubClient.find(home, url=options.hub)
