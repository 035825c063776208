from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter
from typing_extensions import TypeAliasType

from agent_core import texts
from agent_core.sentences.responses import (
    MAX_ANSWER,
    BadResponse,
    check_response,
    failure_text,
    response_text,
)
from agent_core.skills.labels import Labels
from agent_core.skills.skill import Unit
from contracts.devices.registration import Method, MethodFlags
from contracts.errors import CallError, ErrorCode, NotFound
from contracts.wire import Json

NUMBER = {"type": "object", "properties": {"percent": {"type": "integer", "unit": "%"}}}

TREE = TypeAliasType("TREE", 'list["TREE"] | dict[str, "TREE"] | int')


def method(template: str = "", hint: Any = None, *, language: str = "en", read_only: bool = True) -> Method:
    schema = TypeAdapter(hint).json_schema(mode="serialization") if hint is not None else None
    return Method(
        name="m",
        signature="m()",
        parameters=NUMBER,
        result=schema,
        responses={language: template} if template else {},
        flags=MethodFlags(read_only=read_only),
    )


@pytest.mark.parametrize(
    ("template", "result", "text"),
    [
        ("The lamp is {result.is_on:on|off}.", {"is_on": True}, "The lamp is on."),
        (
            "It is {result.on:on|off}[{result.on:, at |}{result.level}].",
            {"on": True, "level": 4},
            "It is on, at 4.",
        ),
        (
            "It is {result.on:on|off}[{result.on:, at |}{result.level}].",
            {"on": False, "level": 4},
            "It is off.",
        ),
        (
            "{result.used:GB} of {result.total:GB} GB are in use.",
            {"used": 5.4e9, "total": 25_330_000_000},
            "5.4 of 25.3 GB are in use.",
        ),
        ("{percent} it is[ by {result.artists}].", {"artists": []}, "40 % it is."),
        ("By {result.artists}.", {"artists": ["A", "B", "C"]}, "By A, B and C."),
        ("Your notes: {result.title}.", [{"title": "One"}, {"title": "Two"}], "Your notes: One and Two."),
        ("{result}", "{percent} [is] {result}", "{percent} [is] {result}"),
        ("Es ist {result:rain=Regen|snow=Schnee}.", "snow", "Es ist Schnee."),
        ("Es ist {result:rain=Regen|snow=Schnee}.", "hail", "Es ist hail."),
    ],
)
def test_a_template_says_the_result(template: str, result: Json, text: str) -> None:
    assert response_text(method(template), result, {"percent": 40}) == text


@pytest.mark.parametrize(
    ("result", "hint", "text"),
    [
        ("It is noon.", None, "It is noon."),
        (None, None, "Nothing."),
        (True, None, "Yes."),
        (21.5, None, "21.5"),
        (55.0, Annotated[float, Unit("°C")], "55 °C"),
        (5_400_000_000, Annotated[int, Unit("B")], "5.4 GB"),
        (999, Annotated[int, Unit("B")], "999 B"),
        (2e13, Annotated[float, Unit("B")], "20.0 TB"),
        (0.2, Annotated[float, Unit("s")], "0.2 s"),
        (4_380, Annotated[float, Unit("s")], "1 h 13 min"),
        ("PT1H13M2S", timedelta, "1 h 13 min"),
        ("P3DT4H", timedelta | None, "3 d 4 h"),
        ("P1DT5M", timedelta, "1 d"),
        ("-PT90S", timedelta, "-1 min 30 s"),
        ("PT0S", timedelta, "0 s"),
        (
            {"song_title": "Hello", "is_new": False, "album": None},
            None,
            "song title: Hello, is new: no, album: none",
        ),
        ([{"free": 2_000}], list[dict[str, Annotated[int, Unit("B")]]], "free: 2.0 kB"),
        (["a", "b"], None, "a and b"),
        ([{"lamp": 2}], TREE, "lamp: 2"),
        ("bell\x07 and\x1b[31m colour", None, "bell  and [31m colour"),
    ],
)
def test_a_result_without_a_template_is_written_by_its_type(result: Json, hint: object, text: str) -> None:
    assert response_text(method(hint=hint), result) == text


def test_the_language_of_the_sentence_decides() -> None:
    german = method("Die Lautstärke ist {result}.", Annotated[float, Unit("%")], language="de")
    assert response_text(german, 12.5, language="de-AT") == "Die Lautstärke ist 12,5 %."
    assert response_text(german, 12.5, language="en") == "12.5 %"
    assert response_text(method(), True, language="de") == "Ja."
    assert response_text(method(read_only=False), None, language="de") == "Erledigt."


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{result.__class__}}", "brace"),
        ("{secret}", "secret is neither result nor a parameter"),
        ("{result!r}", "brace"),
        ("[one [two]]", "bracket"),
        ("{result:>1000000000}", "format"),
        ("{{ range(9**9) }}", "brace"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_and_passed_over(template: str, says: str) -> None:
    with pytest.raises(BadResponse, match=says):
        check_response(template, method())
    assert response_text(method(template), "the result") == "the result"


def test_a_result_that_misses_what_the_template_needs_is_said_all_the_same() -> None:
    assert response_text(method("It plays {result.title}."), {"status": "idle"}) == "status: idle"


def test_an_answer_is_bounded() -> None:
    assert len(response_text(method(), ["word"] * 10_000)) == 2_000


@pytest.mark.parametrize(
    ("error", "german"),
    [
        (
            NotFound("no timer is called {which!r}", which="egg", known="'tea'", hint="There are: {known}."),
            "Kein Timer heißt „egg“. Es gibt: 'tea'.",
        ),
        (NotFound("the owl is {n} years old", n=3, hint="Feed it."), "Mit diesen Angaben geht das nicht."),
    ],
)
def test_a_failure_is_told_with_its_reason_where_that_has_words(error: NotFound, german: str) -> None:
    failed = CallError(ErrorCode.BAD_ARGUMENTS, error.message, hint=error.hint)
    assert failure_text(failed, language="de-AT") == german
    assert (
        failure_text(failed, language="en") == f"{error.message[:1].upper()}{error.message[1:]}. {error.hint}"
    )


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_failure_is_told_without_control_characters_and_bounded(language: str) -> None:
    hint = "Fill it. 'strawberry skills settings printer' says where."
    failed = CallError(ErrorCode.SKILL_ERROR, "no paper", hint=hint)
    assert "strawberry" not in failure_text(failed, language=language)
    assert failure_text(failed).endswith("no paper. Fill it.")
    told = failure_text(CallError(ErrorCode.SKILL_ERROR, "no\x1b[2J paper" * 1_000), language=language)
    assert "\x1b" not in told
    assert len(told) <= MAX_ANSWER


def test_of_languages_that_clients_make_up_nothing_is_kept() -> None:
    def kept() -> int:
        return sum(each.cache_info().currsize for each in vars(texts).values() if hasattr(each, "cache_info"))

    def say(language: str) -> tuple[str, str, str]:
        failed = failure_text(CallError(ErrorCode.BUSY, "it is busy"), language=language)
        return response_text(method(), 1.5, language=language), failed, Labels({}, language)("on")

    assert say("de") == ("1,5", "Das Gerät ist gerade beschäftigt. Versuch es gleich noch einmal.", "An")
    before = kept()
    assert {say(f"x{number}") for number in range(5)} == {("1.5", "It is busy.", "On")}
    assert kept() == before
