"""``strawberry chat``: one message, or a conversation."""

import argparse
import os
import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from contracts.errors import ConfigError, NotFound, StrawberryError
from deploy import limits
from deploy.cli.chat.conversation import Conversation
from deploy.cli.chat.history import as_text, exchanges, latest
from deploy.cli.client import HubClient, hub_of, nearest_of
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.parser import Parser

if TYPE_CHECKING:
    from contracts.answers.record import ConversationTurn

_DEFAULT_AGENT: Final = "assistant"


def chat(options: argparse.Namespace) -> int:
    """Talk to the assistant.

    Sends one message, or starts a conversation if there is none. One message ends with code 1 where there
    is no answer, or where what a sentence calls fails.
    """

    def find() -> HubClient:
        # Another device than this one is reached through the hub.
        at_hub = conversation.at_hub or conversation.device is not None
        return hub_of(options) if at_hub else nearest_of(options)

    conversation = Conversation(
        find, agent=options.agent or _DEFAULT_AGENT, device=options.device, output=Output(options.json)
    )
    message = _message(options, conversation)
    if message is not None and not message.strip():
        raise ConfigError(
            "the message is empty", hint="Without a message, 'strawberry chat' is a conversation."
        )
    earlier: list[ConversationTurn] = []
    if options.newest or options.conversation is not None:
        conversation.id = latest(find()) if options.newest else options.conversation
        earlier = _earlier(conversation)
    if message is not None:
        return 0 if conversation.say(message) else 1
    if earlier:
        note(as_text(earlier) + "\n")
    try:
        _talk(conversation, options)
        return 0
    finally:
        if earlier or conversation.has_begun:
            note(_how_to_continue(options, conversation.id))


def _earlier(conversation: Conversation) -> "list[ConversationTurn]":
    """Return the last exchanges of a conversation, and have it go on where it was begun.

    Raises:
        NotFound: If there is none: an unknown id would silently start a new conversation.
    """
    try:
        return exchanges(conversation.find(), conversation.id, limit=limits.EXCHANGES_REMINDED)
    except NotFound:
        conversation.at_hub = True
        with suppress(ConfigError, NotFound):
            return exchanges(conversation.find(), conversation.id, limit=limits.EXCHANGES_REMINDED)
        raise


def _message(options: argparse.Namespace, conversation: Conversation) -> str | None:
    """Return the message of the command line, None if there is none.

    ``chat NAME "some words"`` names an agent where there is one of that name.
    """
    match options.words:
        case []:
            return None
        case [name, text] if options.agent is None and name.split() == [name] and len(text.split()) > 1:
            known = conversation.find().request("GET", "/v1/models")["data"]
            if name in (each["id"] for each in known):
                conversation.agent = name
                return str(text)
    return " ".join(options.words)


def _talk(conversation: Conversation, options: argparse.Namespace) -> None:
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        # Imported here: only a person at a terminal needs the editor, and it is slow to import.
        from deploy.cli.chat.prompt import Prompt

        Prompt(conversation, hub=lambda: hub_of(options)).run()
        return
    while line := _plain_line():
        if not line.strip():
            continue
        try:
            conversation.say(line.strip())
        except KeyboardInterrupt:
            note("\nStopped.")
        except StrawberryError as error:
            # One failed message does not end a conversation.
            note(f"{error.message}\n  {error.hint}" if error.hint else error.message)


def _plain_line() -> str:
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line and sys.stdin.isatty():
        print(file=sys.stderr)
    return line


def _how_to_continue(options: argparse.Namespace, conversation: str) -> str:
    words = ["strawberry", "chat", "--conversation", conversation]
    for option in ("hub", "device", "agent"):
        if (value := getattr(options, option)) is not None:
            words += [f"--{option}", value]
    return f"Continue with: {shlex.join(words)}"


def register_chat(parser: Parser) -> None:
    """Declare 'strawberry chat'."""
    parser.runs(chat, hub=True)
    parser.takes("words", "what to say", metavar="MESSAGE", nargs="*")
    parser.takes("--agent", "which agent answers; default: assistant", metavar="NAME")
    parser.takes("--device", "the device to act on when the message names none", metavar="NAME")
    choice = parser.add_mutually_exclusive_group()
    choice.takes("--conversation", "continue this conversation; 'history' lists them", metavar="ID")
    choice.add_flag("--continue", "continue the latest conversation", dest="newest")
