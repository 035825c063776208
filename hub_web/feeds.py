"""Turns that pages have begun: each goes on when its page is left, and other pages can follow it."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.errors import StrawberryError
from hub_web.api import Api, ApiError, part
from identity.ids import uuid7

_KEPT_S: Final = 60.0
"""How long the events of a turn are kept after its end, for pages that are loaded in the middle of it."""


@dataclass(eq=False)
class Feed:
    """One turn.

    Attributes:
        question: What was asked.
        events: As in ``contracts/chat``, as they came; a text delta has the kind ``text``, and
            ``answered`` says that a page has answered the question ``id``.
    """

    user: str
    conversation: str
    question: str
    turn: str = field(default_factory=uuid7)
    events: list[dict[str, Any]] = field(default_factory=list)
    _open: dict[str, float] = field(default_factory=dict)
    """Until when each question may be answered, by id; not those that were."""
    _ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def _is_over(self) -> bool:
        """Return whether the last event has come, which no other one follows."""
        return bool(self.events) and self.events[-1]["kind"] in ("final", "error")

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the events from the first to the last; followers do not wait for each other.

        A question that can no longer be answered is left out; others have the time that is left.
        """
        at = 0
        while True:
            changed = self._changed
            while at < len(self.events):
                at += 1
                event = self.events[at - 1]
                if event["kind"] == "confirmation":
                    left = self._open.get(event["id"], 0.0) - time.monotonic()
                    if left <= 0:
                        continue
                    event = {**event, "expires_s": left}
                yield event
            if self._ended:
                return
            await changed.wait()

    async def answer(self, api: Api, question: str, *, approve: bool) -> None:
        """Answer a question of the turn, and tell it to all followers.

        Raises:
            StrawberryError: As the route says it.
        """
        path = f"/api/turns/{part(self.turn)}/confirmations/{part(question)}"
        await api.post(path, {"approve": approve})
        self._open.pop(question, None)
        if not self._is_over:
            self._add({"kind": "answered", "id": question})

    async def run(self, api: Api, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Ask, and take in what comes."""
        try:
            async with api.stream(
                "POST", "/v1/chat/completions", dict[str, Any], body, headers=headers
            ) as chunks:
                async for chunk in chunks:
                    if (event := _event(chunk)) is not None:
                        self._add(event)
        except StrawberryError as error:
            is_kept = isinstance(error, ApiError) and error.code == "no_model"
            code = "no_model" if is_kept else "refused"
            self._add({"kind": "error", "code": code, "message": error.message, "hint": error.hint})
        finally:
            if not self._is_over:
                self._add({"kind": "error", "code": "cancelled", "message": "the turn was cancelled"})
            self._ended = True
            self._changed.set()

    def _add(self, event: dict[str, Any]) -> None:
        if event["kind"] == "confirmation":
            self._open[event["id"]] = time.monotonic() + event["expires_s"]
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
    """Return the event in a chunk of a chat completion; None where it has none."""
    if (told := chunk.get("x_strawberry")) is not None:
        return dict(told)
    for choice in chunk.get("choices", ()):
        if text := choice["delta"].get("content"):
            return {"kind": "text", "text": text}
    return None
