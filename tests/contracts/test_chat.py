"""Whom a message can be for."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel, ValidationError

from chat.http.completions import CompletionRequest
from contracts.chat.messages import ChatRequest, TurnRecord, moment_after, unknown_agent


def test_who_asks_for_an_unknown_agent_is_told_all_that_there_are() -> None:
    refusal = unknown_agent("cook", ("assistant", "finance"))
    assert refusal.message == "there is no agent 'cook'"
    assert refusal.hint == "The agents are: assistant, finance."


def test_a_turn_begins_after_all_that_is_known_of_its_conversation() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert moment_after(noon, None) == noon
    assert moment_after(noon, noon - timedelta(1)) == noon
    assert moment_after(noon, noon) > noon
    assert moment_after(noon, noon + timedelta(1)) > noon + timedelta(1)


def test_times_are_the_same_after_they_were_sent() -> None:
    at = datetime(2026, 1, 1, 12, 0, 0, 1999, tzinfo=UTC)
    made = TurnRecord(turn="t", conversation="c", question="q", state="finished", at=at)
    assert TurnRecord.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize("request_", [ChatRequest, CompletionRequest])
def test_a_name_that_no_agent_can_have_is_refused_before_anything_is_recorded(
    request_: type[BaseModel],
) -> None:
    name = {
        "agent": "a" * 65,
        "message": "hi",
        "model": "a" * 65,
        "messages": [{"role": "user", "content": "hi"}],
    }
    with pytest.raises(ValidationError, match="at most 64 characters"):
        request_.model_validate(name)
