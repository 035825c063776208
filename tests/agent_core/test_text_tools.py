import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.gateway.protocol import ToolSpec
from agent_core.provenance import EMPTY
from agent_core.tools.text_tools import Screen, printed_calls

TOOLS = (
    ToolSpec("python_exec", EMPTY, {"type": "object", "properties": {"code": {"type": "string"}}}),
    ToolSpec("search_skills", EMPTY, {"type": "object", "properties": {"query": {"type": "string"}}}),
)

MARKS = ("```", "```json\n", "`", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "python_exec(", "print(")
TEXTS = ("\n", " ", "x", "<", "{", "}", "[", ")", '"', "python_exec('1')")
CALL = '{"name": "python_exec", "arguments": {"code": "1"}}'
PIECES = st.sampled_from((*MARKS, *TEXTS, CALL))


@given(st.lists(PIECES, max_size=14))
@settings(max_examples=300, deadline=None)
def test_however_an_answer_is_cut_into_pieces_nothing_is_lost_or_doubled(pieces: list[str]) -> None:
    screen = Screen(TOOLS)
    shown = [part for piece in pieces for part in screen.feed(piece)]
    assert "".join(shown) + screen.rest() == "".join(pieces)


@given(st.lists(PIECES, max_size=14))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_reader_of_printed_calls(pieces: list[str]) -> None:
    found = printed_calls("".join(pieces), TOOLS, prefix="p")
    if found is not None:
        assert {call.name for call in found.calls} <= {"python_exec", "search_skills"}
        assert all(call.arguments is not None for call in found.calls)


def test_several_printed_calls_are_read_in_order() -> None:
    text = "".join(
        f'<tool_call>{{"name": "python_exec", "arguments": {{"code": "{number}"}}}}</tool_call>\n'
        for number in range(3)
    )
    found = printed_calls(text, TOOLS, prefix="p")
    assert found is not None
    assert [call.arguments for call in found.calls] == [{"code": "0"}, {"code": "1"}, {"code": "2"}]
    assert len({call.id for call in found.calls}) == 3
    assert found.text == ""


@pytest.mark.parametrize(
    "text",
    [
        "search_skills(...)",
        "```\npython_exec({1})\n```",
        '{"name": ["Anna", "Ben"]}',
        "```json\n" + "[" * 50_000 + "\n```",
        '{"name": "search_skills", "arguments": {"query": "\\ud83d"}}',
    ],
    ids=["dots", "set", "names", "deep", "half a letter"],
)
def test_what_only_looks_like_a_call_is_text(text: str) -> None:
    assert printed_calls(text, TOOLS, prefix="p") is None


def test_nothing_is_evaluated_but_literals() -> None:
    assert printed_calls("```python\npython_exec(open('/etc/passwd').read())\n```", TOOLS, prefix="p") is None
    assert printed_calls("```python\npython_exec(**{'code': '1'})\n```", TOOLS, prefix="p") is None
