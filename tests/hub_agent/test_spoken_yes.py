"""Confirmations in words: the next message of the same conversation says yes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.skills.skill import Skill, skill_method
from chat import limits
from tests.hub_agent.home import Home, open_home


class SafeSkill(Skill):
    """A safe."""

    def __init__(self) -> None:
        self.opened: list[int] = []

    @skill_method(confirm=True, sentences={"en": ["open safe {number}"], "de": ["öffne Tresor {number}"]})
    def open_safe(self, number: int) -> str:
        """Open it."""
        self.opened.append(number)
        return "It is open."


class Program:
    """A program that keeps its conversation itself."""

    def __init__(self, home: Home, token: str) -> None:
        self.home = home
        self.token = token
        self.messages: list[dict[str, str]] = []

    async def say(self, text: str) -> str:
        self.messages.append({"role": "user", "content": text})
        body: dict[str, Any] = {"messages": self.messages}
        async with self.home.client(self.token) as client:
            answer = await client.post("/v1/chat/completions", json=body)
        said = str(answer.json()["choices"][0]["message"]["content"]) if answer.is_success else answer.text
        self.messages.append({"role": "assistant", "content": said})
        return said


@pytest.fixture
async def safe() -> SafeSkill:
    return SafeSkill()


@pytest.fixture
async def home(tmp_path: Path, safe: SafeSkill) -> AsyncIterator[Home]:
    async with open_home(tmp_path / "home") as home:
        await home.device("Vault", safe)
        yield home


async def program(home: Home, *scopes: str) -> Program:
    async with home.client() as client:
        made = await client.post("/api/tokens", json={"name": " ".join(scopes), "scopes": list(scopes)})
    assert made.is_success, made.text
    return Program(home, made.json()["token"])


async def test_yes_confirms_once_what_was_asked_in_this_conversation(
    home: Home, safe: SafeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = await program(home, "chat", "say_yes")
    assert await voice.say("open safe 7") == "Open safe 7? Say yes to go on."
    other = Program(home, voice.token)
    await other.say("yes")
    assert safe.opened == []
    assert await voice.say("Yes, please!") == "It is open."
    await voice.say("yes")
    assert safe.opened == [7]

    await voice.say("open safe 8")
    await voice.say("yes, but not this one")
    await voice.say("yes")
    assert "Sag ja" in await voice.say("öffne Tresor 9")
    monkeypatch.setattr(limits, "SPOKEN_YES_S", -1.0)
    await voice.say("open safe 10")
    await voice.say("yes")
    assert safe.opened == [7]


async def test_without_that_right_nothing_is_asked(home: Home, safe: SafeSkill) -> None:
    plain = await program(home, "chat")
    assert "I cannot ask here" in await plain.say("open safe 7")
    await plain.say("yes")
    assert safe.opened == []
