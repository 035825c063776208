"""The history of one device in its file, and what is done with the hub's answers."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_core.conversation import Words
from contracts.errors import ConfigError, Disconnected, InvalidMessage
from contracts.history import Entry, Place, SyncAnswer, SyncRequest
from spoke.chat.history import FILE_NAME, History, open_history
from spoke.chat.sync import HistorySync, SyncSettings
from tests.spoke.home import wait_for

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HUB = "hub-main.00000000000a"


class Clock:
    """A clock that can be set."""

    now = NOON.timestamp()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opening(directory: Path, clock: Clock, *, home: str = "home") -> AbstractAsyncContextManager[History]:
    return open_history(directory, home=home, device="kitchen", clock=clock)


@pytest.fixture
async def history(tmp_path: Path, clock: Clock) -> AsyncIterator[History]:
    async with opening(tmp_path, clock) as opened:
        yield opened


def asks(turn: str, text: str = "", *, conversation: str = "c") -> Words:
    return Words(conversation, turn, "question", text or f"{turn}?")


def answers(turn: str, text: str = "", **more: Any) -> Words:
    return Words("c", turn, "answer", text or f"{turn}!", mode="offline", **more)


def from_hub(seq: int, turn: str, *, at: timedelta = timedelta(), **more: Any) -> Entry:
    given = {"kind": "question", "text": f"{turn}?"} | more
    return Entry(origin=HUB, seq=seq, conversation="c", turn=turn, at=NOON + at, **given)


def answer(*entries: Entry, number: int = 1, **more: Any) -> SyncAnswer:
    last = entries[-1]
    place = Place(number=number, origin=last.origin, seq=last.seq)
    return SyncAnswer(entries=entries, place=place, **more)


async def questions(history: History) -> list[str]:
    return [exchange.question for exchange in await history.read("c")]


async def test_what_was_said_is_there_after_a_start_and_the_next_start_counts_anew(
    tmp_path: Path, clock: Clock
) -> None:
    async with opening(tmp_path, clock) as first:
        await first.append(asks("a"))
        await first.append(answers("a", did=("devices.tv.Tv.off: done",)))
    async with opening(tmp_path, clock) as second:
        (exchange,) = await second.read("c")
        assert (exchange.question, exchange.answer, exchange.device) == ("a?", "a!", "kitchen")
        assert exchange.did == ("devices.tv.Tv.off: done",)
        await second.append(asks("b"))
        assert await questions(second) == ["a?", "b?"]
        sent = (await second.outgoing()).entries
        assert [each.seq for each in sent if each.origin == first.origin] == [1, 2]
        assert [each.seq for each in sent if each.origin == second.origin] == [1]


async def test_a_clock_that_is_set_back_between_two_starts_changes_no_order(
    tmp_path: Path, clock: Clock
) -> None:
    for turn in "abc":
        async with opening(tmp_path, clock) as history:
            await history.append(asks(turn))
        clock.now -= 10_000
    async with opening(tmp_path, clock) as history:
        assert await questions(history) == ["a?", "b?", "c?"]


async def test_the_last_turns_are_read(history: History) -> None:
    for turn in "abc":
        await history.append(asks(turn))
        await history.append(answers(turn))
    await history.append(asks("d"))
    last = [(exchange.question, exchange.answer) for exchange in await history.read("c", limit=2)]
    assert last == [("c?", "c!"), ("d?", None)]


async def test_the_conversations_come_latest_first_with_their_first_question(
    history: History, clock: Clock
) -> None:
    # The one that began first is the one in which something was said last.
    for turn, conversation in enumerate("cdec"):
        await history.append(asks(f"{conversation}{turn}", conversation=conversation))
        clock.now += 1
    known = await history.conversations(limit=2)
    assert [(each.id, each.asked) for each in known] == [("c", "c0?"), ("e", "e2?")]
    assert known[0].last == NOON + timedelta(seconds=3)


async def test_a_conversation_of_which_only_an_answer_has_come_is_not_listed_yet(history: History) -> None:
    await history.take(SyncRequest(), answer(from_hub(1, "h", kind="answer", text="h!")))
    assert await history.conversations(limit=5) == []
    await history.take(SyncRequest(), answer(from_hub(2, "h"), number=2))
    assert [each.asked for each in await history.conversations(limit=5)] == ["h?"]


async def test_what_was_said_in_another_home_stays_there(tmp_path: Path, clock: Clock) -> None:
    async with opening(tmp_path, clock) as history:
        await history.append(asks("a"))
        await history.take(SyncRequest(), answer(from_hub(1, "h")))
    async with opening(tmp_path, clock, home="other") as history:
        assert await history.read("c") == []
        assert await history.outgoing() == SyncRequest()
    async with opening(tmp_path, clock) as history:
        assert len(await history.read("c")) == 2


async def test_two_parts_of_a_conversation_are_shown_in_order_of_time(history: History, clock: Clock) -> None:
    clock.now += 60
    await history.append(asks("here"))
    await history.take(
        SyncRequest(), answer(from_hub(1, "before"), from_hub(2, "after", at=timedelta(minutes=2)))
    )
    assert await questions(history) == ["before?", "here?", "after?"]


async def test_the_same_answer_twice_is_stored_once(history: History) -> None:
    for _ in range(2):
        await history.take(SyncRequest(), answer(from_hub(1, "h")))
    assert await questions(history) == ["h?"]


async def test_an_entry_with_another_content_is_left_out_and_logged(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    await history.append(asks("mine"))
    await history.take(SyncRequest(), answer(from_hub(1, "h")))
    in_my_name = from_hub(9, "x").model_copy(update={"origin": history.origin})
    with caplog.at_level(logging.WARNING):
        await history.take(SyncRequest(), answer(from_hub(1, "h", text="forged"), in_my_name, number=3))
    assert "2 entries with another content" in caplog.text
    assert sorted(await questions(history)) == ["h?", "mine?"]


async def test_what_the_hub_has_is_not_sent_again_and_what_it_lost_is(history: History) -> None:
    for turn in "abc":
        await history.append(asks(turn))
    request = await history.outgoing()
    assert not await history.is_told()
    await history.take(request, SyncAnswer(have={history.origin: 3}))
    assert await history.is_told()
    await history.take(SyncRequest(), SyncAnswer(have={history.origin: 1}))
    assert [each.seq for each in (await history.outgoing()).entries] == [2, 3]
    await history.take(SyncRequest(), SyncAnswer(again=True))
    assert [each.seq for each in (await history.outgoing()).entries] == [1, 2, 3]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
async def test_what_was_said_last_of_working_offline_is_known_after_a_start_for_each_conversation(
    tmp_path: Path, clock: Clock
) -> None:
    async with opening(tmp_path, clock) as first:
        assert not await first.works_offline("c")
        await first.set_offline("c", offline=True)
        await first.set_offline("c", offline=True)
        await first.set_offline("d", offline=True)
        await first.set_offline("d", offline=False)
    async with opening(tmp_path, clock) as second:
        assert [await second.works_offline(each) for each in ("c", "d", "e")] == [True, False, False]
        await second.set_offline("c", offline=False)
        assert not await second.works_offline("c")
    async with opening(tmp_path, clock, home="another home") as moved:
        assert not await moved.works_offline("c")


async def test_a_file_of_the_first_version_keeps_what_it_has(tmp_path: Path, clock: Clock) -> None:
    async with opening(tmp_path, clock) as history:
        await history.append(asks("a"))
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("DROP TABLE offline")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    async with opening(tmp_path, clock) as history:
        assert await questions(history) == ["a?"]
        await history.set_offline("c", offline=True)
        assert await history.works_offline("c")


async def test_only_the_owner_may_read_the_file_and_its_journal(tmp_path: Path, clock: Clock) -> None:
    async with opening(tmp_path / "spoke", clock) as history:
        await history.append(asks("a"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "spoke").iterdir()}
    assert set(modes) == {FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"}
    assert set(modes.values()) == {0o600}


async def test_a_file_that_is_no_database_is_refused_with_its_name(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all, but long enough to look at" * 100)
    with pytest.raises(ConfigError, match=r"history\.db"):
        async with opening(tmp_path, clock):
            pass


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path, clock: Clock) -> None:
    async with opening(tmp_path, clock):
        pass
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="newer version"):
        async with opening(tmp_path, clock):
            pass


class Hub:
    """A hub that answers what it is told to."""

    def __init__(self) -> None:
        self.asked: list[SyncRequest] = []
        self.answers: list[SyncAnswer | Disconnected] = []

    async def exchange(self, request: SyncRequest) -> SyncAnswer:
        self.asked.append(request)
        have = {each.origin: each.seq for each in request.entries}
        said = self.answers.pop(0) if self.answers else SyncAnswer(have=have, place=request.after)
        if isinstance(said, Disconnected):
            raise said
        return said


async def test_a_sync_goes_on_until_neither_has_anything_for_the_other(history: History) -> None:
    for turn in range(250):
        await history.append(asks(f"t{turn}"))
    hub = Hub()
    await HistorySync(history, hub).sync_now()
    assert [len(request.entries) for request in hub.asked] == [100, 100, 50]
    hub.answers = [
        answer(from_hub(1, "x"), number=1, more=True),
        answer(from_hub(2, "y"), number=2),
    ]
    await HistorySync(history, hub).sync_now()
    assert [request.after.number if request.after else 0 for request in hub.asked[3:]] == [0, 1]


async def test_what_is_said_during_a_sync_that_had_nothing_to_tell_is_told_too(history: History) -> None:
    hub = Hub()

    class Talkative:
        async def exchange(self, request: SyncRequest) -> SyncAnswer:
            if not hub.asked:
                await history.append(asks("a"))
            return await hub.exchange(request)

    await HistorySync(history, Talkative()).sync_now()
    assert [[each.text for each in request.entries] for request in hub.asked] == [[], ["a?"]]


@pytest.mark.parametrize("again", [False, True])
async def test_a_hub_that_never_comes_nearer_ends_the_sync(history: History, again: bool) -> None:
    await history.append(asks("a"))
    hub = Hub()
    hub.answers = [SyncAnswer(more=True, again=again)] * 9
    with pytest.raises(InvalidMessage):
        await HistorySync(history, hub).sync_now()


async def test_the_task_syncs_at_its_start_when_woken_and_again_after_a_failure(history: History) -> None:
    hub = Hub()
    hub.answers = [Disconnected("away"), Disconnected("away")]
    sync = HistorySync(history, hub, settings=SyncSettings(every_s=3600, retry_s=0.01))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(sync.run())
        await wait_for(lambda: len(hub.asked) == 3, "a sync after two that failed")
        await history.append(asks("a"))
        sync.wake()
        await wait_for(lambda: len(hub.asked) == 4, "a sync when woken")
        running.cancel()
    assert [each.text for each in hub.asked[3].entries] == ["a?"]
