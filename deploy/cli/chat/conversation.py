"""Messages and answers that belong together, shown piece by piece as they come."""

import contextlib
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contracts.errors import StrawberryError
from contracts.text import escaped
from deploy import limits
from deploy.cli.client import HubClient
from deploy.cli.terminal.asking import NobodyToAsk, agreed, call_question
from deploy.cli.terminal.output import Output, note, waiting
from deploy.logs.terminal import visible

if TYPE_CHECKING:
    from deploy.cli.chat.markdown import MarkdownScreen


class PlainScreen:
    """Writes the answer as it is, to a file, a program or a simple terminal.

    Attributes:
        is_empty: Whether nothing of the answer was shown yet.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self._in_line = False

    def write(self, text: str) -> None:
        """Write the next piece."""
        print(visible(text), end="", flush=True)
        self.is_empty = False
        self._in_line = not text.endswith("\n")

    def interrupt(self) -> None:
        """End the line, where what comes next is read on the same screen."""
        if self._in_line and sys.stdout.isatty():
            print(flush=True)
        self._in_line = False


@dataclass
class Conversation:
    """Messages to one agent, one after the other.

    Attributes:
        find: Returns the hub or spoke that the next message goes to.
        device: Name of the device to act on when a message names none.
        has_begun: Whether a message was sent.
        at_hub: Whether it was begun at the hub itself; a spoke continues only what was begun through it.
    """

    find: Callable[[], HubClient]
    agent: str
    device: str | None
    output: Output
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    has_begun: bool = field(default=False, init=False)
    at_hub: bool = field(default=False, init=False)
    _client: HubClient = field(init=False)
    _screen: "PlainScreen | MarkdownScreen" = field(default_factory=PlainScreen, init=False)

    def start_over(self) -> None:
        """Start a new conversation with the next message."""
        self.id = uuid.uuid4().hex
        self.has_begun = self.at_hub = False

    def say(self, message: str) -> bool:
        """Send a message and show what happens until the answer is complete.

        Returns:
            False where the answer is that what a sentence called failed.

        Raises:
            StrawberryError: If the turn ended without an answer; what came of it is shown.
        """
        turn = uuid.uuid4().hex
        self._client = self.find()
        self._screen = PlainScreen()
        self.at_hub = self.at_hub or (not self.has_begun and self._client.server == "hub")
        self.has_begun = True
        events: list[dict[str, Any]] = []
        problem: StrawberryError | None = None
        try:
            stream = self._client.turn(
                message,
                conversation=self.id,
                turn=turn,
                agent=self.agent,
                device=self.device,
                can_confirm=not self.output.as_json,
            )
            self._follow(stream, events)
        except KeyboardInterrupt:
            # First, because it shows the cursor again; a second Ctrl-C may end what follows.
            self._screen.interrupt()
            # The hub sees the closed stream by itself, unless a proxy is in between.
            with contextlib.suppress(StrawberryError):
                self._client.request("POST", f"/api/turns/{turn}/cancel", {}, timeout=limits.CANCEL_TIMEOUT_S)
            raise
        except StrawberryError as error:
            problem = error
        final = next((event for event in events if event["kind"] == "final"), None)
        if final is None and problem is None:
            error_event = next((event for event in events if event["kind"] == "error"), {})
            problem = StrawberryError(
                str(error_event.get("message", "the turn ended without an answer")),
                hint=str(error_event.get("hint", "")),
            )
        result = {"conversation": self.id, "turn": turn, "events": events}
        if final is not None:
            self._show_answer(final, result)
        elif problem is not None:
            self._screen.interrupt()
            if self.output.as_json and events:
                came = "".join(event["text"] for event in events if event["kind"] == "text")
                error_json = {"message": problem.message, "hint": problem.hint}
                self.output.result({"answer": came, "mode": None, "error": error_json, **result})
            raise problem
        return final is not None and not final.get("failed")

    def _show_answer(self, final: dict[str, Any], result: dict[str, Any]) -> None:
        if self.output.as_json:
            found = {"answer": final["answer"], "mode": final["mode"], "device": final.get("device")}
            self.output.result({**found, **result})
            return
        if self._screen.is_empty:
            self._write(final["answer"])
        if isinstance(self._screen, PlainScreen):
            print(flush=True)
        else:
            self._screen.interrupt()

    def _follow(self, stream: Iterator[dict[str, Any]], events: list[dict[str, Any]]) -> None:
        """Show each event, and keep it even where the stream breaks off later."""
        while (event := self._next(stream)) is not None:
            events.append(event)
            if not self.output.as_json:
                self._show(event)

    def _next(self, events: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
        """Wait for the next event; a clock would write over an answer that has begun."""
        if self.output.as_json or not self._screen.is_empty:
            return next(events, None)
        with waiting("thinking"):
            return next(events, None)

    def _show(self, event: dict[str, Any]) -> None:
        """Show an event as it happens."""
        match event["kind"]:
            case "text":
                self._write(event["text"])
            case "skill" if event["state"] == "called":
                self._aside(f"{event['path']} …")
            case "skill" if event["state"] == "failed":
                self._aside(f"{event['path']} failed")
            case "skill" if event["state"] == "progress" and event.get("detail") is not None:
                self._aside(json.dumps(event["detail"], ensure_ascii=False))
            case "notice":
                self._aside(event["text"])
            case "confirmation":
                self._confirm(event)

    def _aside(self, text: str) -> None:
        """Show what happens on the way to the answer, beside it on standard error."""
        self._screen.interrupt()
        note(f"  · {text}")

    def _write(self, text: str) -> None:
        if self._screen.is_empty and _shows_markdown():
            # Imported here: it takes longer to import than a request to be sent.
            from deploy.cli.chat.markdown import MarkdownScreen

            self._screen = MarkdownScreen()
        self._screen.write(text)

    def _confirm(self, event: dict[str, Any]) -> None:
        """Ask the person; anything but a clear yes, and no answer at all, is a no."""
        self._screen.interrupt()
        try:
            called = f"{event['device_name']}: {event['method']}"
            if event.get("lasting"):
                allow = f"strawberry skills allow devices.{event['device']}.{event['method']}"
                note(f"Its author does not say what it does. '{allow}' stops this question.")
            if question := event.get("questions", {}).get("en"):
                note(question)
            does = event["arguments"].get("does") if event["method"].startswith("WatcherSkill.") else None
            if does:  # the hub says in a sentence what a watcher would do
                asked = f"Make this watcher? {escaped(does)}"
            else:
                asked = call_question(called, event["arguments"], cut=bool(event.get("cut")))
            approve = agreed(asked)
            if not approve:
                note("Not confirmed.")
        except NobodyToAsk as error:
            approve = False
            note(f"{error.message}; it was not confirmed.")
        path = f"/api/turns/{event['turn']}/confirmations/{event['id']}"
        try:
            self._client.request("POST", path, {"approve": approve})
        except StrawberryError as error:
            # Too late, for example; the turn continues and reports its outcome.
            note(error.message)


def _shows_markdown() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("dumb", "")
