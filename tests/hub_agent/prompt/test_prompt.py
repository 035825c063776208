from pathlib import Path
from typing import Any

import pytest

from agent_core.prompt import Household, estimate_tokens
from agent_core.search.words import naming_words
from contracts.devices.presence import State
from contracts.errors import FileProblem
from hub_agent.prompt.soul import MAX_SOUL, TEMPLATE, parse_soul
from hub_registry.storage.tables import now
from tests.hub_agent.home import Home, open_home, says
from tests.hub_registry.spokes import eventually
from tests.model_server import Says, ScriptedModel


async def system_of_next_answer(home: Home, model: ScriptedModel, message: str = "Hello.") -> str:
    async with home.client() as client:
        (await client.post("/v1/chat/completions", json=says(message))).raise_for_status()
    return "".join(model.requests[-1].said("system"))


async def shown(home: Home, **query: str) -> Any:
    async with home.client() as client:
        return (await client.get("/api/prompt", params=query)).json()


async def test_the_soul_counts_from_the_next_message_and_a_broken_one_does_not(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.script = lambda _: Says(text="Well.")
    async with open_home(tmp_path / "home", model_url=model.base_url) as home:
        soul = home.directory / "hub" / "SOUL.md"
        plain = await system_of_next_answer(home, model)
        soul.write_text("<!-- for people -->\nYou are as dry as a butler.\n")
        dry = await system_of_next_answer(home, model)
        assert "# Who you are here\nYou are as dry as a butler.\n" in dry
        assert "for people" not in dry
        assert await system_of_next_answer(home, model, "And again?") == dry
        soul.write_bytes(b"You are\n\xff\xfe\n")
        assert await system_of_next_answer(home, model) == dry
        assert (await shown(home))["problems"] == [f"{soul}:2: is not UTF-8 text"]
        soul.unlink()
        assert await system_of_next_answer(home, model) == plain


async def test_each_section_is_shown_with_its_tokens_the_stable_ones_first(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.script = lambda _: Says(text="Well.")
    household = Household(language="de", rules=("Never open the garage.",))
    async with open_home(tmp_path / "home", model_url=model.base_url, household=household) as home:
        prompt = await shown(home, message="Is the garage open?")
        sent = await system_of_next_answer(home, model)
        async with home.client() as client:
            unknown = await client.get("/api/prompt", params={"agent": "finanec"})
    stable = prompt["stable"]
    assert [section["name"] for section in stable] == ["role", "acting", "trust", "rules", "household"]
    assert "".join(section["text"] for section in stable) == sent
    assert "Never open the garage." in stable[3]["text"]
    assert all(section["tokens"] == estimate_tokens(section["text"]) for section in stable)
    assert [tool["name"] for tool in prompt["tools"]] == ["search_skills", "describe_function", "python_exec"]
    assert prompt["tokens"]["stable"] == sum(each["tokens"] for each in (*stable, *prompt["tools"])) < 1_500
    assert prompt["changing"][0]["text"].startswith("Now: ")
    assert unknown.status_code == 404
    assert "assistant" in unknown.json()["hint"]


async def test_what_is_known_of_the_home_has_sections_of_its_own(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home") as home:
        nas = await home.device("NAS")
        topic = f"devices/{nas.id}/state/SystemSkill/disk"
        state = State(value=91, unit="%", at=now())
        await nas.spoke.send(topic, state.model_dump_json().encode())
        async with home.client() as client:
            for path, body in (
                ("memory", {"category": "Chores", "text": "Bins go out on Tuesday."}),
                ("captures", {"topics": [topic], "path": "disk.jsonl", "format": "jsonl"}),
                ("watchers", {"name": "disk", "topics": [topic], "instruction": "Tell me", "every_s": 3600}),
            ):
                answered = await client.post(f"/api/{path}", json=body)
                assert answered.is_success, answered.text

        async def heard() -> bool:
            return "SystemSkill disk" in str((await shown(home))["changing"])

        await eventually(heard)
        await shown(home, message="Is there a disk?")
        known = naming_words.cache_info().currsize
        changing = (await shown(home, message="How full is the disk?"))["changing"]
        assert naming_words.cache_info().currsize == known, "words of a question are no names to keep"
    assert [section["name"] for section in changing] == [
        "time",
        "devices",
        "world",
        "watchers",
        "captures",
        "memory",
    ]
    said = {section["name"]: section["text"] for section in changing}
    assert '- state "SystemSkill disk" of nas: 91 %, ' in said["world"]
    assert "disk (" in said["watchers"]
    assert '"disk.jsonl"' in said["captures"]
    assert "Bins go out on Tuesday." in said["memory"]


def test_the_template_is_a_soul_itself() -> None:
    assert parse_soul(TEMPLATE).startswith("You are the assistant of our home.")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a\n" * (MAX_SOUL // 2) + "the last straw\n", MAX_SOUL // 2 + 1, "longer"),
        ("fine\n<!-- note\nno end", 2, "comment does not end"),
        ("fine\n<!-- a\nb -->\nb\x1b[2Jell", 4, "control character"),
    ],
)
def test_what_cannot_be_a_soul_is_named_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(FileProblem, match=said) as caught:
        parse_soul(text)
    assert caught.value.line == line
