"""Phrases: a text keeps the template and values that it was made of, also as JSON."""

import json
import tracemalloc
from typing import Any

from contracts.devices.rpc import REPLY, Failure
from contracts.errors import Conflict, ErrorCode, NotFound, ProblemDetails
from contracts.phrases import Phrase, read_phrases, with_phrases


def sent(said: dict[str, Any]) -> dict[str, Any]:
    return read_phrases(json.loads(json.dumps(with_phrases(said))))


def test_an_error_keeps_its_values_and_says_them() -> None:
    inner = NotFound("there is no room {room!r}", room="a'b")
    error = Conflict(
        "{name} stays: {reason}", name="lamp", reason=inner, hint="Move {name} by {n:.1f} m.", n=2
    )
    assert str(error) == error.message == 'lamp stays: there is no room "a\'b"'
    assert error.hint == "Move lamp by 2.0 m."
    assert Phrase(error.message).values == {"name": "lamp", "reason": inner.message}


def test_text_of_strangers_is_no_template() -> None:
    assert NotFound("{name!r} {{}} {0.__class__}").message == "{name!r} {{}} {0.__class__}"
    assert Phrase("{name} said {said}", name="pc", said="{name}") == "pc said {name}"


def test_values_go_with_the_text_over_http() -> None:
    detail = Phrase("{name}: {said}", name="pc", said=Phrase("{n} files", n=3))
    problem = ProblemDetails.read({"code": "conflict", **sent({"detail": detail, "hint": "Wait."})})
    assert problem is not None
    assert problem.message == "pc: 3 files"
    assert Phrase(problem.message).values["said"].values == {"n": 3}
    assert problem.more == {}


def read(text: str, template: str, **values: Any) -> str:
    parts = {"template": template, "values": values}
    found = read_phrases({"said": text, "phrases": {"said": parts, "other": 1}})["said"]
    return str(Phrase(found).template)


def test_a_phrase_from_outside_must_say_its_text_and_be_small() -> None:
    assert read("q no", "{y} {z:.1f}", y="q", z="no") == "{y} {z:.1f}"
    assert read("[1]", "{x}", x=[1]) == "{x}"
    assert read("all is well", "{y}", y="q") == "all is well"
    assert read("{y[0]}{x:>99999}", "{y[0]}{x:>99999}", y="q", x="a") == "{y[0]}{x:>99999}"
    assert read("", "{y}" * 9_000, y="") == ""
    deep: Any = "q"
    for _ in range(17):
        deep = {"template": "{x}", "values": {"x": deep}}
    assert read("q", "{x}", x=deep) == "q"
    assert read_phrases({"said": 5, "phrases": None}) == {"said": 5}


def test_a_phrase_that_would_grow_far_beyond_its_text_is_refused_before_it_is_made() -> None:
    inner = {"template": "{b}" * 500, "values": {"b": "x" * 50}}
    grown = {"template": "{a}" * 1_000, "values": {"a": inner}}
    tracemalloc.start()
    for parts in (grown, {"template": "{a:9999}" * 400, "values": {"a": 1.5}}):
        assert read_phrases({"reason": "short", "phrases": {"reason": parts}}) == {"reason": "short"}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_failure_of_a_device_keeps_what_its_texts_were_made_of() -> None:
    message = Phrase("there is no note {title!r}", title="\u201cTea\u201d")
    sent = Failure(
        id="019a0000-0000-7000-8000-000000000000",
        epoch=1,
        code=ErrorCode.SKILL_ERROR,
        message=message,
        hint="plain",
    )
    read = REPLY.validate_json(sent.model_dump_json(by_alias=True))
    assert isinstance(read, Failure)
    assert isinstance(read.message, Phrase)
    assert (read.message, read.message.values) == (message, {"title": "\u201cTea\u201d"})
    assert not isinstance(read.hint, Phrase)
