"""``strawberry history``: conversations listed, shown, renamed, exported and deleted."""

import argparse
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from contracts.errors import ConfigError
from deploy.cli.client import HubClient, api, nearest_of, whole_id
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, moment, note
from deploy.cli.terminal.parser import Parser

if TYPE_CHECKING:
    from contracts.answers.record import ConversationTurn
    from contracts.chat.messages import ConversationSummary


def history(options: argparse.Namespace) -> int:
    """List, show, rename, export or delete conversations.

    Lists the conversations, newest first; with an ID, shows that one, or does with it what the options
    say.
    """
    change = next((name for name in _CHANGES if getattr(options, name) not in (None, False)), None)
    if change is not None and options.id is None:
        raise ConfigError(
            f"--{change} needs the ID of a conversation", hint="'strawberry history' lists them."
        )
    client, output = nearest_of(options), Output(options.json)
    if options.id is not None:
        options.id = whole_id(options.id, [each.id for each in conversations(client, limit=100)])
    if change is not None:
        return _CHANGES[change](client, options)
    if options.id is not None:
        kept = exchanges(client, options.id, limit=options.limit)
        output.result({"id": options.id, "exchanges": kept}, text=as_text(kept))
        return 0
    output.rows(
        conversations(client, limit=options.limit),
        lambda each: {"when": moment(each.at), "asked": each.title or each.asked, "id": each.id},
        empty="There is no conversation yet. 'strawberry chat' starts one.",
    )
    return 0


def _rename(client: HubClient, options: argparse.Namespace) -> int:
    # Here, as below: 'strawberry chat' imports this and starts without pydantic.
    from contracts.answers.record import ConversationTitle

    path, body = api("conversations", options.id), {"title": options.rename}
    renamed = client.send("PATCH", path, body, ConversationTitle)
    said = f"is called {renamed.title!r}" if renamed.title else "has no title"
    Output(options.json).result(renamed, text=f"The conversation {said}.")
    return 0


def _export(client: HubClient, options: argparse.Namespace) -> int:
    kind = "json" if options.export.lower().endswith(".json") else "markdown"
    content = client.download(api("conversations", options.id, "export", format=kind))
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if options.yes else os.O_EXCL)
    try:
        # What people said at home is for their own eyes.
        with os.fdopen(os.open(options.export, flags, 0o600), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise ConfigError(
            f"{options.export} exists already", hint="Name another file, or add --yes to replace it."
        ) from None
    except OSError as error:
        raise ConfigError(f"{options.export} cannot be written: {error.strerror or error}") from None
    written = {"id": options.id, "file": options.export}
    Output(options.json).result(written, text=f"Written to {options.export}.")
    return 0


def _delete(client: HubClient, options: argparse.Namespace) -> int:
    if not options.yes:
        # Who deletes sees what: an id alone says nothing.
        note(as_text(exchanges(client, options.id, limit=1)))
        if not agreed("\nDelete this conversation for good?", otherwise="Nothing was deleted. Add --yes."):
            note("Nothing was deleted.")
            return 1
    client.request("DELETE", api("conversations", options.id))
    Output(options.json).result({"id": options.id, "deleted": True}, text="The conversation is deleted.")
    return 0


_CHANGES: Final = {"delete": _delete, "rename": _rename, "export": _export}
"""By the names of their options."""


def conversations(client: HubClient, *, limit: int | None) -> "list[ConversationSummary]":
    """Return the conversations, newest first."""
    from contracts.chat.messages import ConversationSummary

    return client.get(api("conversations", limit=limit), list[ConversationSummary])


def exchanges(client: HubClient, conversation: str, *, limit: int | None) -> "list[ConversationTurn]":
    """Return the last questions and answers of a conversation, oldest first.

    Raises:
        NotFound: If there is no such conversation.
    """
    from contracts.answers.record import Conversation

    return client.get(api("conversations", conversation, limit=limit), Conversation).exchanges


def latest(client: HubClient) -> str:
    """Return the id of the conversation with the latest message.

    Raises:
        ConfigError: If there is none.
    """
    known = conversations(client, limit=1)
    if not known:
        raise ConfigError("there is no conversation to continue", hint="'strawberry chat' starts one.")
    return known[0].id


def as_text(kept: "Iterable[ConversationTurn]") -> str:
    """Return questions and answers for a person: local time, who answered, question, answer."""
    return "\n\n".join(
        f"{each.at.astimezone():%Y-%m-%d %H:%M}  {_mark(each)}\n> {each.question}\n"
        f"{each.answer or each.problem}".rstrip()
        for each in kept
    )


def _mark(exchange: "ConversationTurn") -> str:
    if exchange.replaced_by:
        return "(replaced)"
    # Only a complete answer has a mode.
    if exchange.mode:
        return f"({exchange.mode})"
    if exchange.outcome == "interrupted":
        return "(interrupted)"
    match exchange.state:
        case "running":
            return "(not finished)"
        case "cancelled":
            return "(stopped)"
    return "(broken off)" if exchange.answer else "(no answer)"


def register_history(parser: Parser) -> None:
    """Declare 'strawberry history'."""
    parser.runs(history, hub=True)
    parser.takes("id", "the conversation; the beginning of its ID is enough", nargs="?")
    parser.add_number("--limit", "how many of the latest; default 20, within one 100")
    choice = parser.add_mutually_exclusive_group()
    choice.takes("--rename", "give the conversation ID a title; '' takes it away", metavar="TITLE")
    choice.takes(
        "--export", "write all of the conversation ID to a file: .json, else Markdown", metavar="FILE"
    )
    choice.add_flag("--delete", "delete the conversation ID for good")
    parser.add_flag("--yes", "delete, or replace the file, without asking")
