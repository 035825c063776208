"""The turns of this device, written down in its history: of each id at most one runs."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from agent_core.conversation import Exchange, Words
from chat.turns import Ending, TurnKey, TurnState
from contracts.errors import Conflict
from spoke.chat.history import History

_MOST_REMEMBERED: Final = 10_000
"""Ids of turns; older ones are found in their conversation."""


class SpokeLedger:
    """See ``chat.turns.Ledger``.

    Args:
        history: Where they are written down.
        wrote: Called when something new was written down.

    Attributes:
        history: As given.
        has_news: Whether something was answered here that the hub may not know; whoever tells it clears this.
    """

    def __init__(self, history: History, *, wrote: Callable[[], None]) -> None:
        self.has_news = True
        self.history = history
        self._wrote = wrote
        self._states: OrderedDict[TurnKey, TurnState] = OrderedDict()
        self._conversations: dict[TurnKey, str] = {}

    async def begin(
        self,
        key: TurnKey,
        *,
        conversation: str,
        question: str,
        device: str | None,
        agent: str = "",
        through: str | None = None,
    ) -> None:
        """See ``chat.turns.Ledger``."""
        if self._states.get(key) == "not_started":
            raise Conflict(
                f"turn {key.turn} was cancelled before it arrived", hint="Use a new turn id to ask again."
            )
        if key in self._states:
            raise _came_before(key)
        self._remember(key, "running")
        self._conversations[key] = conversation
        try:
            await self._write_question(key, Words(conversation, key.turn, "question", question, agent=agent))
        except BaseException:
            self._remember(key, "cancelled")
            del self._conversations[key]
            raise

    async def end(self, key: TurnKey, ending: Ending) -> None:
        """See ``chat.turns.Ledger``."""
        self._remember(key, ending.state)
        words = Words(
            self._conversations.pop(key),
            key.turn,
            "answer",
            ending.answer,
            mode=ending.mode,
            did=ending.did,
            untrusted=ending.untrusted,
            # Only a final event tells who answered; what ended with an error was broken off.
            complete=ending.mode is not None,
        )
        self.has_news = self.has_news or ending.mode != "online"
        await self.history.append(words)
        self._wrote()

    async def bury(self, key: TurnKey) -> TurnState:
        """See ``chat.turns.Ledger``."""
        if key not in self._states:
            self._remember(key, "not_started")
        return self._states[key]

    async def exchanges(self, conversation: str, *, limit: int) -> list[Exchange]:
        """Give the last answered turns of a conversation, wherever they ran, oldest first."""
        known = await self.history.read(conversation, limit=limit)
        return [exchange for exchange in known if exchange.answer is not None]

    async def _write_question(self, key: TurnKey, words: Words) -> None:
        if any(known.turn == key.turn for known in await self.history.read(words.conversation)):
            raise _came_before(key)
        await self.history.append(words)

    def _remember(self, key: TurnKey, state: TurnState) -> None:
        self._states[key] = state
        self._states.move_to_end(key)
        if len(self._states) > _MOST_REMEMBERED:
            self._states.popitem(last=False)


def _came_before(key: TurnKey) -> Conflict:
    return Conflict(f"turn id {key.turn} was used before", hint="Nothing was run again; use a new turn id.")
