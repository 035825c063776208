"""What is made of the entries of several writers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.conversation import Words, deed_of, exchanges_of, messages_of, moment_after, ordered
from agent_core.gateway.protocol import AssistantMessage, UserMessage
from contracts.events import Mode, SkillCalled
from contracts.history import PAGE_ENTRIES, PIECE, Entry, page_of

HUB, KITCHEN, HALL = "hub-main.00000000000a", "kitchen.00000000000b", "hall.00000000000c"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def entry(origin: str, seq: int, *, at: int = 0, turn: str = "t", text: str = "", **more: Any) -> Entry:
    kind = more.pop("kind", "question")
    moment = NOON + timedelta(seconds=at)
    return Entry(origin=origin, seq=seq, conversation="c", turn=turn, at=moment, kind=kind, text=text, **more)


def turn(
    origin: str, seq: int, name: str, *, at: int = 0, answer: str | None = "ok", **more: Any
) -> list[Entry]:
    asked = entry(origin, seq, at=at, turn=name, text=f"{name}?")
    if answer is None:
        return [asked]
    return [asked, entry(origin, seq + 1, at=at + 1, turn=name, text=answer, kind="answer", **more)]


def questions(entries: list[Entry]) -> list[str]:
    return [exchange.question for exchange in exchanges_of(entries)]


def test_turns_of_two_places_are_shown_in_order_of_time() -> None:
    entries = [*turn(HUB, 1, "a"), *turn(KITCHEN, 1, "b", at=10), *turn(HUB, 3, "c", at=20)]
    for shuffled in permutations(entries):
        assert questions(list(shuffled)) == ["a?", "b?", "c?"]


def test_at_the_same_time_the_origin_decides_and_then_the_number() -> None:
    entries = [*turn(KITCHEN, 1, "b"), *turn(HUB, 1, "a")]
    assert questions(entries) == questions(entries[::-1]) == ["a?", "b?"]


def test_an_answer_stays_with_its_question_though_another_place_spoke_in_between() -> None:
    asked, answered = turn(HUB, 1, "a")
    late = answered.model_copy(update={"at": NOON + timedelta(hours=1)})
    assert [each.turn for each in ordered([late, *turn(KITCHEN, 1, "b", at=10), asked])] == [
        "a",
        "a",
        "b",
        "b",
    ]


def test_a_clock_that_was_set_back_does_not_turn_an_origin_round() -> None:
    entries = [*turn(KITCHEN, 1, "a", at=1000), *turn(KITCHEN, 3, "b", at=5)]
    assert questions(entries) == ["a?", "b?"]


def test_a_new_entry_stands_after_all_that_its_writer_knew() -> None:
    future = NOON + timedelta(days=1)
    assert moment_after(NOON, None) == NOON
    assert moment_after(NOON, NOON - timedelta(1)) == NOON
    assert moment_after(NOON, future) > future


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Entries of three origins with clocks that jump, in any order and some of them twice."""
    made = [
        entry(origin, seq, at=at, turn=f"t{number}")
        for origin in (HUB, KITCHEN, HALL)
        for seq, (at, number) in enumerate(
            draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=6)), start=1
        )
    ]
    repeated = draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
    return list(draw(st.permutations(made + repeated)))


@given(logs(), st.randoms())
def test_the_order_is_the_same_whichever_way_the_entries_came(entries: list[Entry], chance: Any) -> None:
    shown = ordered(entries)
    shuffled = list(entries)
    chance.shuffle(shuffled)
    assert ordered(shuffled) == shown
    assert {each.key for each in shown} == {each.key for each in entries}
    assert len(shown) == len({each.key for each in entries})
    turns = [each.turn for each in shown]
    assert turns == sorted(turns, key=turns.index), "a turn was torn apart"
    for name in set(turns):
        for origin in (HUB, KITCHEN, HALL):
            numbers = [each.seq for each in shown if (each.turn, each.origin) == (name, origin)]
            assert numbers == sorted(numbers)


def test_a_turn_that_both_sides_wrote_down_is_shown_once_with_all_of_its_answer() -> None:
    seen = turn(KITCHEN, 1, "a", answer="It is f", mode="online", complete=False)
    kept = turn(HUB, 1, "a", answer="It is four.", mode="online", device="kitchen")
    (exchange,) = exchanges_of([*seen, *kept])
    assert (exchange.answer, exchange.complete, exchange.writer) == ("It is four.", True, "hub-main")
    (exchange,) = exchanges_of(seen)
    assert (exchange.answer, exchange.complete, exchange.writer) == ("It is f", False, "kitchen")


@pytest.mark.parametrize("mode", ["online", "sentence"])
def test_what_the_hub_answered_is_taken_from_the_hub_and_not_marked_where_it_was_asked(mode: Mode) -> None:
    seen = turn(KITCHEN, 1, "a", answer="four, it says", mode=mode)
    (exchange,) = exchanges_of([*seen, *turn(HUB, 1, "a", answer="four", mode=mode, device="kitchen")])
    assert exchange.writer == "hub-main"
    assert messages_of([replace(exchange, device="kitchen")], reader="kitchen")[0] == UserMessage("a?")


def test_text_from_outside_at_either_place_counts_for_the_whole_turn() -> None:
    seen = turn(KITCHEN, 1, "a", answer="news", untrusted=True, complete=False)
    (exchange,) = exchanges_of([*seen, *turn(HUB, 1, "a", answer="the news")])
    assert exchange.untrusted


def test_a_question_without_an_answer_is_shown_and_not_told_to_the_model() -> None:
    (exchange,) = exchanges_of(turn(HUB, 1, "a", answer=None))
    assert (exchange.question, exchange.answer) == ("a?", None)
    assert messages_of([exchange], reader="hub-main") == ()


def test_the_model_is_told_what_came_from_elsewhere_and_only_in_a_persons_words() -> None:
    entries = [*turn(HUB, 1, "a"), *turn(KITCHEN, 1, "b", at=10, mode="offline")]
    assert messages_of(exchanges_of(entries), reader="hub-second") == (
        UserMessage("a?"),
        AssistantMessage("ok"),
        UserMessage("[Asked and answered on kitchen, offline]\nb?"),
        AssistantMessage("ok"),
    )
    assert messages_of(exchanges_of(entries), reader="kitchen") == (
        UserMessage("[Asked and answered on the hub]\na?"),
        AssistantMessage("ok"),
        UserMessage("b?"),
        AssistantMessage("ok"),
    )


def test_a_long_text_is_cut_into_entries_and_whole_again() -> None:
    text = "0123456789\n" * 4000
    question = Words("c", "t", "question", text).entries(origin=HUB, seq=1, at=NOON)
    answer = Words("c", "t", "answer", text[::-1]).entries(origin=HUB, seq=len(question) + 1, at=NOON)
    assert [each.seq for each in (*question, *answer)] == [1, 2, 3, 4, 5, 6]
    assert max(len(each.text) for each in question) == PIECE
    (exchange,) = exchanges_of([*answer, *question])
    assert (exchange.question, exchange.answer) == (text, text[::-1])


def test_characters_that_came_in_two_halves_are_joined_and_lone_halves_replaced() -> None:
    (made,) = Words("c", "t", "answer", "\ud83c\udf53 \ud83c").entries(origin=HUB, seq=1, at=NOON)
    assert made.text == "🍓 \ufffd"


def test_only_what_was_done_is_kept_of_the_skills() -> None:
    call = SkillCalled(id="1", path="devices.tv.Tv.off", device="tv", state="called")
    assert deed_of(call) is None
    assert deed_of(call.model_copy(update={"state": "failed"})) == "devices.tv.Tv.off on tv: failed"


def test_a_page_holds_so_many_entries_and_never_none() -> None:
    short = [entry(HUB, seq) for seq in range(1, 2 * PAGE_ENTRIES)]
    assert page_of(short) == short[:PAGE_ENTRIES]
    long = [entry(HUB, seq, text="\x00" * PIECE) for seq in range(1, 5)]
    assert page_of(long) == long[:1]


def test_times_are_the_same_after_they_were_sent() -> None:
    made = entry(HUB, 1).model_copy(update={"at": NOON})
    fine = Entry.model_validate(made.model_dump() | {"at": NOON + timedelta(microseconds=1999)})
    assert Entry.model_validate_json(fine.model_dump_json()) == fine
