"""How long one model may take."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from agent_core.models.entries import ModelEntry

_Piece = TypeVar("_Piece")


class AnswerClock:
    """The two limits of an entry: until the first piece of an answer, and until its end.

    Attributes:
        seconds: The one that counts right now.
    """

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._started = asyncio.get_running_loop().time()
        self.seconds = min(entry.first_token_s, entry.timeout_s)

    def limit(self) -> asyncio.Timeout:
        """Limit one wait; never a ``yield``, which would time the consumer's own work."""
        return asyncio.timeout_at(self._started + self.seconds)

    async def next_of(self, pieces: AsyncIterator[_Piece]) -> _Piece | None:
        """Wait for the next piece; None after the last one."""
        async with self.limit():
            piece = await anext(pieces, None)
        self.seconds = self._entry.timeout_s
        return piece
