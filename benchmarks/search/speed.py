"""How long ``search_skills`` takes, and how fast many devices become searchable."""

import asyncio
import functools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from agent_core.search.embeddings import open_embeddings
from agent_core.search.index import IndexedDevice, SkillIndex
from benchmarks.measure import Effort
from benchmarks.table import Reach, Row
from contracts.devices.registration import Method, Registration

_METHODS_PER_SKILL = 20
_REPETITIONS = 40
_WITH_MEANING = 1_000
_VERB_LIST = """
    set get play pause read write list find turn open close start stop lock unlock dim heat cool count send
"""
_NOUN_LIST = """
    lamp volume music note door window heating alarm photo camera sensor battery timer weather mail robot
    blind fan oven garden
"""
_VERBS = _VERB_LIST.split()
_NOUNS = _NOUN_LIST.split()
_QUESTIONS = (
    "turn up the volume of the music in the kitchen",
    "dim the lamp",
    "is the front door locked?",
    "word77",
    "Lautstärkeregler",
    "lampenschirm",
    "",
)
"""Everyday words that are in every tenth row, a rare one, compounds that are found by their letters, and the
list of everything."""


_LOADING = """
import os, time
from pathlib import Path

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

import agent_core.search.index
before, began = resident_mb(), time.perf_counter()
from agent_core.search.vectors import token_vectors
token_vectors().embed(["dim the lamp"])
print((time.perf_counter() - began) * 1000, resident_mb() - before)
"""


async def rows(effort: Effort) -> list[Row]:
    """Measure.

    Each row of a search is the slowest question, the median of its repetitions.
    """
    results: list[Row] = []
    for methods, most in ((1_000, 2), (20_000, 10)):
        index = _filled(methods)
        slowest, longest = 0.0, 0
        for question in _QUESTIONS:
            ask = functools.partial(index.search, question, current="device_3")
            answer = [found.as_json() for found in ask().results]
            longest = max(longest, len(json.dumps(answer, ensure_ascii=False).encode()))
            slowest = max(slowest, _median_ms(ask, repetitions=effort.repeats(_REPETITIONS)))
        results.append(Row(f"search_skills over {methods:,} methods", slowest, "ms", Reach(most=most)))
        results.append(Row("  its longest answer", longest, "B", Reach(most=4096)))
        if methods == _WITH_MEANING:
            results += await _meaning_rows(index, effort)
        index.close()
    registering = _median_ms(_register_the_same_everywhere, repetitions=3)
    results.append(Row("1,000 devices × 20 like methods into the index", registering, "ms"))
    return results


async def _meaning_rows(index: SkillIndex, effort: Effort) -> list[Row]:
    """Measure a search by words and by meaning, and what its vectors cost."""
    async with asyncio.TaskGroup() as tasks, open_embeddings(None, tasks=tasks, budget_s=60) as embeddings:
        assert embeddings is not None, "wordllama is not installed"
        began, longest = time.perf_counter(), 0.0
        embeddings.keep(index.texts())
        while embeddings.missing:
            turn = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - turn - 0.001)
        all_s = time.perf_counter() - began
        slowest = 0.0
        for question in filter(None, _QUESTIONS):
            took = []
            for number in range(effort.repeats(_REPETITIONS)):
                began = time.perf_counter()
                # Another question each time: vectors of questions are kept.
                similar = await embeddings.similar(f"{question} {number}")
                index.search(question, current="device_3", similar=similar)
                took.append(time.perf_counter() - began)
            slowest = max(slowest, statistics.median(took) * 1000)
    done = await asyncio.to_thread(subprocess.check_output, [sys.executable, "-c", _LOADING], text=True)
    first, memory = map(float, done.split())
    return [
        Row("  by words and by meaning", slowest, "ms", Reach(most=5)),
        Row("  the first vector: NumPy, tokenizer and vectors are loaded", first, "ms", Reach(most=300)),
        Row("  memory for them", memory, "MB"),
        Row("  vectors of all methods, in the background", all_s * 1000, "ms"),
        Row("  the event loop's longest wait meanwhile", longest * 1000, "ms"),
    ]


def _filled(methods: int) -> SkillIndex:
    """Fill an index with skills that are all different: the worst case, where nothing is shared."""
    index = SkillIndex()
    for number, registration in enumerate(_registrations(methods // _METHODS_PER_SKILL)):
        device = f"device_{number}"
        index.set_device(IndexedDevice(device, device, [f"Device {number}", "Kitchen"]))
        index.put_skill(device, registration)
    return index


def _register_the_same_everywhere() -> None:
    index = SkillIndex()
    (registration,) = _registrations(1)
    for number in range(1_000):
        index.set_device(IndexedDevice(f"device_{number}", f"device_{number}"))
        index.put_skill(f"device_{number}", registration)
    index.close()


def _registrations(count: int) -> Iterator[Registration]:
    chosen = random.Random(7)  # the same texts in every run
    rare = [f"word{number}" for number in range(3_000)]
    for number in range(count):
        noun = chosen.choice(_NOUNS)
        yield Registration(
            skill=f"{noun.title()}{number}Skill",
            doc=f"Controls the {noun}.",
            methods=[
                Method(
                    name=f"{verb}_{chosen.choice(_NOUNS)}",
                    signature=f"{verb}(level: int = 3) -> None",
                    doc=f"{verb.title()} the {noun} {' '.join(chosen.choices(rare, k=20))}.",
                    parameters={"type": "object", "properties": {"level": {"type": "integer"}}},
                    positional=["level"],
                    sentences={"en": [f"{verb} the {noun}"]},
                )
                for verb in _VERBS[:_METHODS_PER_SKILL]
            ],
        )


def _median_ms(work: Callable[[], object], *, repetitions: int) -> float:
    took: list[float] = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000
