"""The prompt of a conversation at a terminal: editing, history, completion and commands."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from contracts.answers.devices import DeviceAnswer
from contracts.answers.skills import SearchBody
from contracts.errors import StrawberryError
from contracts.validation import did_you_mean
from deploy import limits
from deploy.cli.chat.conversation import Conversation
from deploy.cli.client import HubClient
from deploy.cli.terminal.output import note
from deploy.directory import Home

T = TypeVar("T")

_COMMANDS: Final = {
    "/help": "show these commands",
    "/new": "start a new conversation",
    "/device": "show the device to act on; '/device NAME' changes it, '/device -' resets it",
    "/quit": "end, as /exit and Ctrl-D do",
}


class Prompt:
    """Reads messages and commands until the person has enough.

    Args:
        hub: Finds the hub, which knows the names of devices and skills.
    """

    def __init__(self, conversation: Conversation, hub: Callable[[], HubClient]) -> None:
        self._conversation = conversation
        self._names = Names(hub)

    def run(self) -> None:
        """Talk until Ctrl-D, ``/quit``, or Ctrl-C on an empty line."""
        session: PromptSession[str] = PromptSession(
            "> ",
            history=_history(),
            completer=ThreadedCompleter(_Completer(self._names)),
            complete_while_typing=False,
        )
        note("Type a message, or /help. Ctrl-D quits.")
        while True:
            try:
                line = session.prompt().strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                if session.default_buffer.text:
                    continue
                return
            if line in ("/quit", "/exit"):
                return
            if line:
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            if line.startswith("/"):
                self._command(*line.split(maxsplit=1))
            else:
                self._conversation.say(line)
        except KeyboardInterrupt:
            note("Stopped.")
        except StrawberryError as error:
            # One failed message does not end a conversation.
            note(f"{error.message}\n  {error.hint}" if error.hint else error.message)

    def _command(self, name: str, argument: str = "") -> None:
        match name:
            case "/help":
                note("\n".join(f"  {command.ljust(8)} {about}" for command, about in _COMMANDS.items()))
                note("  Tab      complete names of devices and skills")
                note("  Ctrl-C   stop an answer, or clear the line; Ctrl-R searches earlier messages")
            case "/new":
                self._conversation.start_over()
                note("A new conversation.")
            case "/device":
                self._choose_device(argument.strip())
            case _:
                note(f"unknown command {name!r}{did_you_mean(name, _COMMANDS)}\n  /help lists the commands.")

    def _choose_device(self, name: str) -> None:
        if name == "-":
            self._conversation.device = None
        elif name:
            known = self._names.devices()
            if known and name.casefold() not in (each.casefold() for each in known):
                note(f"there is no device {name!r}{did_you_mean(name, known)}")
                return
            self._conversation.device = name
        note(f"Device: {self._conversation.device or 'this one'}")


class Names:
    """Names of devices and skills, asked of the hub when they are needed."""

    def __init__(self, hub: Callable[[], HubClient]) -> None:
        self._hub = hub

    def devices(self) -> list[str]:
        """Return display names, keys and aliases; empty where the hub cannot be asked."""
        rows = self._ask("/api/devices", list[DeviceAnswer]) or []
        return sorted({name for row in rows for name in (row.name, row.key, *row.aliases)})

    def skills(self) -> list[str]:
        """Return ``LampSkill`` and ``LampSkill.turn_on`` of every skill; empty as ``devices``."""
        found = self._ask("/api/skills", SearchBody)
        paths = [row.path.split(".")[2:] for row in (found.results if found else ())]
        return sorted({name for skill, method in paths for name in (skill, f"{skill}.{method}")})

    def _ask(self, path: str, kind: type[T]) -> T | None:
        try:
            return self._hub().get(path, kind, timeout=limits.LOOKUP_TIMEOUT_S)
        except StrawberryError:
            # Without the hub, or without the right to list devices, nothing is completed.
            return None


class _Completer(Completer):
    """Completes commands, devices and skills at the end of the line."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield every name that the end of the line may be the beginning of."""
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text:
            yield from matching(text, _COMMANDS)
        elif text.startswith("/"):
            yield from matching(text, self._names.devices())
        else:
            yield from matching(text, [*self._names.devices(), *self._names.skills()])


def matching(text: str, names: Iterable[str]) -> Iterator[Completion]:
    """Yield the names that the end of a text begins, in any case of letters."""
    starts = [0, *(blank.end() for blank in re.finditer(r"\s+", text))]
    tails = [tail for start in starts if (tail := text[start:].lower())]
    for name in names:
        # The longest one: a name may have several words.
        begun = next((tail for tail in tails if name.lower().startswith(tail)), None)
        if begun is not None:
            yield Completion(name, start_position=-len(begun))


def _history() -> History:
    """Return the history of earlier prompts, in a file that only the owner can read."""
    file = Home.find().chat_history_file
    if not file.parent.is_dir():
        return InMemoryHistory()
    os.close(os.open(file, os.O_CREAT | os.O_APPEND, 0o600))
    return FileHistory(file)
