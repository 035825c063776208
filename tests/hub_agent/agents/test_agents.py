"""Agents as people and programs meet them, over HTTP."""

from pathlib import Path

import httpx
import pytest

from tests.hub_agent.home import Home, events_of, open_home, says, text_of
from tests.hub_agent.skills import LampSkill, LockSkill
from tests.hub_server.test_http_chat import URL, stream
from tests.hub_server.test_http_direct_calls import call, post
from tests.model_server import Fails, Says, ScriptedModel, calls

LIGHTS = """\
description: Looks after the lamps
prompt: You look after the lamps, and nothing else.
skills:
  allow: [devices.*.LampSkill.*]
"""


def write(home: Home, name: str, text: str) -> Path:
    """Write the profile of an agent."""
    file = home.directory / "agents" / f"{name}.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


async def ask(home: Home, agent: str, text: str, **headers: str) -> httpx.Response:
    async with home.client() as client:
        return await client.post(URL, json={**says(text), "model": agent}, headers=headers)


async def test_an_agent_is_a_model_with_instructions_of_its_own(thinking: Home, model: ScriptedModel) -> None:
    write(thinking, "poet", "prompt: You answer in verse.\n")
    model.script = [Says(text="Roses are red.")]
    async with thinking.client() as client:
        listed = (await client.get("/v1/models")).json()["data"]
        assert [each["id"] for each in listed] == ["assistant", "strawberry", "poet"]
        answer = await client.post(
            URL, json={**says("hello"), "model": "poet"}, headers={"x-strawberry-conversation": "c"}
        )
        assert answer.json()["choices"][0]["message"]["content"] == "Roses are red."
        (exchange,) = (await client.get("/api/conversations/c")).json()["exchanges"]
    assert exchange["agent"] == "poet"
    (system,) = model.requests[0].said("system")
    assert "You answer in verse." in system
    assert "You are Strawberry" not in system
    assert "What you may trust" in system
    assert "python_exec" not in system
    assert model.requests[0].tools == []


async def test_an_unknown_agent_is_refused_with_those_that_there_are(home: Home) -> None:
    write(home, "poet", "prompt: You answer in verse.\n")
    answer = await ask(home, "cook", "hello")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "there is no agent 'cook'"
    assert answer.json()["error"]["hint"] == "The agents are: assistant, strawberry, poet."
    for name in ("../hub/key", "poet.yml", "", "a\nb"):
        assert (await ask(home, name, "hello")).status_code == 404


async def test_a_changed_profile_counts_at_once_and_a_broken_one_leaves_the_last_in_force(
    thinking: Home, model: ScriptedModel
) -> None:
    file = write(thinking, "poet", "prompt: You answer in verse.\nmodle: house\n")
    answer = await ask(thinking, "poet", "hello")
    assert answer.status_code == 404
    assert f"{file}:2: unknown setting 'modle'" in answer.json()["error"]["message"]
    for text, system in (
        ("prompt: You answer in verse.\n", "You answer in verse."),
        ("prompt: You answer in prose.\n", "You answer in prose."),
        ("prompt: [\n", "You answer in prose."),
    ):
        write(thinking, "poet", text)
        model.script = [*model.script, Says(text="Well.")]
        assert (await ask(thinking, "poet", "hello")).status_code == 200
        assert system in model.requests[-1].said("system")[0]
    file.unlink()
    assert (await ask(thinking, "poet", "hello")).status_code == 404


async def test_an_agent_calls_what_its_profile_allows_and_nothing_else(
    thinking: Home, model: ScriptedModel
) -> None:
    lamp, lock = LampSkill(), LockSkill()
    await thinking.device("Bedroom PC", lamp, lock)
    write(thinking, "lights", LIGHTS)
    model.script = [
        calls("search_skills", query=""),
        calls("python_exec", code="devices.bedroom_pc.LampSkill.turn_on(30)"),
        calls("python_exec", code="devices.bedroom_pc.LockSkill.unlock()"),
        Says(text="Done."),
    ]
    async with thinking.client() as client:
        _, seen = await stream(
            client, {**says("do it"), "model": "lights"}, **{"x-strawberry-confirm": "true"}
        )
    assert text_of(seen) == "Done."
    found, _, refused = model.requests[-1].results
    assert "LampSkill" in found
    assert "LockSkill" not in found
    assert "this agent may not call devices.bedroom_pc.LockSkill.unlock" in refused
    assert (lamp.level, lock.opened) == (30, [])
    # It was not even asked for.
    assert "confirmation" not in [event["kind"] for event in events_of(seen)]


async def test_an_agent_lets_a_timer_call_what_it_may_call_itself_and_nothing_else(
    thinking: Home, model: ScriptedModel
) -> None:
    lamp = LampSkill()
    await thinking.device("Bedroom PC", lamp)
    later = "devices.hub.WatcherSkill.call_later"
    write(thinking, "clock", f"description: Timers\nprompt: You set timers.\nskills:\n  allow: [{later}]\n")
    model.script = [
        calls("python_exec", code=f"{later}(5, 'devices.bedroom_pc.LampSkill.turn_on')"),
        Says(text="No."),
    ]
    assert (await ask(thinking, "clock", "lamp on in 5 minutes")).status_code == 200
    (refused,) = model.requests[-1].results
    assert "this agent may not call devices.bedroom_pc.LampSkill.turn_on" in refused
    assert thinking.hub.live.timers.of(thinking.hub.registry.admin) == []


async def test_an_agent_that_may_only_read_modifies_nothing(thinking: Home, model: ScriptedModel) -> None:
    lamp = LampSkill()
    await thinking.device("Bedroom PC", lamp)
    write(thinking, "lights", LIGHTS + "  read_only: true\n")
    model.script = [
        calls("python_exec", code="devices.bedroom_pc.LampSkill.turn_on(30)"),
        calls("python_exec", code="devices.bedroom_pc.LampSkill.status()"),
        Says(text="Done."),
    ]
    assert (await ask(thinking, "lights", "do it")).status_code == 200
    turned, status = model.requests[-1].results
    assert "read-only access" in turned
    assert "0" in status
    assert lamp.level == 0


async def test_sentences_act_where_the_profile_says_so_and_only_on_what_it_allows(home: Home) -> None:
    lamp, lock = LampSkill(), LockSkill()
    await home.device("Bedroom PC", lamp, lock)
    write(home, "lights", LIGHTS)
    # There is no model, and no sentence acts.
    assert (await ask(home, "lights", "turn on the lamp")).status_code == 503
    write(home, "lights", LIGHTS + "sentences: on\n")
    answer = await ask(home, "lights", "turn on the lamp")
    assert answer.json()["x_strawberry"]["mode"] == "sentence"
    assert lamp.level == 100
    assert (await ask(home, "lights", "unlock the door")).status_code == 503
    assert lock.opened == []


async def test_what_is_to_be_done_later_is_not_done_at_once_where_an_agent_may_call_one_of_two(
    home: Home,
) -> None:
    lamp, other = LampSkill(), LampSkill()
    await home.device("Bedroom PC", lamp)
    await home.device("Kitchen PC", other)
    allowed = "[devices.bedroom_pc.LampSkill.*, devices.hub.WatcherSkill.*]"
    write(home, "lights", f"prompt: Lamps.\nsentences: on\nskills:\n  allow: {allowed}\n")
    answer = await ask(home, "lights", "turn on the lamp in 20 minutes")
    assert answer.json()["x_strawberry"]["mode"] == "sentence"
    assert (lamp.level, other.level) == (0, 0)


async def test_agents_of_one_conversation_share_neither_words_nor_variables(
    thinking: Home, model: ScriptedModel
) -> None:
    write(thinking, "lights", LIGHTS)
    model.script = [
        calls("python_exec", code="secret = 4711"),
        Says(text="Noted: 4711."),
        calls("python_exec", code="secret"),
        Says(text="Nothing."),
        Says(text="Still 4711."),
    ]
    conversation = {"x-strawberry-conversation": "shared"}
    await ask(thinking, "assistant", "keep it", **conversation)
    await ask(thinking, "lights", "what is it?", **conversation)
    assert "4711" not in str(model.requests[2].messages)
    assert "NameError" in model.requests[3].results[0]
    await ask(thinking, "strawberry", "and now?", **conversation)
    assert "Noted: 4711." in str(model.requests[4].messages)
    assert "what is it?" not in str(model.requests[4].messages)


async def test_a_model_of_its_own_answers_and_a_missing_key_names_the_line_to_add(
    thinking: Home, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FINANCE_API_KEY", raising=False)
    with ScriptedModel(
        [Says(text="Rich."), Fails(status=500), Says(text="Still rich.")], api_key="k-123"
    ) as own:
        write(
            thinking,
            "finance",
            "prompt: You count.\nmodel:\n  provider: openai\n  model: scripted\n"
            f"  base_url: {own.base_url}\n  api_key_env: FINANCE_API_KEY\n",
        )
        answer = await ask(thinking, "finance", "how much?")
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == (
            "the agent finance has no model: finance: FINANCE_API_KEY is not set"
        )
        env = thinking.directory / ".env"
        assert answer.json()["error"]["hint"] == f"Add the line FINANCE_API_KEY=… to {env}."
        env.write_text("FINANCE_API_KEY=k-123\n")
        answer = await ask(thinking, "finance", "how much?")
        assert answer.json()["choices"][0]["message"]["content"] == "Rich."
        assert answer.json()["x_strawberry"]["model"] == "finance"
        # A failure that may pass is tried again.
        answer = await ask(thinking, "finance", "how much?")
        assert answer.json()["choices"][0]["message"]["content"] == "Still rich."
    assert model.requests == []


async def test_a_named_model_is_asked_alone(tmp_path: Path) -> None:
    with ScriptedModel([Says(text="Here.")]) as server:
        async with open_home(tmp_path / "home", model_url=server.base_url) as home:
            write(home, "poet", "prompt: You rhyme.\nmodel: house\n")
            assert (await ask(home, "poet", "hello")).status_code == 200
            write(home, "poet", "prompt: You rhyme.\nmodel: [horse]\n")
            answer = await ask(home, "poet", "hello")
            assert "horse: there is no such model" in answer.json()["error"]["message"]


async def test_agents_are_listed_written_and_removed_over_http(home: Home) -> None:
    async with home.client() as client:
        assert (await client.get("/api/agents")).json() == []
        begun = await client.post("/api/agents", json={"name": "finance"})
        assert (begun.status_code, begun.json()["data_dir"]) == (201, "data/finance")
        assert (await client.post("/api/agents", json={"name": "finance"})).status_code == 409
        for name in ("../hub/x", "assistant", "a/b", ""):
            assert (await client.post("/api/agents", json={"name": name})).status_code == 422
        changed = await client.put("/api/agents/finance", json={"source": "prompt: Count.\nmodel: house\n"})
        assert changed.json()["models"] == ["house"]
        assert changed.json()["problems"][0]["message"].endswith(
            "finance.yml:2: house: there is no such model"
        )
        wrong = await client.put("/api/agents/finance", json={"source": "prompt: Count.\nmodle: house\n"})
        assert wrong.status_code == 422
        assert wrong.json()["detail"].startswith("line 2: unknown setting 'modle'")
        checked = await client.post(
            "/api/agents/new/check", json={"source": "prompt: Count.\nmodle: house\n"}
        )
        assert [each["line"] for each in checked.json()["problems"]] == [2]
        folder = home.directory / "data" / "finance"
        assert (await client.get("/api/agents/finance/files")).json() == []
        (folder / "2026").mkdir()
        (folder / "2026" / "may.csv").write_text("a,b\n")
        (folder / "link.txt").symlink_to("/etc/passwd")
        files = (await client.get("/api/agents/finance/files")).json()
        assert files == [{"path": "2026/may.csv", "bytes": 4}]
        assert (await client.get("/api/agents/finance/files/2026/may.csv")).text == "a,b\n"
        for bad in ("link.txt", "..%2F..%2Fhub%2Fhub.db", "none.txt"):
            refused = await client.get(f"/api/agents/finance/files/{bad}")
            assert refused.status_code in (403, 404), bad
        own = "/api/agents/finance/files"
        june = f"{own}/2026/june.csv"
        for at, piece in ((0, b"c,"), (2, b"d\n")):
            stored = await client.put(june, params={"at": at}, content=piece)
        assert (stored.json(), (folder / "2026" / "june.csv").read_text()) == ({"bytes": 4}, "c,d\n")
        for path, at, status in (("june.csv", 9, 409), ("june.csv", 16_777_216, 403), ("..%2Fx", 0, 403)):
            refused = await client.put(f"{own}/2026/{path}", params={"at": at}, content=b"x")
            assert refused.status_code == status, refused.text
        assert (await client.put(f"{own}/link.txt", content=b"x")).status_code == 403
        assert [(await client.delete(june)).status_code for _ in range(2)] == [204, 404]
        assert (await client.delete(f"{own}/..%2F..%2Fhub%2Fhub.db")).status_code == 403
        assert (await client.put(june, content=b"")).json() == {"bytes": 0}
        assert (await client.delete(june)).status_code == 204
        far = await client.put("/api/agents/finance", json={"source": "prompt: Count.\ndata_dir: /etc\n"})
        assert far.status_code == 403
        assert (await client.get("/api/agents/finance")).json()["source"] == "prompt: Count.\nmodel: house\n"
        assert (await client.get("/api/agents/cook")).status_code == 404
        write(home, "cook", "prompt: [\n")
        (cook, finance) = (await client.get("/api/agents")).json()
        async with home.client(await home.token(scopes=("chat",))) as other:
            listed = (await other.get("/api/agents")).text
        assert (str(home.directory) in listed, "data_dir" in listed, "cook.yml" in listed) == (
            *(False, False, True),
        )
        assert ("description" in cook, len(cook["problems"]), finance["name"]) == (False, 1, "finance")
        assert (await client.delete("/api/agents/finance")).status_code == 204
        assert (await client.delete("/api/agents/finance")).status_code == 404
    assert not (home.directory / "agents" / "finance.yml").exists()


async def test_only_an_admin_with_a_person_in_front_writes_agents(home: Home) -> None:
    write(home, "poet", "prompt: Rhyme.\n")
    async with home.client(await home.token(scopes=("chat",))) as client:
        assert len((await client.get("/api/agents")).json()) == 1
        assert (await client.get("/api/agents/poet")).status_code == 403
    for scopes in (("chat", "call", "confirm"), ("chat", "admin")):
        async with home.client(await home.token(scopes=scopes)) as client:
            if "admin" not in scopes:
                assert (await client.get("/api/agents/poet/files")).status_code == 403
                assert (await client.get("/api/agents/poet/files/x")).status_code == 403
                assert (await client.post("/api/agents/poet/check", json={"source": ""})).status_code == 403
            assert (await client.post("/api/agents", json={"name": "x"})).status_code == 403
            assert (await client.put("/api/agents/poet", json={"source": "prompt: x\n"})).status_code == 403
            assert (await client.delete("/api/agents/poet")).status_code == 403


async def test_the_assistant_asks_an_agent_which_gets_no_more_rights_than_the_person_and_asks_none_itself(
    thinking: Home, model: ScriptedModel
) -> None:
    lamp, lock = LampSkill(), LockSkill()
    await thinking.device("Bedroom PC", lamp, lock)
    write(thinking, "lights", LIGHTS.replace("LampSkill", "*").replace("]", ", devices.hub.AgentSkill.*]"))
    ask_lights = "devices.hub.AgentSkill.ask('lights', 'make it bright')"
    model.script = [
        calls("search_skills", query="ask an agent, a specialist"),
        calls("python_exec", code=f"print(devices.hub.AgentSkill.list_agents(), {ask_lights})"),
        calls("python_exec", code="devices.bedroom_pc.LampSkill.turn_on(30)"),
        calls("python_exec", code="devices.bedroom_pc.LockSkill.unlock()"),
        calls("python_exec", code=ask_lights),
        Says(text="It is bright."),
        Says(text="Done."),
    ]
    async with thinking.client() as client:
        _, seen = await stream(client, says("make it bright"), **{"x-strawberry-confirm": "true"})
        assert (await post(client, call("hub", "AgentSkill.ask", agent="lights", message="x")))[0] != 200
    assert text_of(seen) == "Done."
    assert "confirmation" not in [event["kind"] for event in events_of(seen)]
    found, answer = model.requests[-1].results
    assert "devices.hub.AgentSkill.ask" in found
    assert "Looks after the lamps" in answer
    assert "It is bright." in answer
    assert (lamp.level, lock.opened) == (30, [])
    *_, unlocked, asked = model.requests[-2].results
    assert "confirm" in unlocked
    assert "agents ask none" in asked
    assert "strangers wrote" not in str(model.requests[2].messages), "nothing strange was read before"


async def test_fewer_agents_are_asked_at_once_than_there_are_sandbox_processes(
    tmp_path: Path, model: ScriptedModel, sandbox_files: Path
) -> None:
    directory, url = tmp_path / "home", model.base_url
    async with open_home(directory, model_url=url, sandbox=sandbox_files, processes=1) as home:
        write(home, "poet", "prompt: You answer in verse.\n")
        code = "devices.hub.AgentSkill.ask('poet', 'hello')"
        model.script = [calls("python_exec", code=code), Says(text="Not now.")]
        async with home.client() as client:
            _, seen = await stream(client, says("ask the poet"))
    assert text_of(seen) == "Not now."
    assert "at most 0 agents can be asked at once" in model.requests[-1].results[-1]
