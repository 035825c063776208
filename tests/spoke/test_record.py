"""The outbox and the cache of a spoke, in their file."""

import asyncio
import os
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chat.turns import Turn
from contracts.chat.messages import MAX_PUSHED, ChatRequest, TextDelta, TurnError, TurnFinal, TurnRecord
from contracts.errors import ConfigError, Conflict, StorageError
from spoke.chat.database import FILE_NAME
from spoke.chat.record import SpokeRecord, open_record

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that can be set."""

    now = NOON.timestamp()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opening(
    directory: Path, clock: Clock, *, home: str = "home/ann"
) -> AbstractAsyncContextManager[SpokeRecord]:
    return open_record(directory, home=home, clock=clock, recorded=lambda: None)


@pytest.fixture
async def record(tmp_path: Path, clock: Clock) -> AsyncIterator[SpokeRecord]:
    async with opening(tmp_path, clock) as opened:
        yield opened


def asks(name: str, *, conversation: str = "c", message: str = "") -> Turn:
    request = ChatRequest(message=message or f"{name}?", turn=name, conversation=conversation)
    return Turn(request, user="here", device="kitchen")


async def answered(record: SpokeRecord, turn: Turn, *, at_hub: bool = False, answer: str = "") -> None:
    await record.begin(turn)
    turn.at_hub = at_hub
    mode: Any = "online" if at_hub else "offline"
    turn.emit(TurnFinal(answer=answer or f"{turn.id}!", mode=mode))
    await record.end(turn)


def at_hub(name: str, *, at: int = 0, conversation: str = "c", **more: Any) -> TurnRecord:
    given: dict[str, Any] = {"question": f"{name}?", "answer": f"{name}!", "state": "finished"} | more
    moment = NOON + timedelta(seconds=at)
    return TurnRecord(turn=name, conversation=conversation, at=moment, ended_at=moment, **given)


async def questions(record: SpokeRecord, conversation: str = "c") -> list[str]:
    return [turn.question for turn in await record.turns(conversation, limit=99)]


async def outbox(record: SpokeRecord) -> list[str]:
    return [turn.turn for turn in await record.outbox()]


async def test_a_turn_answered_alone_is_in_the_outbox_until_it_is_pushed_and_in_the_cache_after(
    tmp_path: Path, clock: Clock
) -> None:
    async with opening(tmp_path, clock) as first:
        await answered(first, asks("a"))
        await answered(first, asks("b"), at_hub=True)
    async with opening(tmp_path, clock) as second:
        (turn,) = await second.outbox()
        assert (turn.turn, turn.question, turn.answer, turn.mode) == ("a", "a?", "a!", "offline")
        assert (turn.device, turn.state, turn.at) == ("kitchen", "finished", NOON)
        await second.pushed(["a"])
    async with opening(tmp_path, clock) as third:
        assert await third.outbox() == []
        assert await questions(third) == ["a?", "b?"]


async def test_a_turn_is_recorded_before_anything_of_it_happens_and_survives_a_kill(
    tmp_path: Path, clock: Clock
) -> None:
    async with opening(tmp_path, clock) as killed:
        await killed.begin(asks("a"))
        assert await outbox(killed) == [], "it still runs"
        assert await killed.turns("c", limit=9, ended=True) == []
    async with opening(tmp_path, clock) as after:
        (turn,) = await after.outbox()
        assert (turn.question, turn.answer, turn.state) == ("a?", None, "cancelled")
        with pytest.raises(Conflict, match="was used before"):
            await after.begin(asks("a"))


async def test_what_came_of_an_answer_that_broke_off_is_recorded(record: SpokeRecord) -> None:
    turn = asks("a")
    await record.begin(turn)
    turn.emit(TextDelta(text="It is \ud83c"))
    turn.emit(TextDelta(text="\udf53 f"))
    turn.emit(TurnError(code="broken", message="the hub went away"))
    await record.end(turn)
    (recorded,) = await record.outbox()
    assert (recorded.answer, recorded.mode, recorded.state) == ("It is 🍓 f", None, "cancelled")


async def test_a_turn_cancelled_before_it_came_never_begins(record: SpokeRecord) -> None:
    assert await record.state("here", "a", through=None) == "not_started"
    with pytest.raises(Conflict, match="cancelled before it arrived"):
        await record.begin(asks("a"))
    assert await outbox(record) == []


async def test_of_a_turn_and_its_cancel_that_come_at_once_one_counts(record: SpokeRecord) -> None:
    state, begun = await asyncio.gather(
        record.state("here", "a", through=None), record.begin(asks("a")), return_exceptions=True
    )
    assert (state, type(begun)) == ("not_started", Conflict)
    begun, state = await asyncio.gather(record.begin(asks("b")), record.state("here", "b", through=None))
    assert (begun, state) == (None, "running")


async def test_a_clock_that_is_set_back_changes_no_order(tmp_path: Path, clock: Clock) -> None:
    for name in "abc":
        async with opening(tmp_path, clock) as record:
            await answered(record, asks(name))
        clock.now -= 10_000
    async with opening(tmp_path, clock) as record:
        assert await questions(record) == ["a?", "b?", "c?"]
        assert await outbox(record) == ["a", "b", "c"]


async def test_a_push_is_bounded_and_never_empty(record: SpokeRecord) -> None:
    await answered(record, asks("long"), answer="x" * 300_000)
    await answered(record, asks("short"))
    assert await outbox(record) == ["long"]
    await record.pushed(["long"])
    for number in range(MAX_PUSHED):
        await answered(record, asks(f"t{number}"))
    assert len(await outbox(record)) == MAX_PUSHED


async def test_of_a_full_outbox_no_more_is_read_than_is_pushed(record: SpokeRecord) -> None:
    for number in range(20):
        await answered(record, asks(f"t{number}"), answer="x" * 500_000)
    tracemalloc.start()
    try:
        await record.outbox()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


async def test_the_conversations_come_newest_first_with_their_first_question(
    record: SpokeRecord, clock: Clock
) -> None:
    # The one that began first is the one in which something was said last.
    for number, conversation in enumerate("cdec"):
        await answered(record, asks(f"{conversation}{number}", conversation=conversation))
        clock.now += 1
    known = await record.conversations(limit=2)
    assert [(each.id, each.asked) for each in known] == [("c", "c0?"), ("e", "e2?")]
    assert known[0].at == NOON + timedelta(seconds=3)


async def test_what_was_said_in_another_home_or_by_another_owner_stays_there(
    tmp_path: Path, clock: Clock
) -> None:
    async with opening(tmp_path, clock) as record:
        await answered(record, asks("a"))
    for other in ("other/ann", "home/bob"):
        async with opening(tmp_path, clock, home=other) as record:
            assert await questions(record) == []
            assert await record.outbox() == []
            assert await record.conversations(limit=9) == []


async def test_the_cache_takes_the_hubs_record_and_keeps_what_is_not_pushed(record: SpokeRecord) -> None:
    await answered(record, asks("seen"), at_hub=True)
    await answered(record, asks("mine"))
    await record.cache(
        [at_hub("seen", at=-9, untrusted=True), at_hub("mine", answer="wrong"), at_hub("new", at=-5)]
    )
    shown = await record.turns("c", limit=9)
    assert [(turn.turn, turn.answer) for turn in shown] == [
        ("seen", "seen!"),
        ("new", "new!"),
        ("mine", "mine!"),
    ]
    assert shown[0].untrusted
    assert await outbox(record) == ["mine"]
    await record.cache([at_hub("runs", state="running", answer=None)])
    assert "runs?" not in await questions(record)


async def test_conversations_that_the_hub_does_not_know_any_more_go(record: SpokeRecord) -> None:
    for name in ("kept", "gone", "half"):
        await answered(record, asks(name, conversation=name), at_hub=True)
    await answered(record, asks("pending", conversation="half"))
    before = await record.cached()
    await answered(record, asks("later", conversation="gone"), at_hub=True)
    await answered(record, asks("new", conversation="new"), at_hub=True)
    await record.evict(before, known=["kept"])
    assert await questions(record, "kept") == ["kept?"]
    assert await questions(record, "gone") == ["later?"], "the hub was asked before"
    assert await questions(record, "half") == ["pending?"]
    assert await questions(record, "new") == ["new?"]


async def test_a_full_disk_is_said_in_one_line_and_loses_nothing(record: SpokeRecord) -> None:
    await answered(record, asks("before"))
    turn = asks("a")
    await record.begin(turn)
    turn.emit(TurnFinal(answer="x" * 1_000_000, mode="offline"))

    def allow(more: int) -> Callable[[sqlite3.Connection], None]:
        def work(connection: sqlite3.Connection) -> None:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + more}")

        return work

    await record.database.run(allow(0))
    with pytest.raises(StorageError, match="the disk is full") as full:
        await record.end(turn)
    assert full.value.hint == "Free some space."
    await record.database.run(allow(1_000))
    await record.end(turn)
    assert {each.turn for each in await record.turns("c", limit=9, ended=True)} == {"before", "a"}


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
async def test_only_the_owner_may_read_the_file_and_its_journal(tmp_path: Path, clock: Clock) -> None:
    async with opening(tmp_path / "spoke", clock) as record:
        await answered(record, asks("a"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "spoke").iterdir()}
    assert set(modes) == {FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"}
    assert set(modes.values()) == {0o600}


async def test_a_file_that_is_no_database_is_refused_with_its_name(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all, but long enough to look at" * 100)
    with pytest.raises(ConfigError, match=FILE_NAME):
        async with opening(tmp_path, clock):
            pass


async def test_a_file_of_another_version_is_refused_and_left_alone(tmp_path: Path, clock: Clock) -> None:
    async with opening(tmp_path, clock):
        pass
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="another version"):
        async with opening(tmp_path, clock):
            pass
