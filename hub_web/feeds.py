"""Turns that pages have begun: each goes on when its page is left, and other pages can follow it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from chat.conversations import confirm
from contracts.chat.messages import (
    ChatFile,
    ChatImage,
    ChatRequest,
    ConfirmationWanted,
    TurnError,
    TurnEvent,
    TurnFinal,
)
from contracts.errors import GatewayError, StrawberryError
from contracts.phrases import for_people
from contracts.validation import validated
from contracts.wire import Json, Part
from hub_web import limits
from hub_web.api import Api
from identity.ids import uuid7


class Answered(Part):
    """A page has answered a question of a turn."""

    kind: Literal["answered"] = "answered"
    id: str


FeedEvent = TurnEvent | Answered
Attached = ChatFile | ChatImage


@dataclass(eq=False)
class Feed:
    """One turn.

    Attributes:
        question: What was asked.
        events: As they came.
    """

    user: str
    conversation: str
    question: str
    files: tuple[ChatFile, ...] = ()
    turn: str = field(default_factory=uuid7)
    events: list[FeedEvent] = field(default_factory=list)
    _open: dict[str, float] = field(default_factory=dict)
    """Until when each question may be answered, by id; not those that were."""
    _ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def _is_over(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], TurnFinal | TurnError)

    async def follow(self) -> AsyncIterator[FeedEvent]:
        """Yield the events from the first to the last; followers do not wait for each other.

        A question that can no longer be answered is left out; others have the time that is left.
        """
        at = 0
        while True:
            changed = self._changed
            while at < len(self.events):
                at += 1
                event = self.events[at - 1]
                if isinstance(event, ConfirmationWanted):
                    left = self._open.get(event.id, 0.0) - time.monotonic()
                    if left <= 0:
                        continue
                    event = event.model_copy(update={"expires_s": left})
                yield event
            if self._ended:
                return
            await changed.wait()

    async def answer(self, api: Api, question: str, *, approve: bool) -> None:
        """Answer a question of the turn, and tell it to all followers.

        Raises:
            StrawberryError: As the operation says it.
        """
        await api(confirm, self.turn, question, approve=approve)
        self._open.pop(question, None)
        if not self._is_over:
            self._add(Answered(id=question))

    async def run(self, api: Api, request: Mapping[str, Json]) -> None:
        """Ask, and take in what comes.

        Args:
            request: The fields of a `ChatRequest`.
        """
        try:
            turn = await api.ask(validated(ChatRequest, request, what="field"))
            async with aclosing(turn.events()) as events:
                async for event in events:
                    self._add(event)
        except StrawberryError as error:
            code: Literal["no_model", "refused"] = (
                "no_model" if isinstance(error, GatewayError) else "refused"
            )
            self._add(TurnError(code=code, message=error.message, hint=for_people(error.hint)))
        finally:
            if not self._is_over:
                self._add(TurnError(code="cancelled", message="the turn was cancelled"))
            self._ended = True
            self._changed.set()

    def _add(self, event: FeedEvent) -> None:
        if isinstance(event, ConfirmationWanted):
            self._open[event.id] = time.monotonic() + event.expires_s
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
        agent: str = "assistant",
        device: str | None = None,
        replaces: str | None = None,
        attached: Sequence[Attached] = (),
    ) -> Feed:
        """Begin a turn.

        Args:
            device: Name of the current device.
            replaces: Id of the turn whose place it takes.
        """
        images = [each for each in attached if isinstance(each, ChatImage)]
        files = [each for each in attached if isinstance(each, ChatFile)]
        named = (each if isinstance(each, ChatFile) else ChatFile(name=each.name) for each in attached)
        feed = Feed(user, conversation, question, tuple(named))
        request: dict[str, Json] = {
            "message": question,
            "agent": agent,
            "conversation": conversation,
            "turn": feed.turn,
            "device": device,
            "can_confirm": True,
            "replaces": replaces,
            "files": files,
            "images": images,
        }
        self._feeds.append(feed)
        self._tasks.create_task(self._run(feed, api, request), name=f"web: turn {feed.turn}")
        return feed

    def of(self, user: str, conversation: str) -> dict[str, Feed]:
        """Return a person's turns of a conversation that run or have just ended, by id, the oldest first."""
        return {
            each.turn: each for each in self._feeds if (each.user, each.conversation) == (user, conversation)
        }

    async def _run(self, feed: Feed, api: Api, request: Mapping[str, Json]) -> None:
        try:
            await feed.run(api, request)
        finally:
            asyncio.get_running_loop().call_later(limits.TURN_EVENTS_KEPT_S, self._feeds.remove, feed)
