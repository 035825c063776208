"""What is recorded of a turn, and what a model is shown of earlier ones."""

import pytest

from agent_core.conversation import call_line, messages_of, storable
from agent_core.gateway.protocol import AssistantMessage, UserMessage
from contracts.chat import Exchange, SkillCalled


def test_an_exchange_without_an_answer_is_shown_as_such() -> None:
    messages = messages_of([Exchange(question="a?", answer="a!"), Exchange(question="b?")], reader=None)
    assert messages == (
        UserMessage("a?"),
        AssistantMessage("a!"),
        UserMessage("b?"),
        AssistantMessage("(no answer)"),
    )


@pytest.mark.parametrize(
    ("device", "mode", "reader", "mark"),
    [
        ("kitchen", "offline", None, "[Asked and answered on kitchen, offline]"),
        ("kitchen", "offline", "kitchen", ""),
        ("kitchen", "online", None, ""),
        ("kitchen", "online", "kitchen", ""),
        ("hall", "online", "kitchen", "[Asked on hall]"),
        (None, "online", "kitchen", "[Asked elsewhere]"),
    ],
)
def test_what_happened_elsewhere_is_marked(device: str, mode: str, reader: str, mark: str) -> None:
    exchange = Exchange.model_validate({"question": "a?", "answer": "a!", "device": device, "mode": mode})
    question, _ = messages_of([exchange], reader=reader)
    assert question == UserMessage("\n".join(filter(None, (mark, "a?"))))


def test_halves_of_characters_are_joined_and_lone_ones_replaced() -> None:
    assert storable("\ud83c\udf53 \ud83c") == "🍓 \ufffd"


def test_only_calls_that_ended_are_recorded() -> None:
    call = SkillCalled(id="1", path="devices.tv.Tv.off", device="tv", state="called")
    assert call_line(call) is None
    assert call_line(call.model_copy(update={"state": "failed"})) == "devices.tv.Tv.off on tv: failed"
