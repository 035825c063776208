"""Texts of the pages and of the hub: every message has its German, and every German entry its message."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest

import hub_web
from agent_core.models.providers import PROVIDERS
from agent_core.texts import catalogue
from contracts import errors
from contracts.errors import ErrorCode, NotFound, StrawberryError
from contracts.phrases import SENTENCES, Phrase
from hub_live.watchers.decisions.kinds import KINDS
from hub_web.pages.audit import outcomes
from hub_web.texts import LANGUAGE, choose, text

ROOT = Path(hub_web.__file__).parents[1]
ERRORS = {
    name
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, StrawberryError)
}
MESSAGES = {"text": (0,), "count": (1, 2), "Phrase": (0,), "CallError": (1,), "Declined": (1,)}
MESSAGES |= {"passed": (2,), "failed": (2,)}
"""Functions that take messages, and their places among the arguments; of errors it is the first."""
PAGES = ("text", "of", "count", "page")
"""Those that look the whole of it up, not sentence by sentence."""
SHOWN = (
    *("agent_core", "chat", "deploy/backup", "deploy/doctor", "hub_agent", "hub_live", "hub_home_assistant"),
    *("hub_server", "hub_registry", "hub_web", "spoke/integrations", "spoke/samples"),
)
"""Folders whose messages a page shows."""
NOT_SHOWN = (
    # Programs alone read these: devices, clients of the API and of MCP, and models.
    *(
        "agent_core/search/catalogue.py",
        "hub_agent/agents/http_tools.py",
        "chat/outbound.py",
        "agent_core/search/targets.py",
        "agent_core/skills/results.py",
    ),
    *(
        "chat/http/",
        "chat/operations/",
        "hub_agent/bus/",
        "hub_server/mcp/",
        "hub_server/http/",
        "hub_registry/http/",
    ),
    *(f"hub_registry/access/{each}.py" for each in ("bearer", "clients", "enrolment", "joining")),
    "hub_home_assistant/outward/",
    # Terminals alone show these: of a spoke, of a start that failed, of a report.
    *("agent_core/skills/loading/exposure.py", "agent_core/skills/loading/loader.py"),
    "agent_core/skills/schema.py",
    *("deploy/doctor/spoke_checks.py", "deploy/doctor/support.py", "deploy/backup/writing.py"),
    *("hub_server/service.py", "hub_server/wyoming.py", "hub_registry/bus/"),
)


def trees(*folders: str) -> Iterator[tuple[str, ast.AST]]:
    for folder in folders:
        for file in (ROOT / folder).rglob("*.py"):
            yield str(file.relative_to(ROOT)), parsed(file)


@cache
def parsed(file: Path) -> ast.AST:
    return ast.parse(file.read_text())


def messages(tree: ast.AST, *, in_pages: bool) -> Iterator[str]:
    """Yield what is written for people, as it is looked up."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        if name in PAGES and not in_pages:
            continue  # of SQL
        if name == "of":
            yield from map("\x04".join, product(*map(constants, call.args)))
            continue
        places = MESSAGES.get(name, (0,) if name in ERRORS else ())
        given = [call.args[place] for place in places if place < len(call.args)]
        given += [each.value for each in call.keywords if each.arg == ("title" if name == "page" else "hint")]
        for said in (one for each in given for one in constants(each)):
            yield from [said] if name in PAGES else SENTENCES.split(said)


def constants(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(value)):
            yield value
        case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
            yield from (*constants(one), *constants(other))


@pytest.fixture
def german() -> Iterator[None]:
    before = LANGUAGE.set("de")
    yield
    LANGUAGE.reset(before)


@pytest.mark.usefixtures("german")
def test_every_message_that_a_page_shows_has_its_german() -> None:
    missing: list[str] = []
    there = catalogue("de")
    for name, tree in trees(*SHOWN):
        in_pages = name.startswith("hub_web")
        for each in () if name.startswith(NOT_SHOWN) else messages(tree, in_pages=in_pages):
            words = re.sub(r"\b(?:sudo|chmod|GET|PUT|POST) .*|\{[^}]*\}|[^a-z ]", "", each).split()
            if len(words) > 2 or in_pages:
                missing += [f"{name}: {each}"] * (each not in there and text.message(each) == each)
    assert missing == []


def test_every_choice_that_names_itself_has_its_german() -> None:
    said = [each.label for each in KINDS.values()]
    for one in PROVIDERS.values():
        said += filter(None, (one.title, one.subtitle, one.address_hint))
    assert [each for each in said if each not in catalogue("de")] == []


def test_every_german_entry_has_its_message() -> None:
    said, names = set[str](), set[str]()
    for _, tree in trees(
        *{each.split("/")[0] for each in SHOWN},
        "broker",
        "bus",
        "contracts",
        "identity",
    ):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said |= {node.value, node.value.partition("\n")[0], *SENTENCES.split(node.value)}
            elif isinstance(node, ast.ClassDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
    said |= {each.removesuffix(".") for each in said}
    unused: list[str] = []
    for each in catalogue("de"):
        context, _, message = each.rpartition("\x04")
        # Labels are of skills that anybody may write, and states are Home Assistant's.
        if context not in ("label", "state") and message not in said:
            # Other labels have the name of their skill as context.
            unused += [each] * (not {context, message} <= names)
    assert unused == []


def test_no_message_has_two_german_entries() -> None:
    written = re.findall("^msgid", (ROOT / "agent_core/locale/de.po").read_text(), re.MULTILINE)
    assert len(written) - 1 == len(catalogue("de"))  # the first one has the head


def test_a_translation_has_no_other_values_than_its_message() -> None:
    def values(message: str) -> set[str]:
        return set(re.findall(r"\{(\w+)", message))

    assert [each for each, said in catalogue("de").items() if not values(said) <= values(each)] == []


@pytest.mark.usefixtures("german")
def test_what_the_hub_says_is_translated_by_its_template() -> None:
    error = NotFound(
        "there is no turn {turn!r} here", turn="t1\u202e", hint="Wait until that is done. So {n}.", n=2
    )
    assert text.sentence(error.message) == "Hier gibt es keinen Ablauf „t1\\u202e“."
    assert text.message(error.hint) == "Warte, bis das fertig ist. So 2."
    reason = Phrase("{name}: {error}", name="Open it", error=error)
    assert text.message(reason) == "Open it: hier gibt es keinen Ablauf „t1\\u202e“"
    assert text.message(Phrase("{reason}.", reason=Phrase("no model is configured").capitalized())) == (
        "Kein Modell ist eingerichtet."
    )


@pytest.mark.usefixtures("german")
def test_text_of_strangers_stays_as_it_is() -> None:
    assert text.message("there is no turn 't1' here") == "there is no turn 't1' here"
    assert text.message("{name} {{}} {0.x}") == "{name} {{}} {0.x}"


@pytest.mark.usefixtures("german")
def test_a_sentence_may_have_several_meanings_and_numbers() -> None:
    assert (text("Stop"), text.of("an answer", "Stop")) == ("Anhalten", "Stopp")
    assert text.count(1, "{n} device", "{n} devices") == "1 device"
    assert text.count(2, "{n} step", "{n} steps") == "2 Schritte"


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
