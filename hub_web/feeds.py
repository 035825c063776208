"""Turns that pages have begun: each goes on when its page is left, and other pages can follow it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.errors import StrawberryError
from hub_web.api import Api, ApiError
from identity.ids import uuid7

_KEPT_S: Final = 60.0
"""How long the events of a turn are kept after its end, for pages that are loaded in the middle of it."""


@dataclass(eq=False)
class Feed:
    """One turn.

    Attributes:
        question: What was asked.
        events: As in ``contracts/chat.py``, as they came; a text delta has the kind ``text``.
    """

    user: str
    conversation: str
    question: str
    turn: str = field(default_factory=uuid7)
    events: list[dict[str, Any]] = field(default_factory=list)
    _ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """Yield every event from the first to the last; followers do not wait for each other."""
        at = 0
        while True:
            changed = self._changed
            while at < len(self.events):
                at += 1
                yield self.events[at - 1]
            if self._ended:
                return
            await changed.wait()

    async def run(self, api: Api, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Ask, and take in what comes."""
        try:
            async with api.stream("POST", "/v1/chat/completions", body, headers=headers) as chunks:
                async for chunk in chunks:
                    if (event := _event(chunk)) is not None:
                        self._add(event)
        except StrawberryError as error:
            is_kept = isinstance(error, ApiError) and error.code == "no_model"
            code = "no_model" if is_kept else "refused"
            self._add({"kind": "error", "code": code, "message": error.message, "hint": error.hint})
        finally:
            if not self.events or self.events[-1]["kind"] not in ("final", "error"):
                self._add({"kind": "error", "code": "cancelled", "message": "the turn was cancelled"})
            self._ended = True
            self._changed.set()

    def _add(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Feeds:
    """All turns that run, and those that have just ended.

    Args:
        tasks: Owns them.
    """

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._feeds: list[Feed] = []

    def ask(
        self,
        user: str,
        api: Api,
        question: str,
        *,
        conversation: str,
        agent: str,
        device: str | None,
        replaces: str | None,
    ) -> Feed:
        """Begin a turn.

        Args:
            device: Name of the current device.
            replaces: Id of the turn whose place it takes.
        """
        feed = Feed(user, conversation, question)
        body = {"model": agent, "stream": True, "messages": [{"role": "user", "content": question}]}
        headers = {
            "x-strawberry-conversation": conversation,
            "x-strawberry-turn": feed.turn,
            "x-strawberry-confirm": "true",
        }
        for name, value in (("device", device), ("replaces", replaces)):
            if value is not None:
                headers[f"x-strawberry-{name}"] = value
        self._feeds.append(feed)
        self._tasks.create_task(self._run(feed, api, body, headers), name=f"web: turn {feed.turn}")
        return feed

    def of(self, user: str, conversation: str) -> dict[str, Feed]:
        """Return a person's turns of a conversation that run or have just ended, by id, the oldest first."""
        return {
            each.turn: each for each in self._feeds if (each.user, each.conversation) == (user, conversation)
        }

    async def _run(self, feed: Feed, api: Api, body: dict[str, Any], headers: dict[str, str]) -> None:
        try:
            await feed.run(api, body, headers)
        finally:
            asyncio.get_running_loop().call_later(_KEPT_S, self._feeds.remove, feed)


def _event(chunk: dict[str, Any]) -> dict[str, Any] | None:
    """Take the event out of a chunk of a chat completion; None where it has none."""
    if (told := chunk.get("x_strawberry")) is not None:
        return dict(told)
    for choice in chunk.get("choices", ()):
        if text := choice["delta"].get("content"):
            return {"kind": "text", "text": text}
    return None
