"""Search by meaning, with a small real embedding behind a real HTTP server."""

import asyncio
import ctypes
import importlib.util
import platform
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_core.models.entries import Model, ModelEntry
from agent_core.search.embeddings import BUDGET_S, Embeddings, open_embeddings
from agent_core.search.index import IndexedDevice, SkillIndex
from agent_core.search.vectors import token_vectors
from benchmarks.search.recall import OurSearch, own_requests
from contracts.devices.registration import Method, Registration
from deploy.doctor.checks import check_search
from tests.embedding_server import EmbeddingServer, skip_without_vectors


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as running:
        yield running


@asynccontextmanager
async def embedding(
    server: EmbeddingServer, index: SkillIndex, budget_s: float = BUDGET_S
) -> AsyncIterator[Embeddings]:
    entry = ModelEntry(name="embeddings", provider="openai", model="small", base_url=server.url)
    async with (
        asyncio.TaskGroup() as tasks,
        open_embeddings(Model(entry), tasks=tasks, budget_s=budget_s) as embeddings,
    ):
        assert embeddings is not None
        embeddings.keep(index.texts())
        yield embeddings


async def complete(embeddings: Embeddings) -> None:
    async with asyncio.timeout(60):
        while embeddings.missing:  # noqa: ASYNC110 - the background task tells nobody
            await asyncio.sleep(0.01)


def method(name: str, doc: str) -> Method:
    return Method(name=name, signature=f"{name}()", doc=doc, parameters={"type": "object"})


MEDIA = Registration(
    skill="MediaSkill",
    methods=[method("play", "Play a song."), method("silence", "Be quiet.")],
)


@pytest.fixture
def index() -> Iterator[SkillIndex]:
    made = SkillIndex()
    made.set_device(IndexedDevice("pc", "pc"))
    made.put_skill("pc", MEDIA)
    yield made
    made.close()


async def test_meaning_finds_what_words_do_not_without_a_server() -> None:
    skip_without_vectors()
    requests, unfit = own_requests()
    ours = OurSearch(requests.tools)
    found = {"words": 0, "both": 0}
    async with asyncio.TaskGroup() as tasks, open_embeddings(None, tasks=tasks, budget_s=60) as embeddings:
        assert embeddings is not None
        embeddings.keep(ours.index.texts())
        await complete(embeddings)
        empty = [asked for asked in unfit if not ours.first(asked, await embeddings.similar(asked))]
        for asked, name in requests.asked:
            found["words"] += name in ours.first(asked)
            found["both"] += name in ours.first(asked, await embeddings.similar(asked))
    ours.close()
    assert found["both"] / len(requests.asked) > 0.7
    assert found["both"] > 1.2 * found["words"]
    assert len(empty) / len(unfit) > 0.5


async def test_search_goes_by_words_where_the_vectors_are_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name == "wordllama" else find(name, *of)
    )
    async with asyncio.TaskGroup() as tasks, open_embeddings(None, tasks=tasks) as embeddings:
        assert embeddings is None
    assert "by words" in str(check_search(has_model=False).detail)


async def test_a_slow_model_keeps_no_search_waiting(server: EmbeddingServer, index: SkillIndex) -> None:
    async with embedding(server, index) as embeddings:
        await complete(embeddings)
        server.may_answer.clear()
        assert await embeddings.similar("a tune") is None
        assert not server.may_answer.is_set()
        assert index.search("song", similar=None).results[0].path == "devices.pc.MediaSkill.play"
        server.may_answer.set()


async def test_a_failing_model_is_logged_once_and_asked_again_later(
    server: EmbeddingServer, index: SkillIndex, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedding(server, index) as embeddings:
        await complete(embeddings)
        server.status = 500
        for query in ("one", "two", "three"):
            assert await embeddings.similar(query) is None
        server.status = 200
        # What the index gains meanwhile is embedded when the model answers again.
        index.put_skill("pc", Registration(skill="LampSkill", methods=[method("on", "Light the room.")]))
        embeddings.keep(index.texts())
        await complete(embeddings)
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "small answered with status 500" in record.message


@pytest.mark.parametrize("number", [{}, 10**400])
async def test_what_is_no_vector_counts_as_a_failure(number: Any) -> None:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[number if "odd" in text else 1.0] for text in texts]

    embeddings = Embeddings(embed)
    embeddings.keep({1: "text"})
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(embeddings.run())
        await complete(embeddings)
        assert await embeddings.similar("odd") is None
        running.cancel()


async def test_two_models_behind_one_address_do_not_embed_for_ever() -> None:
    asked = 0

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return [[1.0] * (2 + asked % 2) for _ in texts]

    embeddings = Embeddings(embed)
    embeddings.keep({row: f"text {row}" for row in range(100)})
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(embeddings.run())
        await complete(embeddings)
        running.cancel()
    assert asked < 20


async def test_a_text_is_embedded_once(server: EmbeddingServer, index: SkillIndex) -> None:
    async with embedding(server, index) as embeddings:
        await complete(embeddings)
        index.set_device(IndexedDevice("tv", "tv"))
        index.put_skill("tv", MEDIA)
        index.put_skill("tv", Registration(skill="TimeSkill", methods=[method("now", "Tell the time.")]))
        embeddings.keep(index.texts())
        await complete(embeddings)
        similar = await embeddings.similar("tell the hour")
        assert similar is not None
        assert index.search("tell the hour", similar=similar).results[0].path == "devices.tv.TimeSkill.now"
    assert sorted(server.texts) == [
        "media play: Play a song.",
        "media silence: Be quiet.",
        "tell the hour",
        "time now: Tell the time.",
    ]


async def test_a_text_said_often_makes_no_room_for_vectors_of_what_is_gone(
    server: EmbeddingServer, index: SkillIndex
) -> None:
    often = dict.fromkeys(range(100), "Ring the bell.")
    async with embedding(server, index) as embeddings:
        for number in range(5):
            embeddings.keep({**often, 100: f"Remember {number}."})
            await complete(embeddings)
        embeddings.keep({**often, 100: "Remember 0."})
        assert embeddings.missing == ["Remember 0."]


async def test_a_model_that_is_replaced_is_asked_for_all_vectors_again(
    server: EmbeddingServer, index: SkillIndex
) -> None:
    async with embedding(server, index, budget_s=60) as embeddings:
        await complete(embeddings)
        assert await embeddings.similar("a tune") is not None
        server.size = 64
        assert await embeddings.similar("a melody") is None
        await complete(embeddings)
        for query in ("a tune", "a melody"):
            assert await embeddings.similar(query) is not None


async def test_an_error_in_the_background_leaves_the_search_by_words() -> None:
    failed = asyncio.Event()

    async def damaged(_texts: Sequence[str]) -> Any:
        failed.set()
        raise RuntimeError("the file of vectors is damaged")

    async with asyncio.TaskGroup() as tasks:
        embeddings = Embeddings(damaged)
        running = tasks.create_task(embeddings.run())
        embeddings.keep({1: "Play a song."})
        await asyncio.wait_for(failed.wait(), 10)
        await asyncio.sleep(0)
        assert await embeddings.similar("music") is None
        assert not running.done()
        running.cancel()


class _MallInfo(ctypes.Structure):
    _fields_ = tuple((f"field_{number}", ctypes.c_size_t) for number in range(10))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc what is in use")
def test_the_tokenizer_keeps_no_texts() -> None:
    skip_without_vectors()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _MallInfo
    vectors = token_vectors()
    vectors.embed(["remember 0"])
    before = libc.mallinfo2().field_7
    for number in range(3_000):
        vectors.embed([f"remember the number {number}, and no other one"])
    assert libc.mallinfo2().field_7 - before < 1_000_000
