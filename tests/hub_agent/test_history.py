"""The history on the hub: what is stored, and which device gets what."""

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chat.turns import Ending, TurnKey
from contracts.errors import Forbidden
from contracts.history import PAGE_ENTRIES, Entry, SyncAnswer, SyncRequest
from hub_agent.chat.conversations import Conversations
from hub_agent.chat.history import History
from hub_registry.storage.store import Store, open_store
from tests.hub_agent.home import Home

ANN, BOB = "ann", "bob"
KITCHEN, HALL = "kitchen", "hall"
START = f"{KITCHEN}.00000000000a"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(tmp_path / "hub.db") as opened:
        yield opened


@pytest.fixture
def conversations(store: Store) -> Conversations:
    return Conversations(store, instance="main")


@pytest.fixture
def history(store: Store) -> History:
    return History(store)


def entry(seq: int, *, origin: str = START, conversation: str = "c", **more: Any) -> Entry:
    given = {"kind": "question", "turn": f"{origin[0]}{seq}", "text": f"q{seq}"} | more
    return Entry(origin=origin, seq=seq, conversation=conversation, at=NOON + timedelta(seconds=seq), **given)


async def told(
    conversations: Conversations,
    name: str,
    *,
    user: str = ANN,
    conversation: str = "c",
    through: str | None = None,
) -> None:
    """A turn that the hub ran."""
    key = TurnKey(user, name)
    await conversations.begin(
        key, conversation=conversation, question=f"{name}?", device=through, through=through
    )
    await conversations.end(key, Ending("finished", f"{name}!", "online"))


def texts(answer: SyncAnswer) -> list[str]:
    return [each.text for each in answer.entries]


async def test_a_device_gets_a_conversation_whole_once_it_takes_part_and_no_other(
    history: History, conversations: Conversations
) -> None:
    await told(conversations, "secret", conversation="d")
    await told(conversations, "before")
    assert texts(await history.sync(ANN, KITCHEN, SyncRequest())) == []
    await told(conversations, "here", through=KITCHEN)
    answer = await history.sync(ANN, KITCHEN, SyncRequest())
    assert texts(answer) == ["before?", "before!", "here?", "here!"]
    await told(conversations, "after")
    answer = await history.sync(ANN, KITCHEN, SyncRequest(after=answer.place))
    assert texts(answer) == ["after?", "after!"]
    assert texts(await history.sync(ANN, KITCHEN, SyncRequest(after=answer.place))) == []
    assert texts(await history.sync(ANN, HALL, SyncRequest())) == []
    assert texts(await history.sync(BOB, KITCHEN, SyncRequest())) == []


async def test_a_conversation_of_the_same_name_of_another_person_is_another(
    history: History, conversations: Conversations
) -> None:
    await told(conversations, "bobs", user=BOB)
    await told(conversations, "anns", through=KITCHEN)
    assert texts(await history.sync(ANN, KITCHEN, SyncRequest())) == ["anns?", "anns!"]


async def test_what_a_device_brings_is_stored_once_and_is_the_hubs_context(
    history: History, conversations: Conversations
) -> None:
    brought = (entry(1), entry(2, turn="k1", kind="answer", text="a", mode="offline"))
    for _ in range(2):
        answer = await history.sync(ANN, KITCHEN, SyncRequest(entries=brought))
        assert (answer.have, answer.refused, answer.entries) == ({START: 2}, (), ())
    (exchange,) = await conversations.history(ANN, "c", limit=5)
    assert (exchange.question, exchange.answer, exchange.writer) == ("q1", "a", KITCHEN)
    # A device that lost its file begins anew, and gets its own words back.
    assert (await history.sync(ANN, KITCHEN, SyncRequest())).entries == brought


async def test_what_has_no_answer_yet_is_shown_to_people_and_not_told_to_models(
    conversations: Conversations,
) -> None:
    await told(conversations, "1")
    await conversations.begin(TurnKey(ANN, "2"), conversation="c", question="2?", device=None)
    said = await conversations.said(ANN, "c", limit=5)
    assert [(each.question, each.answer) for each in said] == [("1?", "1!"), ("2?", None)]
    assert [each.question for each in await conversations.history(ANN, "c", limit=1)] == ["1?"]


async def test_a_conversation_of_which_only_an_answer_has_come_is_not_listed_yet(
    history: History, conversations: Conversations
) -> None:
    await told(conversations, "older", conversation="d")
    brought = entry(1, turn="k1", kind="answer", text="a", mode="offline")
    await history.sync(ANN, KITCHEN, SyncRequest(entries=(brought,)))
    assert [each.id for each in await conversations.known(ANN, limit=1)] == ["d"]
    await history.sync(ANN, KITCHEN, SyncRequest(entries=(entry(2, turn="k1"),)))
    assert {each.id: each.asked for each in await conversations.known(ANN, limit=5)} == {
        "c": "q2",
        "d": "older?",
    }


async def test_an_answer_that_ended_with_an_error_counts_as_broken_off(conversations: Conversations) -> None:
    key = TurnKey(ANN, "1")
    await conversations.begin(key, conversation="c", question="q", device=None)
    await conversations.end(key, Ending("finished", "It is f"))
    await told(conversations, "2")
    assert [each.complete for each in await conversations.history(ANN, "c", limit=5)] == [False, True]


async def test_another_content_under_a_known_number_is_refused_and_logged_and_the_rest_goes_on(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    await history.sync(ANN, KITCHEN, SyncRequest(entries=(entry(1), entry(2))))
    forged = (entry(1, text="forged"), entry(2), entry(3))
    with caplog.at_level(logging.WARNING):
        answer = await history.sync(ANN, KITCHEN, SyncRequest(entries=forged))
    assert (answer.have, answer.refused) == ({START: 3}, ((START, 1),))
    assert "another content" in caplog.text
    assert "forged" not in caplog.text
    assert texts(await history.sync(ANN, KITCHEN, SyncRequest())) == ["q1", "q2", "q3"]


async def test_entries_after_a_gap_wait_until_the_gap_is_filled(history: History) -> None:
    answer = await history.sync(ANN, KITCHEN, SyncRequest(entries=(entry(1), entry(3))))
    assert answer.have == {START: 1}
    answer = await history.sync(ANN, KITCHEN, SyncRequest(entries=(entry(2), entry(3))))
    assert answer.have == {START: 3}


@pytest.mark.parametrize(
    "foreign",
    [
        entry(1, origin="hub-main.00000000000a"),
        entry(1, origin="hall.00000000000a"),
        entry(1, device=HALL),
    ],
)
async def test_a_device_writes_in_its_own_name_only(history: History, foreign: Entry) -> None:
    with pytest.raises(Forbidden):
        await history.sync(ANN, KITCHEN, SyncRequest(entries=(entry(1), foreign)))
    assert texts(await history.sync(ANN, KITCHEN, SyncRequest())) == []


async def test_pages_are_bounded_and_together_are_everything(history: History) -> None:
    sent = [entry(seq, text="x" * 3000) for seq in range(1, 121)]
    for start in (0, 60):
        await history.sync(ANN, KITCHEN, SyncRequest(entries=tuple(sent[start : start + 60])))
    got: list[Entry] = []
    answer = SyncAnswer(more=True)
    while answer.more:
        answer = await history.sync(ANN, KITCHEN, SyncRequest(after=answer.place))
        assert 0 < len(answer.entries) <= PAGE_ENTRIES
        assert len(answer.model_dump_json()) < 200 * 1024
        got += answer.entries
    assert got == sent


async def test_a_place_that_a_hub_set_back_never_had_begins_anew(history: History) -> None:
    await history.sync(ANN, KITCHEN, SyncRequest(entries=(entry(1), entry(2))))
    place = (await history.sync(ANN, KITCHEN, SyncRequest())).place
    assert place is not None
    for other in ({"number": 7}, {"seq": 1}):
        wrong = place.model_copy(update=other)
        answer = await history.sync(ANN, KITCHEN, SyncRequest(after=wrong))
        assert (answer.again, texts(answer), answer.place) == (True, ["q1", "q2"], place)


async def test_an_answer_stands_after_what_the_hub_knew_though_that_bears_a_later_time(
    history: History, conversations: Conversations
) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=5)
    brought = entry(1).model_copy(update={"at": ahead})
    await history.sync(ANN, KITCHEN, SyncRequest(entries=(Entry.model_validate(brought.model_dump()),)))
    await told(conversations, "later")
    answer = await history.sync(ANN, KITCHEN, SyncRequest())
    assert sorted(each.at for each in answer.entries) == [each.at for each in answer.entries]
    assert texts(answer) == ["q1", "later?", "later!"]


# Over HTTP


async def test_only_a_device_that_may_chat_syncs(home: Home) -> None:
    device = await home.device("Kitchen")
    body = SyncRequest(entries=(entry(1, origin=f"{device.id}.00000000000a"),)).model_dump(mode="json")
    async with home.client() as person, home.client(device.token) as kitchen, home.client("x") as nobody:
        assert (await person.post("/api/history/sync", json=body)).status_code == 403
        assert (await nobody.post("/api/history/sync", json=body)).status_code == 401
        answer = await kitchen.post("/api/history/sync", json=body)
        assert answer.status_code == 200
        assert SyncAnswer.model_validate(answer.json()).have == {f"{device.id}.00000000000a": 1}
        foreign = SyncRequest(entries=(entry(1, origin="hub-main.00000000000a"),)).model_dump(mode="json")
        refused = await kitchen.post("/api/history/sync", json=foreign)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        many = {"entries": [body["entries"][0]] * (PAGE_ENTRIES + 1)}
        assert (await kitchen.post("/api/history/sync", json=many)).status_code == 422
