"""What is remembered: written into ``MEMORY.md``, found again, shown to the model, and edited by people."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Conflict, FileProblem, NotFound
from hub_agent.prompt import Asked, PromptPart
from hub_live.memory.markdown import MemoryEntry, parse, with_entry, without_entries
from hub_live.memory.memory import FILE_NAME, Memory, open_memory
from hub_registry.access.accounts import User
from tests.hub_registry.spokes import eventually

BY_HAND = """\
---
an odd beginning
# Our home

The wifi is called Berry.
* Bins go out
  on Tuesday
<!-- a note
of ours -->

## Cats #
1. Minka eats at six <!-- at=2026-01-01T08:00:00Z from=bob conversation=c1 untrusted -->
no bullet <!-- what? -->

# Private: Ann
- likes tea
# Rest
- a kettle
"""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    opened = Memory(tmp_path / FILE_NAME)
    yield opened
    opened.close()


def texts(entries: list[MemoryEntry]) -> list[str]:
    return [entry.text for entry in entries]


def test_whatever_a_person_writes_is_read() -> None:
    seen = [(entry.category, entry.text, entry.private) for entry in parse(BY_HAND)]
    assert seen == [
        ("General", "an odd beginning", None),
        ("General", "The wifi is called Berry.", None),
        ("General", "Bins go out on Tuesday", None),
        ("Cats", "Minka eats at six", None),
        ("Cats", "no bullet", None),
        ("General", "likes tea", "ann"),
        ("General", "a kettle", None),
    ]
    minka = parse(BY_HAND)[3]
    assert (minka.by, minka.conversation, minka.untrusted) == ("bob", "c1", True)
    assert minka.at is not None


_LINE = (
    st.text(max_size=60)
    .map(lambda text: " ".join(text.split()))
    .filter(lambda text: any(map(str.isalnum, text)))
)


@given(
    before=st.sampled_from([BY_HAND, BY_HAND.replace("\n", "\r\n")])
    | st.text().filter(lambda text: "<!--" not in text),
    category=st.sampled_from(["Cats", "General", "Naïve plans", "private: bob"]),
    text=_LINE,
    private=st.sampled_from([None, "ann", "bob"]),
)
def test_an_entry_is_read_as_it_was_written_and_every_other_line_stays(
    before: str, category: str, text: str, private: str | None
) -> None:
    entry = MemoryEntry(category, text, private, by="ann", conversation="c2", untrusted=True)
    after = with_entry(before, entry)
    known = {each.id for each in parse(before)}
    found = [each for each in parse(after) if each.id == entry.id]
    assert {each.id for each in parse(after)} == known | {entry.id}
    assert (found[-1].by, found[-1].conversation, found[-1].untrusted) == ("ann", "c2", True)
    lines = iter(after.split("\n"))
    assert all(line in lines for line in before.removesuffix("\n").split("\n") if before)
    assert entry.id not in {each.id for each in parse(without_entries(after, {entry.id}))}


async def test_an_entry_says_when_from_whom_and_where_and_others_see_only_what_is_for_all(
    memory: Memory,
) -> None:
    bins = await memory.remember("ann", "chores", "Bins go out\non Tuesday.", conversation="c1")
    kite = await memory.remember("ann", "Presents", "Bob wants a kite", private=True)
    await memory.remember("bob", "Chores", "The boiler is serviced in May")
    assert await memory.remember("bob", "Chores", "Bins go out on Tuesday.") == memory.entries("bob")[0]
    assert texts(memory.entries("ann")) == [
        "Bins go out on Tuesday.",
        "The boiler is serviced in May",
        "Bob wants a kite",
    ]
    assert kite.id not in {entry.id for entry in memory.entries("bob")}
    written = re.sub(r"<!-- at=.*? from=(\w+)( conversation=c1)? -->", r"\1\2", memory.path.read_text())
    assert (
        written.partition(" -->\n")[2]
        == """
## chores

- Bins go out on Tuesday. ann conversation=c1
- The boiler is serviced in May bob

# Private: ann

## Presents

- Bob wants a kite ann
"""
    )
    assert (bins.category, bins.by, bins.conversation) == ("chores", "ann", "c1")
    assert memory.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NotFound, match="nothing is remembered as"):
        await memory.forget("bob", kite.id)


async def test_entries_are_found_by_words_and_forgotten_by_id_or_text(memory: Memory) -> None:
    memory.path.write_text(BY_HAND)
    assert texts(await memory.recall("bob", "when does Minka eat?")) == ["Minka eats at six"]
    assert texts(await memory.recall("bob", "who likes tea")) == ["a kettle"]
    with pytest.raises(Conflict, match="2 entries"):
        await memory.forget("ann", "ea")
    await memory.forget("ann", "out on tuesday")
    await memory.forget("ann", (await memory.recall("ann", "kettle"))[0].id)
    left = memory.path.read_text()
    assert left == BY_HAND.replace("* Bins go out\n  on Tuesday\n", "").replace("- a kettle\n", "")
    assert texts(await memory.recall("ann", "bins")) == []


async def test_entries_are_found_by_meaning(tmp_path: Path) -> None:
    async with (
        asyncio.TaskGroup() as tasks,
        open_memory(tmp_path, embeddings=None, tasks=tasks) as memory,
    ):
        await memory.remember("ann", "Pets", "Minka is a kitten")
        await memory.remember("ann", "House", "The boiler is serviced in May")
        await memory.remember("ann", "House", "Bins go out on Tuesday")
        assert await memory.recall("ann", "feline") == []
        embeddings = memory.embeddings
        assert embeddings is not None
        await eventually(lambda: not embeddings.missing)
        assert texts(await memory.recall("ann", "feline")) == ["Minka is a kitten"]


@pytest.mark.parametrize(
    ("more", "said"), [(b"\xff", ":6: is not UTF-8 text"), (b"<!-- a\nb\n", ":6: the comment does not end")]
)
async def test_a_file_that_cannot_be_read_is_not_written_over(memory: Memory, more: bytes, said: str) -> None:
    memory.path.write_text("# Memory\n\n## Chores\n\n- Bins go out on Tuesday\n")
    assert texts(memory.entries("ann")) == ["Bins go out on Tuesday"]
    broken = memory.path.read_bytes() + more
    memory.path.write_bytes(broken)
    with pytest.raises(FileProblem, match=f"{FILE_NAME}{said}"):
        await memory.remember("ann", "Chores", "Water the plants")
    assert memory.path.read_bytes() == broken
    assert texts(memory.entries("ann")) == ["Bins go out on Tuesday"]


async def test_what_a_person_saves_while_an_entry_is_written_stays(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.path.write_text("- by hand\n")
    sync, saves = os.fsync, iter([b"- by hand\n- saved meanwhile\n"])

    def save_meanwhile(handle: int) -> None:
        sync(handle)
        for content in saves:
            memory.path.write_bytes(content)

    monkeypatch.setattr(os, "fsync", save_meanwhile)
    await memory.remember("ann", "Chores", "Bins go out on Tuesday")
    assert texts(memory.entries("ann")) == ["by hand", "saved meanwhile", "Bins go out on Tuesday"]
    assert [path.name for path in memory.path.parent.iterdir()] == [FILE_NAME]


async def test_a_kill_before_the_file_is_replaced_loses_nothing(memory: Memory) -> None:
    await memory.remember("ann", "Chores", "Bins go out on Tuesday")
    program = f"""
import asyncio, os, signal
from pathlib import Path
from hub_live.memory.memory import Memory
Path.replace = lambda *_: os.kill(os.getpid(), {signal.SIGKILL})
asyncio.run(Memory(Path({str(memory.path)!r})).remember("ann", "Chores", "Water the plants"))
"""
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await killed.wait() == -signal.SIGKILL
    await memory.remember("ann", "Chores", "Feed the cat")
    assert texts(memory.entries("ann")) == ["Bins go out on Tuesday", "Feed the cat"]


async def test_many_that_remember_at_once_lose_nothing(memory: Memory) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(memory.remember("ann", "Numbers", f"number {number}"))
    assert len(memory.entries("bob")) == 20


async def told(memory: Memory, said: str, user: str = "bob") -> PromptPart:
    told = await memory.prompt_part(Asked(User(user, user.title(), "member"), (said,)))
    assert told is not None
    return told


async def test_the_prompt_has_all_of_a_small_memory_the_same_whatever_is_asked(memory: Memory) -> None:
    assert await memory.prompt_part(Asked(User("bob", "Bob", "member"), ("is it dark?",))) is None
    memory.path.write_text(BY_HAND)
    first = await told(memory, "is it dark?")
    assert first == await told(memory, "what is the wifi called?")
    assert first.text.startswith(
        'What you remember:\n<data from="file" of="MEMORY.md">\n## General\n- an odd beginning\n'
    )
    assert not first.untrusted
    assert "likes tea" not in first.text
    assert "likes tea" in (await told(memory, "is it dark?", "ann")).text
    assert "(1 more; devices.hub.MemorySkill.recall(query) finds them)" in first.text


async def test_what_followed_text_of_strangers_is_shown_as_theirs_and_only_where_it_is_named(
    memory: Memory,
) -> None:
    memory.path.write_text(BY_HAND)
    named = await told(memory, "when does Minka eat?")
    assert named.untrusted
    assert '<data from="outside" of="MEMORY.md">\n## Cats\n- Minka eats at six' in named.text


async def test_of_an_entry_without_a_person_the_prompt_names_none(memory: Memory) -> None:
    memory.path.write_text("- Bins go out <!-- at=2026-01-01T08:00:00Z -->\n")
    assert "- Bins go out (2026-01-01)\n" in (await told(memory, "when do the bins go out?")).text


async def test_of_a_large_memory_the_prompt_has_what_the_question_names(tmp_path: Path) -> None:
    memory = Memory(tmp_path / FILE_NAME)
    memory.path.write_text("".join(f"- The code of locker {n} is {n * 7}\n" for n in range(400)))
    shown = (await told(memory, "what is the code of locker 123?")).text
    memory.close()
    assert "locker 123 is 861" in shown
    assert len(shown) < 4_000


def test_a_file_with_too_many_entries_is_not_read() -> None:
    assert len(parse("entry\n" * 2_000)) == 2_000
    with pytest.raises(FileProblem, match="more than 2000 entries"):
        parse("entry\n" * 2_001)
