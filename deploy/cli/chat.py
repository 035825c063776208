"""``strawberry chat``: one message, or a conversation."""

import argparse
import contextlib
import json
import shlex
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from contracts.errors import ConfigError, StrawberryError
from deploy.cli.client import HubClient
from deploy.cli.history import as_text, exchanges, newest
from deploy.cli.output import Output, note, waiting
from deploy.home.directory import Home
from deploy.logs.terminal import visible

_DEFAULT_AGENT = "assistant"
_CANCEL_S = 10.0
_REMINDED = 3
"""Exchanges of an earlier conversation that are shown before it goes on."""


def chat(options: argparse.Namespace) -> int:
    """Send one message, or talk until the person has enough."""
    home = Home.find()
    if options.hub is None and options.device is None:
        find = partial(HubClient.nearest, home)
    else:
        # The device that is meant instead of this one is reached through the hub.
        find = partial(HubClient.find, home, url=options.hub)
    agent, message = _words(options.words)
    if message is not None and not message.strip():
        raise ConfigError(
            "the message is empty", hint="Without a message, 'strawberry chat' is a conversation."
        )
    conversation = Conversation(find, agent=agent, device=options.device, output=Output(options.json))
    said: list[dict[str, Any]] = []
    if options.newest or options.conversation is not None:
        client = find()
        conversation.id = newest(client) if options.newest else options.conversation
        # One that is not known would be a new one, which nobody means who names it.
        said = exchanges(client, conversation.id, limit=_REMINDED)
    if message is not None:
        return conversation.say(message)
    if said:
        note(as_text(said) + "\n")
    try:
        return _talk(conversation)
    finally:
        if said or conversation.has_begun:
            note(_way_back(options, conversation.id))


def _way_back(options: argparse.Namespace, conversation: str) -> str:
    words = ["strawberry", "chat", "--conversation", conversation]
    for option in ("hub", "device"):
        if (value := getattr(options, option)) is not None:
            words += [f"--{option}", value]
    # A prompt without an answer stands in the last line of a terminal.
    line = "\n" if sys.stdin.isatty() else ""
    return f"{line}go on with: {shlex.join(words)}"


def _words(words: list[str]) -> tuple[str, str | None]:
    """Tell the agent from the message: two words are agent and message, more are an unquoted message."""
    match words:
        case []:
            return _DEFAULT_AGENT, None
        case [agent, message]:
            return agent, message
        case _:
            return _DEFAULT_AGENT, " ".join(words)


def _talk(conversation: "Conversation") -> int:
    interactive = sys.stdin.isatty()
    if interactive:
        note("Talk to your home. Ctrl-D ends.")
    while True:
        if interactive:
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return 0
        if not line.strip():
            continue
        try:
            conversation.say(line.strip())
        except KeyboardInterrupt:
            note("\nStopped.")
        except StrawberryError as error:
            # One failed message does not end a conversation.
            note(f"{error.message}\n  {error.hint}" if error.hint else error.message)


@dataclass
class Conversation:
    """Messages that belong together, with one agent.

    Attributes:
        find: Gives whom the next message goes to.
        has_begun: Whether anything was said in it.
    """

    find: Callable[[], HubClient]
    agent: str
    device: str | None
    output: Output
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    has_begun: bool = field(default=False, init=False)
    _shown: bool = field(default=False, init=False)
    _in_line: bool = field(default=False, init=False)
    _client: HubClient = field(init=False)

    def say(self, message: str) -> int:
        """Send a message and show what happens until the answer is complete.

        Returns:
            The exit code: 1 where the turn ended without an answer.
        """
        turn = uuid.uuid4().hex
        self._client = self.find()
        self.has_begun = True
        try:
            events = list(self._follow(self._ask(message, turn)))
        except KeyboardInterrupt:
            # Closing the stream has told the hub already, unless a proxy stands in between.
            with contextlib.suppress(StrawberryError):
                self._client.request("POST", f"/api/turns/{turn}/cancel", {}, timeout=_CANCEL_S)
            raise
        final = next((event for event in events if event["kind"] == "final"), None)
        if final is None:
            self._end_line()
            error = next((event for event in events if event["kind"] == "error"), {})
            raise StrawberryError(
                str(error.get("message", "the turn ended without an answer")), hint=str(error.get("hint", ""))
            )
        self.output.result(
            {
                "answer": final["answer"],
                "mode": final["mode"],
                "device": final.get("device"),
                "events": events,
            },
            text="" if self._shown else final["answer"],
        )
        return 0

    def _ask(self, message: str, turn: str) -> Iterator[dict[str, Any]]:
        headers = {"X-Strawberry-Conversation": self.id, "X-Strawberry-Turn": turn}
        if self.device:
            headers["X-Strawberry-Device"] = self.device
        if not self.output.as_json:
            headers["X-Strawberry-Confirm"] = "true"
        body = {"model": self.agent, "stream": True, "messages": [{"role": "user", "content": message}]}
        for chunk in self._client.stream("/v1/chat/completions", body, headers):
            if "error" in chunk:
                raise StrawberryError(
                    str(chunk["error"].get("message")), hint=str(chunk["error"].get("hint") or "")
                )
            event = chunk.get("x_strawberry")
            if event is not None:
                yield event
                continue
            for choice in chunk.get("choices", []):
                text = choice.get("delta", {}).get("content")
                if text:
                    yield {"kind": "text", "text": text}

    def _follow(self, events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        self._shown = False
        while (event := self._next(events)) is not None:
            if not self.output.as_json:
                self._show(event)
            if event["kind"] == "confirmation":
                self._confirm(event)
            yield event

    def _next(self, events: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
        """Wait for the next event; a clock would write over an answer that has begun."""
        if self.output.as_json or self._shown:
            return next(events, None)
        with waiting("thinking"):
            return next(events, None)

    def _show(self, event: dict[str, Any]) -> None:
        """Show an event as it happens; the answer on standard output, the way there beside it."""
        match event["kind"]:
            case "text":
                print(visible(event["text"]), end="", flush=True)
                self._shown = True
                self._in_line = not event["text"].endswith("\n")
            case "skill" if event["state"] in ("called", "failed"):
                self._tell(f"{event['path']} {event['state'] if event['state'] == 'failed' else '…'}")
            case "skill" if event["state"] == "progress" and event.get("detail") is not None:
                self._tell(json.dumps(event["detail"], ensure_ascii=False))
            case "notice":
                self._tell(event["text"])

    def _tell(self, text: str) -> None:
        self._end_line()
        note(f"  · {text}")

    def _end_line(self) -> None:
        """End the line of an answer in the making, where what comes next is read on the same screen."""
        if self._in_line and sys.stdout.isatty():
            print(flush=True)
        self._in_line = False

    def _confirm(self, event: dict[str, Any]) -> None:
        """Ask the person; anything but a clear yes, and no answer at all, is a no."""
        approve = False
        if not self.output.as_json:
            self._end_line()
            arguments = ", ".join(f"{name}={value!r}" for name, value in event["arguments"].items())
            print(
                visible(f"{event['device_name']}: {event['method']}({arguments})? [y/N] "),
                end="",
                file=sys.stderr,
                flush=True,
            )
            approve = sys.stdin.readline().strip().lower() in ("y", "yes")
        self._client.request(
            "POST", f"/api/turns/{event['turn']}/confirmations/{event['id']}", {"approve": approve}
        )
