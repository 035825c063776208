"""Texts of the pages: every sentence has its German, and every German entry its sentence."""

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

import hub_web
from agent_core.models.providers import PROVIDERS
from contracts import errors
from contracts.errors import ErrorCode, StrawberryError
from hub_live.watchers.decisions.kinds import KINDS
from hub_web.pages.audit import outcomes
from hub_web.texts import LANGUAGE, SENTENCES, catalogue, choose, text

SOURCES = sorted(Path(hub_web.__file__).parent.rglob("*.py"))
ROOT = Path(hub_web.__file__).parents[1]
ERRORS = {
    name
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, StrawberryError)
}
TOLD = {"message", "hint", "reason", "note", "problem", "detail", "advice", "ended", "occasion"}
"""Names of what is written for people."""
PLACES = {"_become": 1, "notify": 1}
"""Functions with a text for people, and its place among their arguments."""
SHOWN = (
    *("agent_core", "chat", "deploy/backup", "deploy/doctor", "hub_agent", "hub_live", "hub_home_assistant"),
    *("hub_server", "hub_registry", "spoke/nodes"),
)
"""Folders whose messages a page shows."""
NOT_FOR_PEOPLE = (
    "AssertionError",
    "KeyError",
    "NotImplementedError",
    "RuntimeError",
    "TypeError",
    "ValueError",
)
NOT_SHOWN = (
    # Programs alone read these: devices, clients of the API and of MCP, and models.
    *(
        "agent_core/search/catalogue.py",
        "hub_agent/agents/http_tools.py",
        "agent_core/search/targets.py",
        "agent_core/skills/results.py",
    ),
    *("chat/http/", "hub_agent/bus/", "hub_server/mcp/", "hub_server/http/", "hub_registry/http/"),
    *(f"hub_registry/access/{each}.py" for each in ("bearer", "clients", "enrolment", "joining")),
    "hub_home_assistant/outward/",
    # Terminals alone show these: of a spoke, of a start that failed, of a report.
    *("agent_core/skills/loader.py", "agent_core/skills/schema.py"),
    *("deploy/doctor/spoke_checks.py", "deploy/doctor/support.py", "deploy/backup/writing.py"),
    *("hub_server/service.py", "hub_server/wyoming.py", "hub_registry/bus/", "spoke/nodes/manifest.py"),
)


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


def test_each_provider_of_models_has_its_german() -> None:
    said = [
        each for one in PROVIDERS.values() for each in (one.title, one.subtitle, one.address_hint) if each
    ]
    assert [each for each in said if each not in catalogue("de")] == []


def test_every_german_entry_has_its_sentence() -> None:
    said: set[object] = {each for provider in PROVIDERS.values() for each in vars(provider).values()}
    said |= {each.label for each in KINDS.values()}
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
            "no model answered: house did not answer within 15 s; other: KEY is not set",
            "kein Modell hat geantwortet: house hat nicht in 15 s geantwortet; other: KEY ist nicht gesetzt",
        ),
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


def test_of_a_message_that_a_device_chose_only_some_parts_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[str] = []
    pattern = SimpleNamespace(fullmatch=lambda said, *_: tries.append(said))
    monkeypatch.setattr("hub_web.texts._templates", lambda _: [("", pattern, "", 0)])
    said = "a b; c d: e f. " * 30
    assert text.message(said) == said
    assert len(tries) == 20


def test_every_message_that_a_page_shows_has_its_german() -> None:
    missing: list[str] = []
    language = LANGUAGE.set("de")
    for file in (each for package in SHOWN for each in (ROOT / package).rglob("*.py")):
        if (name := str(file.relative_to(ROOT))).startswith(NOT_SHOWN):
            continue
        for each in (one for node in _told(ast.parse(file.read_text())) for one in _templates(node)):
            said = text.message(example := each.replace("{}", "Xy"))
            words = re.sub(r"\b(?:sudo|chmod|GET|PUT|POST) .*|[^a-z ]", "", each).split()
            if len(words) > 2 and any(" " in one and one in said for one in SENTENCES.split(example)):
                missing.append(f"{name}: {each}")
    LANGUAGE.reset(language)
    assert missing == []


def _told(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is written for people: messages of errors, and what has such a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from node.exc.args[:1] * (getattr(node.exc.func, "id", "") not in NOT_FOR_PEOPLE)
        if isinstance(node, ast.Call):
            if getattr(node.func, "id", "") in {*ERRORS, "Unknown"}:
                yield from node.args[:1]
            if (place := PLACES.get(getattr(node.func, "attr", ""))) is not None:
                yield from node.args[place : place + 1]
            yield from (each.value for each in node.keywords if each.arg in TOLD)
        elif isinstance(node, ast.Assign):
            names = [getattr(each, "attr", getattr(each, "id", "")) for each in node.targets]
            yield from [node.value] * any(name in TOLD for name in names)


def _templates(node: ast.expr) -> list[str]:
    """Return what an expression may say, with ``{}`` for each value."""
    match node:
        case ast.Constant(value=str(value)):
            return [re.sub(r"\{\w+(?::[^}]*)?\}", "{}", re.sub(r"\{\w+!r\}", "'{}'", value))]
        case ast.IfExp(body=one, orelse=other) | ast.BoolOp(op=ast.Or(), values=[one, other]):
            return [*(_templates(one) or ["{}"]), *(_templates(other) or ["{}"])]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return ["".join(each) for each in product(_templates(left), _templates(right))]
        case ast.BinOp(left=left, op=ast.Mult()):
            return ["", *_templates(left)]
        case ast.FormattedValue(value=value, conversion=conversion):
            hole = "'{}'" if conversion == ord("r") else "{}"
            return [hole] if isinstance(value, ast.Constant) else _templates(value) or [hole]
        case ast.JoinedStr(values=values):
            return ["".join(each) for each in product(*map(_templates, values))]
    return []


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


def test_each_kind_of_decision_has_its_german() -> None:
    assert [each.label for each in KINDS.values() if each.label not in catalogue("de")] == []


def test_each_outcome_of_the_audit_log_has_a_word() -> None:
    assert outcomes().keys() == {"result", "forbidden", "rate_limited", *ErrorCode}
