"""What ``search_skills`` finds, on requests for tools that nobody wrote for it, beside plain FTS5.

The sets of requests come from packages that carry them, and are read when the benchmark runs:
``home-assistant-intents`` (in the dev extra) and ``bfcl-eval`` (``pip install --no-deps bfcl-eval``). A third
one, ``requests.txt``, was written for this project before the search was tuned.
"""

import asyncio
import importlib.util
import itertools
import json
import math
import random
import re
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import home_assistant_intents
from hassil import Intents, TextSlotList
from hassil.sample import sample_sentence

from agent_core.search.embeddings import Similar, open_embeddings
from agent_core.search.index import IndexedDevice, SkillIndex
from agent_core.search.words import name_words
from benchmarks.table import Reach, Row, not_measured
from contracts.devices.registration import Method, Registration

_OWN: Final = Path(__file__).with_name("requests.txt")
_FUNCTIONS: Final = "bfcl_eval"
_FUNCTION_FILES: Final = ("live_simple", "live_multiple")
"""Requests of people; the two files of written ones, ``simple_python`` and ``multiple``, were for tuning."""

_FIRST: Final = 5
_SAMPLES: Final = 3
_READINGS: Final = 200
_AT_ONCE: Final = 200
_SAID: Final = {
    "name": ["bedside lamp", "ceiling fan", "front door", "coffee maker", "TV"],
    "area": ["kitchen", "bedroom", "living room"],
    "floor": ["ground floor", "attic"],
    "message": ["dinner is ready"],
    "search_query": ["Abba"],
    "timer_name": ["pizza"],
    "conversation_command": ["open the garage door"],
}
"""What is said in place of the slots of Home Assistant's sentences."""


@dataclass(frozen=True)
class Tool:
    """A tool, as a method of a skill would declare it.

    Attributes:
        skill: Name of the class; empty where it has none.
    """

    skill: str
    method: str
    doc: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Requests:
    """Tools by name, and requests with the name of the tool that fits."""

    tools: dict[str, Tool]
    asked: list[tuple[str, str]]


class Search(Protocol):
    """What is compared."""

    def first(self, query: str) -> list[str]:
        """Return the names of the first tools, best first."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


class OurSearch:
    """``search_skills`` over some tools on one device."""

    def __init__(self, tools: dict[str, Tool]) -> None:
        self.index = SkillIndex()
        self.index.set_device(IndexedDevice("pc", "pc"))
        self._names: dict[str, str] = {}
        skills: dict[str, list[Method]] = {}
        for number, (name, tool) in enumerate(tools.items()):
            skill = tool.skill or f"Functions{number // _AT_ONCE}Skill"
            self._names[f"devices.pc.{skill}.{tool.method}"] = name
            properties: dict[str, Any] = {argument: {} for argument in tool.arguments}
            skills.setdefault(skill, []).append(
                Method(
                    name=tool.method,
                    signature=f"{tool.method}()",
                    doc=tool.doc,
                    parameters={"type": "object", "properties": properties},
                )
            )
        for skill, methods in skills.items():
            self.index.put_skill("pc", Registration(skill=skill, methods=methods))

    def first(self, query: str, similar: Similar | None = None) -> list[str]:
        """See ``Search``; with what is near to the query in meaning, where that is known."""
        found = self.index.search(query, similar=similar, limit=_FIRST)
        return [self._names[each.path] for each in found.results]

    def nearest(self, similar: Similar | None) -> list[str]:
        """Return the first tools by meaning alone."""
        entries = [self.index._by_row[row] for row in (similar.rows if similar else ())[:_FIRST]]
        return [self._names[f"devices.pc.{each.skill}.{each.method}"] for each in entries]

    def close(self) -> None:
        """See ``Search``."""
        self.index.close()


class PlainSearch:
    """FTS5 alone: English stems, any of the words, bm25."""

    def __init__(self, tools: dict[str, Tool]) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute(
            "CREATE VIRTUAL TABLE t USING fts5(name UNINDEXED, x, tokenize = 'porter unicode61')"
        )
        for name, tool in tools.items():
            words = [part for each in (tool.skill, tool.method, *tool.arguments) for part in name_words(each)]
            self._db.execute("INSERT INTO t VALUES (?, ?)", (name, " ".join([*words, tool.doc])))

    def first(self, query: str) -> list[str]:
        """See ``Search``."""
        any_of = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query.lower()))
        statement = "SELECT name FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT ?"
        return [row[0] for row in self._db.execute(statement, (any_of, _FIRST))] if any_of else []

    def close(self) -> None:
        """See ``Search``."""
        self._db.close()


async def rows() -> list[Row]:
    """Measure."""
    own, unfit = own_requests()
    made = await _rows(
        "Home Assistant's sentences", second_half(home_assistant_requests()), unfit, least=0.73
    )
    if importlib.util.find_spec(_FUNCTIONS) is None:
        made.append(not_measured("requests of bfcl-eval", "pip install --no-deps bfcl-eval"))
    else:
        asked = second_half(function_requests(_FUNCTION_FILES))
        made += await _rows("requests of bfcl-eval", asked, unfit, least=0.73)
    return made + await _rows("our own requests, in other words", own, unfit)


async def _rows(of: str, requests: Requests, unfit: list[str], *, least: float | None = None) -> list[Row]:
    ours, plain = OurSearch(requests.tools), PlainSearch(requests.tools)
    with closing(ours), closing(plain):
        meanings = await _meanings(ours, [*(asked for asked, _ in requests.asked), *unfit])
        fts = {asked: plain.first(asked) for asked in meanings}
        found = {
            "words": {asked: ours.first(asked) for asked in meanings},
            "meaning": {asked: ours.nearest(similar) for asked, similar in meanings.items()},
            "both": {asked: ours.first(asked, similar) for asked, similar in meanings.items()},
        }
    made: list[Row] = []
    for how, answers in found.items():
        is_whole = how == "both"
        name = f"{of} by {how}: found among the first {_FIRST} of {len(requests.tools)}"
        measured, reference = (_measures(requests, unfit, each) for each in (answers, fts))
        reach = Reach(least=least if is_whole else None)
        made += [
            Row(name, measured[0], "", reach, reference[0]),
            Row("  found first", measured[1], "", Reach(), reference[1]),
            Row("  nDCG of the first 5", measured[2], "", Reach(), reference[2]),
        ]
        if how != "meaning":  # alone it has no least score
            half = Reach(least=0.5 if least and is_whole else None)
            made.append(Row("  empty where no tool fits", measured[3], "", half, reference[3]))
    return made


def _measures(requests: Requests, unfit: list[str], answers: dict[str, list[str]]) -> list[float]:
    """Return recall at 5 and at 1, nDCG at 5, and how many requests that nothing fits get nothing."""
    places = [
        answers[asked].index(name) if name in answers[asked] else None for asked, name in requests.asked
    ]
    gains = [0 if place is None else 1 / math.log2(place + 2) for place in places]
    scores = [sum(place is not None for place in places), places.count(0), sum(gains)]
    return [*(score / len(places) for score in scores), sum(not answers[each] for each in unfit) / len(unfit)]


async def _meanings(ours: "OurSearch", queries: list[str]) -> dict[str, Similar | None]:
    """Find what is near to each query in meaning, as a hub as installed does."""
    async with asyncio.TaskGroup() as tasks, open_embeddings(None, tasks=tasks, budget_s=60) as embeddings:
        assert embeddings is not None, "wordllama is not installed"
        embeddings.keep(ours.index.texts())
        while embeddings.missing:  # noqa: ASYNC110 - the background task tells nobody
            await asyncio.sleep(0.01)
        return {query: await embeddings.similar(query) for query in queries}


def second_half(requests: Requests) -> Requests:
    """Return the requests that the weight and the threshold of the search were not fitted on."""
    asked = list(requests.asked)
    random.Random(7).shuffle(asked)
    return Requests(requests.tools, asked[len(asked) // 2 :])


def own_requests(half: int = 1) -> tuple[Requests, list[str]]:
    """Read ``requests.txt``.

    Args:
        half: 0 for the requests that the search was tuned with, 1 for the others.

    Returns:
        Tools with requests, and requests that no tool fits, of any set.
    """
    made, unfit = Requests({}, []), list[str]()
    name, place = "", 0
    for line in _OWN.read_text("utf-8").splitlines():
        if found := re.fullmatch(r"(\w+)\.(\w+)\((.*)\): (.*)", line):
            skill, method, arguments, doc = found.groups()
            name, place = f"{skill}.{method}", 0
            made.tools[name] = Tool(skill, method, doc, tuple(filter(None, arguments.split(", "))))
        elif line == "none":
            name, place = "", 0
        elif line.startswith(" "):
            if place % 2 == half and name:
                made.asked.append((line.strip(), name))
            elif place % 2 == half:
                unfit.append(line.strip())
            place += 1
    return made, unfit


def home_assistant_requests() -> Requests:
    """Take Home Assistant's intents as tools, and some sentences of each as requests."""
    data: dict[str, Any] = home_assistant_intents.get_intents("en") or {}
    described: dict[str, Any] = home_assistant_intents.get_intent_info() or {}
    chosen = random.Random(7)  # the same sentences in every run
    made = Requests({}, [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        intents = Intents.from_dict({key: value for key, value in data.items() if key != "responses"})
        slots = {name: TextSlotList.from_strings(said, name=name) for name, said in _SAID.items()}
        for name, values in data["lists"].items():
            if values.get("wildcard") and name not in slots:
                slots[name] = TextSlotList.from_strings(["apples"], name=name)
        for name, intent in intents.intents.items():
            info = described.get(name)
            if info is None or name in ("HassRespond", "HassNevermind"):
                continue
            method = "_".join(name_words(name)[1:])
            skill = f"{info['domain'].title().replace('_', '')}Skill"
            made.tools[name] = Tool(skill, method, info["description"], tuple(info.get("slots", ())))
            said = [
                chosen.choice(readings)
                for part in intent.data
                for sentence in part.sentences
                if (readings := _readings(sentence, intents, part, slots))
            ]
            made.asked.extend((each, name) for each in chosen.sample(said, min(_SAMPLES, len(said))))
    return made


def _readings(sentence: Any, intents: Any, part: Any, slots: dict[str, Any]) -> list[str]:
    lists = {**intents.slot_lists, **slots}
    rules = {**intents.expansion_rules, **part.expansion_rules}
    sampled = sample_sentence(sentence, slot_lists=lists, expansion_rules=rules)
    try:
        return [" ".join(text.split()) for text in itertools.islice(sampled, _READINGS)]
    except Exception:  # noqa: BLE001 - a list that only Home Assistant fills
        return []


def function_requests(names: tuple[str, ...]) -> Requests:
    """Take functions of the Berkeley Function Calling Leaderboard, and the requests that one of them fits."""
    spec = importlib.util.find_spec(_FUNCTIONS)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    data = Path(spec.submodule_search_locations[0]) / "data"
    made = Requests({}, [])
    for name in names:
        answers = {
            row["id"]: {function for answer in row["ground_truth"] for function in answer}
            for row in _lines(data / "possible_answer" / f"BFCL_v4_{name}.json")
        }
        for row in _lines(data / f"BFCL_v4_{name}.json"):
            for function in row["function"]:
                made.tools.setdefault(function["name"], _function_tool(function))
            fits = answers[row["id"]]
            if len(fits) == 1:
                made.asked.append((row["question"][0][-1]["content"], fits.pop()))
    return Requests(made.tools, list(dict.fromkeys(made.asked)))


def _function_tool(function: dict[str, Any]) -> Tool:
    package, _, method = re.sub(r"[^\w.]", "_", function["name"]).rpartition(".")
    skill = "".join(part[:1].upper() + part[1:] for part in re.split(r"[._]", package))
    return Tool(skill, method, function["description"], tuple(function["parameters"].get("properties", {})))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
