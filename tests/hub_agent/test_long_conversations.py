"""Conversations that are longer than the context of a model: summarised, cut with a word, and searched."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from sqlmodel import select

from agent_core.models.entries import Model, ModelEntry
from agent_core.turn import TurnLimits
from hub_agent.settings import QuotaSettings, TurnSettings
from hub_agent.tables import SummaryRow
from tests.embedding_server import EmbeddingServer
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import FeedSkill
from tests.hub_registry.spokes import eventually
from tests.hub_server.test_http_direct_calls import call, post
from tests.model_server import Fails, Reply, Says, ScriptedModel, SeenRequest, calls

SHORT = TurnSettings(limits=TurnLimits(context_tokens=2_000))
CHATTER = "Tell me something long about strawberries. " * 10
"""A hundred tokens: ten of them are half of the context."""


def is_of_summary(seen: SeenRequest) -> bool:
    return seen.said("system")[0].startswith("You sum up")


def answers(seen: SeenRequest) -> Reply:
    return Says(text="The summary: the gate code is 4711." if is_of_summary(seen) else "Well.")


@pytest.fixture
async def home(tmp_path: Path, model: ScriptedModel, sandbox_files: Path) -> AsyncIterator[Home]:
    model.script = answers
    directory = tmp_path / "home"
    quotas = QuotaSettings(burst=100)
    async with open_home(
        directory, model_url=model.base_url, sandbox=sandbox_files, turns=SHORT, quotas=quotas
    ) as opened:
        yield opened


async def say(client: httpx.AsyncClient, message: str, conversation: str = "c1") -> Any:
    answer = await client.post("/api/chat", json={"message": message, "conversation": conversation})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def say_much(client: httpx.AsyncClient, turns: int = 12) -> None:
    for _ in range(turns):
        await say(client, CHATTER)


def notices(answer: Any) -> list[str]:
    return [event["text"] for event in answer["events"] if event["kind"] == "notice"]


async def summaries(home: Home) -> list[SummaryRow]:
    return await home.hub.registry.store.read(lambda session: list(session.exec(select(SummaryRow)).all()))


async def summarised(home: Home) -> None:
    await eventually(lambda: summaries(home))


async def test_a_summary_of_what_was_replaced_is_no_longer_read(home: Home, model: ScriptedModel) -> None:
    async with home.client() as client:
        turn = (await say(client, "The gate code is 4711."))["turn"]
        await say_much(client)
        await summarised(home)
        changed = {"message": "The gate code is 4712.", "conversation": "c1", "replaces": turn}
        assert (await client.post("/api/chat", json=changed)).status_code == 200
        assert await summaries(home) == []
        assert len(model.requests[-1].said("user")) == 1


async def test_what_was_said_first_is_known_from_a_summary(home: Home, model: ScriptedModel) -> None:
    async with home.client() as client:
        await say(client, "The gate code is 4711.")
        await say_much(client)
        await summarised(home)
        answer = await say(client, "What is the gate code?")
        (row,) = await summaries(home)
        await client.delete("/api/conversations/c1")
    assert await summaries(home) == []
    request = next(seen for seen in model.requests if is_of_summary(seen))
    assert request.said("user")[0] == "The gate code is 4711."
    assert request.tools == []
    last = [seen for seen in model.requests if not is_of_summary(seen)][-1]
    assert last.said("assistant")[0] == "The summary: the gate code is 4711."
    assert last.said("user")[0].startswith("[Summary of ")
    assert "The gate code is 4711." not in last.said("user")
    # Nothing is lost between the summary and what is shown.
    assert row.exchanges + len(last.said("user")) - 2 == 13
    assert (row.untrusted, row.skilled, notices(answer)) == (False, False, [])


async def test_a_summary_goes_on_from_the_one_before(home: Home, model: ScriptedModel) -> None:
    async with home.client() as client:
        await say_much(client)
        await summarised(home)
        first = (await summaries(home))[0].exchanges

        async def is_further() -> bool:
            await say(client, CHATTER)
            return (await summaries(home))[0].exchanges > first

        await eventually(is_further)
    second = [seen for seen in model.requests if is_of_summary(seen)][1]
    assert second.said("assistant")[0] == "The summary: the gate code is 4711."


async def test_a_model_that_cannot_sum_up_holds_up_no_turn_and_what_is_cut_is_said(
    home: Home, model: ScriptedModel
) -> None:
    model.script = lambda seen: Fails() if is_of_summary(seen) else Says(text="Well.")
    async with home.client() as client:
        await say_much(client, 25)
        answer = await say(client, "And now?")
    cut = next(text for text in notices(answer) if "does not see" in text).split()[5]
    last = [seen for seen in model.requests if not is_of_summary(seen)][-1]
    assert last.said("user")[0].startswith(f"[{cut} earlier exchanges are not shown here. devices.hub.Memory")
    assert len(last.said("user")) - 2 + int(cut) == 25
    assert await summaries(home) == []


async def test_text_of_strangers_stays_what_it_is_in_a_summary(home: Home, model: ScriptedModel) -> None:
    feed = FeedSkill()
    await home.device("Bedroom PC", feed)

    def script(seen: SeenRequest) -> Reply:
        said = seen.said("user")[-1]
        if is_of_summary(seen) or seen.results or not said.endswith((".news()", ".wipe()")):
            return answers(seen)
        return calls("python_exec", code=said.splitlines()[-1])

    model.script = script
    async with home.client() as client:
        await say(client, "devices.bedroom_pc.FeedSkill.news()")
        await say_much(client)
        await summarised(home)
        await say(client, "devices.bedroom_pc.FeedSkill.wipe()")
    assert feed.wiped == 0
    last = [seen for seen in model.requests if not is_of_summary(seen)][-1]
    assert '<data from="outside" of="summary">\nThe summary: the gate code' in last.said("user")[0]


async def test_a_summary_is_read_by_those_who_read_what_it_is_of(home: Home, model: ScriptedModel) -> None:
    (home.directory / "agents").mkdir(exist_ok=True)
    (home.directory / "agents" / "poet.yml").write_text("prompt: You answer in verse.\n")
    device = await home.device("Bedroom PC")
    async with home.client() as client, home.client(device.token) as own:
        await say(own, "Good morning.", "kitchen")
        for _ in range(12):
            await say(client, CHATTER, "kitchen")
        await summarised(home)
        await say(client, "And now?", "kitchen")
        await say(own, "And here?", "kitchen")
        body = {"message": "And in verse?", "conversation": "kitchen", "agent": "poet"}
        assert (await client.post("/api/chat", json=body)).status_code == 200
    owner, device_, poet = [seen for seen in model.requests if not is_of_summary(seen)][-3:]
    assert "The summary: the gate code is 4711." in owner.said("assistant")
    assert [text for text in device_.said("user") if "Tell me" in text or "ummary" in text] == []
    assert (device_.said("user")[0], device_.said("assistant")) == ("Good morning.", ["Well."])
    assert len(poet.said("user")) == 1


async def test_what_was_said_is_found_by_whom_it_was_said(home: Home, model: ScriptedModel) -> None:
    device = await home.device("Bedroom PC")
    bob = await home.token(await home.hub.registry.accounts.add("Bob", role="member"))
    search = call("hub", "MemorySkill.search_conversations", query="What was the code of the gate?")

    def script(seen: SeenRequest) -> Reply:
        if "search" in seen.said("user")[-1] and not seen.results:
            code = "print(devices.hub.MemorySkill.search_conversations('gate code'))"
            return calls("python_exec", code=code)
        return Says(text=seen.results[-1] if seen.results else "Well.")

    model.script = script
    async with home.client() as client, home.client(bob) as other, home.client(device.token) as own:
        await say(client, "The code of the gate is 4711.", "c1")
        await say(own, "The code of the gate is unknown to me.", "c2")
        for words in ("what did we talk about last week", "find what I said earlier about the gate"):
            skills = (await client.get("/api/skills/search", params={"q": words, "limit": 3})).json()[
                "results"
            ]
            assert any("search_conversations" in each["path"] for each in skills), "a model finds it"
        _, found = await post(client, search)
        assert {(each["conversation"], each["question"]) for each in found} == {
            ("c1", "The code of the gate is 4711."),
            ("c2", "The code of the gate is unknown to me."),
        }
        assert await post(other, search) == (200, [])
        answer = (await say(own, "search", "c3"))["answer"]
        assert "unknown to me" in answer
        assert "4711" not in answer
        await client.delete("/api/conversations/c1")
        _, found = await post(client, search)
        assert "c1" not in {each["conversation"] for each in found}


async def test_what_was_said_is_found_by_its_meaning_by_whom_it_was_said(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.script = answers
    said = ("We adopted a kitten.", "The boiler is loud.", "Buy flour.", "My bicycle has a flat tyre.")
    more = ("Book a train to Bonn.", "The printer is empty.", "Water the roses.", "Pay the rent.")
    with EmbeddingServer() as server:
        entry = ModelEntry(name="embeddings", provider="openai", model="m", base_url=server.url)
        given: dict[str, Any] = {
            "embeddings": Model(entry, SecretStr("k")),
            "quotas": QuotaSettings(burst=100),
        }
        async with open_home(tmp_path / "home", model_url=model.base_url, **given) as home:
            bob = await home.token(await home.hub.registry.accounts.add("Bob", role="member"))
            async with home.client() as client, home.client(bob) as other:
                for number, text in enumerate((*said, *more, "That is all.")):
                    await say(client, text, f"c{number}")
                search = call("hub", "MemorySkill.search_conversations", query="our cat", limit=2)

                async def found() -> list[str]:
                    _, some = await post(client, search)
                    return [each["question"] for each in some]

                async def is_found() -> bool:
                    return said[0] in await found()

                await eventually(is_found)

                async def is_listed() -> bool:
                    listed = [
                        each["id"] for each in (await client.get("/api/conversations?q=our cat")).json()
                    ]
                    return "c0" in listed and len(listed) < 9

                await eventually(is_listed)
                assert (await other.get("/api/conversations?q=our cat")).json() == []
                assert await post(other, search) == (200, [])
                await client.delete("/api/conversations/c0")
                assert said[0] not in await found()
