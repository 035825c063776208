"""What a home asks its database: a turn, a search and a page of history, on PostgreSQL beside SQLite."""

import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import accumulate, count, product
from pathlib import Path
from typing import Final

from sqlalchemy import insert, text

from benchmarks.measure import Effort, median_ms
from benchmarks.table import Row, not_measured
from chat.tasks import open_tasks
from chat.turns import Turn
from contracts.chat.messages import ChatRequest, TurnFinal
from hub_agent.chat.history import Histories, Reader
from hub_agent.chat.record import ConversationRecord
from hub_agent.tables import TraceRow, TurnRow
from hub_registry.storage.store import Place, Store, open_store
from hub_registry.storage.tables import now
from tests import postgresql
from tests.ports import free_port

_TURNS: Final = 20_000
"""Turns that there are: a year of a household that says 55 things a day."""
_CONVERSATIONS: Final = 400
_REPEATS: Final = 200
_ROUNDS: Final = 4
_PAGE: Final = 50
_USER: Final = "ann"
_WORDS: Final = ["".join(each) for each in product("bdfgklmnprst", "aeiou", "blmnrst", "aeo", "lnr")]
"""Some 3,800; as in a language, each is said the less often the later it comes."""
_OFTEN: Final = list(accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))


@dataclass(frozen=True)
class _Database:
    """One database with a year of conversations, and what is asked of it."""

    store: Store
    record: ConversationRecord
    histories: Histories
    chance: random.Random
    number: "count[int]"

    async def turn(self) -> None:
        name = f"c{self.chance.randrange(_CONVERSATIONS)}"
        request = ChatRequest(message=_said(self.chance), turn=f"new{next(self.number)}", conversation=name)
        turn = Turn(request, user=_USER)
        await self.record.begin(turn)
        await self.histories.read(Reader(_USER, name, None, ("",)))
        turn.emit(TurnFinal(answer=_said(self.chance), mode="online"))
        await self.record.end(turn)

    async def search(self) -> None:
        words = " ".join(self.chance.choices(_WORDS, k=3))
        await self.histories.search(_USER, words, turn=None, device=None, limit=5)

    async def page(self) -> None:
        name = f"c{self.chance.randrange(_CONVERSATIONS)}"
        assert await self.record.turns(_USER, name, limit=_PAGE)

    async def conversations(self) -> None:
        assert await self.record.conversations(_USER, limit=_PAGE)

    async def read(self) -> None:
        assert await self.store.read(lambda session: session.get(TurnRow, (_USER, "t7")))

    async def write(self) -> None:
        row = TraceRow(
            user=_USER,
            turn=f"new{next(self.number)}",
            at=now(),
            input_tokens=0,
            output_tokens=0,
            ms={},
            left_out=0,
            spans=b"",
        )
        await self.store.write(lambda session: session.add(row))


_WORK: Final[dict[str, Callable[[_Database], Awaitable[None]]]] = {
    "a turn: begun, its history read, ended": _Database.turn,
    f"a search in {_TURNS:,} turns": _Database.search,
    "a page of history": _Database.page,
    "the list of conversations": _Database.conversations,
    "one row read": _Database.read,
    "one row written": _Database.write,
}


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure, taking turns; PostgreSQL keeps what it says in case of a crash, as it does by itself."""
    if postgresql.programs() is None:
        return [not_measured("PostgreSQL beside SQLite", postgresql.HINT)]
    with postgresql.Server(port=free_port(), options="") as server:
        async with (
            _database(directory / "hub.db", effort) as sqlite,
            _database(server.create("bench"), effort) as remote,
        ):
            return [await _compared(name, work, remote, sqlite, effort) for name, work in _WORK.items()]


async def _compared(
    name: str,
    work: Callable[[_Database], Awaitable[None]],
    here: _Database,
    beside: _Database,
    effort: Effort,
) -> Row:
    took: dict[_Database, float] = dict.fromkeys((here, beside), math.inf)
    for _ in range(_ROUNDS):
        for each in took:
            repeats = effort.repeats(_REPEATS) // _ROUNDS or 1
            took[each] = min(took[each], await median_ms(partial(work, each), repeats=repeats, warm_up=5))
    return Row(f"{name}: PostgreSQL beside SQLite", took[here], "ms", reference=took[beside])


@asynccontextmanager
async def _database(place: Place, effort: Effort) -> AsyncIterator[_Database]:
    async with open_store(place) as store, open_tasks() as tasks:
        chance = random.Random(1)
        turns = [_turn(number, chance) for number in range(effort.size(_TURNS))]
        await store.write(lambda session: session.execute(insert(TurnRow), turns))
        await store.write(lambda session: session.execute(text("ANALYZE")))
        yield _Database(
            store,
            ConversationRecord(store, instance="main"),
            Histories(store, tokens=4_000, exchanges=40, tasks=tasks),
            chance,
            count(),
        )


def _turn(number: int, chance: random.Random) -> dict[str, object]:
    at = now() - timedelta(minutes=_TURNS - number)
    fixed = {"user": _USER, "agent": "", "did": [], "files": [], "untrusted": False, "instance": "main"}
    return {
        **fixed,
        "turn": f"t{number}",
        "conversation": f"c{number % _CONVERSATIONS}",
        "question": _said(chance),
        "answer": _said(chance),
        "mode": "online",
        "state": "finished",
        "at": at,
        "ended_at": at,
        "outcome": "answered",
    }


def _said(chance: random.Random) -> str:
    return " ".join(chance.choices(_WORDS, cum_weights=_OFTEN, k=chance.randrange(5, 40)))
