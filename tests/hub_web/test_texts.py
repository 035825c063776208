"""Texts of the pages: every sentence has its German, and every German entry its sentence."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import hub_web
from contracts.errors import ErrorCode
from hub_web.pages.audit import outcomes
from hub_web.texts import LANGUAGE, catalogue, choose, messages, text

SOURCES = sorted(Path(hub_web.__file__).parent.rglob("*.py"))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "text"


def _sentences(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        given: list[ast.expr] = []
        if _is_text(node.func):
            given = node.args[:1]
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "count" and _is_text(node.func.value):
            given = node.args[1:3]
        elif isinstance(node.func, ast.Name) and node.func.id == "page":
            given = [each.value for each in node.keywords if each.arg == "title"]
        for each in given:
            yield from (
                c.value for c in ast.walk(each) if isinstance(c, ast.Constant) and isinstance(c.value, str)
            )


@pytest.mark.parametrize("source", SOURCES, ids=lambda file: file.stem)
def test_every_sentence_has_its_german(source: Path) -> None:
    missing = [each for each in _sentences(source.read_text()) if each and each not in catalogue("de")]
    assert missing == []


def test_every_german_entry_has_its_sentence() -> None:
    said: set[object] = set()
    for source in SOURCES:
        said |= {
            node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant)
        }
    assert [each for each in catalogue("de") if each not in said] == []


def test_a_translation_has_the_same_values_as_its_sentence() -> None:
    def values(sentence: str) -> set[str]:
        return {part.partition("}")[0] for part in sentence.split("{")[1:]}

    assert [each for each, said in catalogue("de").items() if values(each) != values(said)] == []


def test_no_sentence_has_two_translations() -> None:
    """Words with two meanings are told apart: ``text("Stop|an answer")``."""
    file = Path(hub_web.__file__).parent / "locale" / "de.toml"
    pages = [section for name, section in tomllib.loads(file.read_text()).items() if name != "messages"]
    said = {(key, german) for section in pages for key, german in section.items()}
    keys = [key for key, _ in said]
    assert [key for key in set(keys) if keys.count(key) > 1] == []


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("there is no turn 't1' here", "hier gibt es keinen Ablauf „t1“"),
        ("Wait until that is done. It takes long.", "Warte, bis das fertig ist. It takes long."),
        ("no translation {of} this", "no translation {of} this"),
        ("OPENAI_KEY is not set", "OPENAI_KEY ist nicht gesetzt"),
        ("embedded, connected with MQTT 3.1.1", "embedded, verbunden mit MQTT 3.1.1"),
        ("3000 of 8000 MB free", "3000 von 8000 MB frei"),
        (
            "sunset depends on where the household is, which is not set",
            "sunset hängt davon ab, wo ihr wohnt, und das ist nicht eingestellt",
        ),
    ],
)
def test_what_the_hub_says_is_translated_with_its_values(english: str, german: str) -> None:
    assert text.message(english) == english
    language = LANGUAGE.set("de")
    assert text.message(english) == german
    LANGUAGE.reset(language)


def test_every_message_with_a_german_is_one_of_the_hub() -> None:
    """A message that is written otherwise needs its translation under the new words."""
    root, said = Path(hub_web.__file__).parents[1], set[str]()
    for package in (
        "agent_core",
        "bus",
        "chat",
        "contracts",
        "deploy",
        "hub_agent",
        "hub_registry",
        "identity",
    ):
        for file in (root / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr | ast.Constant):
                    said.add(_template(node))
    missing = [each for each in messages("de") if re.sub(r"\{\w+\}", "{}", each) not in said]
    assert missing == []


def _template(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    parts = ((str(each.value) if isinstance(each, ast.Constant) else _hole(each)) for each in node.values)
    return "".join(parts)


def _hole(value: ast.expr) -> str:
    return "'{}'" if isinstance(value, ast.FormattedValue) and value.conversion == ord("r") else "{}"


@pytest.mark.parametrize(
    ("wishes", "language"),
    [
        ((None, None), "en"),
        (("de-CH", "fr"), "de"),
        ((None, "fr;q=0.9, de-DE;q=0.8, en;q=0.7", "en"), "de"),
        ((None, "en-GB,de;q=0.5"), "en"),
        ((None, "xx;q=oops, *", "de"), "de"),
    ],
)
def test_the_first_language_that_there_is_counts(wishes: tuple[str | None, ...], language: str) -> None:
    assert choose(*wishes) == language


def test_numbers_are_written_as_in_their_language() -> None:
    assert text.number(1234.5, 1) == "1,234.5"
    language = LANGUAGE.set("de")
    assert text.number(1234.5, 1) == "1.234,5"
    LANGUAGE.reset(language)


def test_each_outcome_of_the_audit_log_has_a_word() -> None:
    assert outcomes().keys() == {"result", "forbidden", "rate_limited", *ErrorCode}
