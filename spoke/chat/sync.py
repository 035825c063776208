"""Pushes the outbox of a spoke to the hub, and refreshes its cache of conversations."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from chat.tasks import happens
from contracts.chat.messages import ConversationSummary, PushedTurns, TurnRecord
from contracts.chat.vocabulary import Vocabulary
from contracts.errors import NotFound, StrawberryError
from contracts.rates import Backoff
from contracts.wire import Json, Part
from spoke import limits
from spoke.chat.hub_health import HubHealth
from spoke.chat.record import SpokeRecord
from spoke.membership.hub_http import HubAnswer

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TURNS: Final = "/api/turns"
_AGENTS: Final = "/v1/models"
_CONVERSATIONS: Final = "/api/conversations"
_VOCABULARY: Final = "/api/vocabulary"
_NOT_TAKEN: Final = (413, 422)
"""Statuses of a hub that does not take what was pushed, however often it is sent."""


class _Named(Part):
    id: str


class _Listed(Part):
    data: list[_Named]


_RECORDED: Final = TypeAdapter(dict[str, list[str]])
_SUMMARIES: Final = TypeAdapter(list[ConversationSummary])
_EXCHANGES: Final = TypeAdapter(list[TurnRecord])


class Sync:
    """Brings what was said here to the hub, and reads the hub's record."""

    def __init__(self, record: SpokeRecord, hub: HubHealth) -> None:
        self._record = record
        self._hub = hub
        self._wanted = asyncio.Event()
        self._one = asyncio.Lock()

    def wake(self) -> None:
        self._wanted.set()

    async def push(self) -> None:
        """Push the outbox until it is empty.

        Raises:
            StrawberryError: If the hub cannot be asked; what it took is out of the outbox.
        """
        async with self._one:
            alone = False
            while page := await self._record.outbox():
                page = page[:1] if alone else page
                body = PushedTurns(turns=tuple(page)).model_dump(mode="json")
                answer = await self._ask("POST", _TURNS, body)
                if answer.status in _NOT_TAKEN and not alone:
                    # One that the hub can never take must not keep back the others.
                    alone = True
                    continue
                alone = False
                if answer.status in _NOT_TAKEN:
                    _log.warning("the hub does not take turn %s: %s", page[0].turn, answer.problem.message)
                else:
                    _log_foreign(page, answer.read(_RECORDED).get("recorded", []))
                await self._record.pushed(turn.turn for turn in page)

    async def open(self, *, until: float) -> None:
        """Check that the hub is there, and push the outbox, so that its record can be read.

        Args:
            until: How long it may take to answer, as a time of the loop's clock.

        Raises:
            StrawberryError: If the hub cannot be asked.
        """
        await self._hub.check(until=until)
        await self.push()

    async def refresh(self) -> None:
        """Read what was said elsewhere in conversations of this device.

        Raises:
            StrawberryError: If the hub cannot be asked.
        """
        before = await self._record.cached()
        known = await self.conversations(limit=limits.CONVERSATIONS_CACHED)
        for each in known:
            if before.latest.get(each.id) != each.at:
                await self._record.cache(await self.turns(each.id, limit=limits.TURNS_CACHED))
        await self._record.evict(before, known=[each.id for each in known])

    async def agent_names(self) -> list[str]:
        return [each.id for each in (await self._read(_AGENTS, _Listed)).data]

    async def vocabulary(self, language: str) -> Vocabulary:
        return await self._read(f"{_VOCABULARY}?language={quote(language, safe='')}", Vocabulary)

    async def conversations(self, *, limit: int, words: str = "") -> list[ConversationSummary]:
        """Return the conversations that the hub has of this device.

        Args:
            words: See `chat.service.ChatService.conversations`.

        Raises:
            StrawberryError: If the hub cannot be asked.
        """
        query = f"limit={limit}" + f"&q={quote(words, safe='')}" * bool(words)
        return await self._read(f"{_CONVERSATIONS}?{query}", _SUMMARIES)

    async def turns(self, conversation: str, *, limit: int, before: str | None = None) -> list[TurnRecord]:
        """Return the last turns of a conversation as the hub records them; none if it knows no such one.

        Args:
            before: Id of a turn of it; only those before that one are returned.

        Raises:
            StrawberryError: If the hub cannot be asked.
        """
        answer, body = await self._shown(conversation, limit=limit, before=before)
        exchanges = body.get("exchanges")
        shown = [each | {"conversation": conversation} for each in exchanges or () if isinstance(each, dict)]
        return answer.parse(_EXCHANGES, shown)

    async def title(self, conversation: str) -> str | None:
        """Return the title that a person gave a conversation.

        Raises:
            StrawberryError: If the hub cannot be asked.
        """
        title = (await self._shown(conversation, limit=1))[1].get("title")
        return title if isinstance(title, str) else None

    async def rename(self, conversation: str, title: str | None) -> None:
        await self._change("PATCH", conversation, {"title": title})

    async def delete(self, conversation: str) -> None:
        """Delete a conversation at the hub.

        Raises:
            NotFound: If the hub has no such conversation of this device.
            StrawberryError: If the hub cannot be asked, or refuses.
        """
        await self._change("DELETE", conversation)

    async def _shown(
        self, conversation: str, *, limit: int, before: str | None = None
    ) -> tuple[HubAnswer, dict[str, Json]]:
        query = f"limit={limit}" if before is None else f"limit={limit}&before={quote(before, safe='')}"
        answer = await self._ask("GET", f"{_CONVERSATIONS}/{quote(conversation, safe='')}?{query}")
        if answer.status not in (200, 404):
            raise answer.refusal()
        return answer, answer.body if answer.status == 200 and isinstance(answer.body, dict) else {}

    async def _change(self, method: str, conversation: str, body: Json = None) -> None:
        answer = await self._ask(method, f"{_CONVERSATIONS}/{quote(conversation, safe='')}", body)
        if answer.status == 404:
            problem = answer.problem
            raise NotFound(problem.message or f"there is no conversation {conversation!r}", hint=problem.hint)
        if answer.status not in (200, 204):
            raise answer.refusal()

    async def run(self) -> None:
        """Sync again and again until cancelled; a hub that is away is not an error."""
        backoff = Backoff(*limits.SYNC_RETRY_S)
        wait_s, told, refreshed = 0.0, "", float("-inf")
        loop = asyncio.get_running_loop()
        while True:
            await happens(self._wanted, within_s=wait_s)
            self._wanted.clear()
            try:
                await self.push()
                if loop.time() - refreshed >= limits.SYNC_EVERY_S:
                    await self.refresh()
                    refreshed = loop.time()
            except StrawberryError as error:
                if error.message != told:
                    _log.info("conversations are not synced yet: %s", error)
                told, wait_s = error.message, backoff.next()
            else:
                backoff.reset()
                wait_s, told = limits.SYNC_EVERY_S, ""

    async def _read(self, path: str, kind: type[T] | TypeAdapter[T]) -> T:
        return (await self._ask("GET", path)).read(kind)

    async def _ask(self, method: str, path: str, body: Json = None) -> HubAnswer:
        hub = await self._hub.hub()
        return await hub.http.request(method, path, body, bearer=self._hub.bearer)


def _log_foreign(page: Sequence[TurnRecord], recorded: Sequence[str]) -> None:
    for turn in page:
        if turn.turn not in recorded:
            _log.warning("the hub has recorded turn %s for another client, and keeps that", turn.turn)
