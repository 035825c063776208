"""What Home Assistant asks for, with the bounds that keep a slow skill and a wild automation apart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bus.link import Message
from chat.tasks import open_tasks
from hub_home_assistant.outward.commands import Commands
from hub_home_assistant.outward.configs import Command
from hub_home_assistant.outward.exposures import Exposures
from tests.home_assistant.skills import PlayerSkill
from tests.hub_agent.home import open_home
from tests.hub_home_assistant.test_outward import entities
from tests.hub_registry.spokes import eventually

PLAY, PAUSE = "set/play", "set/pause"


class Asked:
    """Commands of a home, with calls that end when they are let through.

    Attributes:
        now: The time, in seconds.
        called: The methods that were called, whether or not they have ended.
        done: The commands that were carried out.
        emptied: The retained commands that were emptied.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.called: list[str] = []
        self.done: list[str] = []
        self.emptied: list[str] = []
        self.gate = asyncio.Event()

    async def call(self, _: Any, call: Any, *__: Any, **___: Any) -> None:
        self.called.append(call.target.method.name)
        await self.gate.wait()

    async def publish(self, topic: str, *_: Any, **__: Any) -> None:
        self.emptied.append(topic)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
async def commands(asked: Asked, tmp_path: Path) -> AsyncIterator[Commands]:
    home: Any = SimpleNamespace(link=SimpleNamespace(publish=asked.publish))
    manager: Any = SimpleNamespace(call=asked.call)
    async with open_home(tmp_path / "home") as running, open_tasks() as tasks:
        registry = running.hub.registry
        await running.device("Kitchen", PlayerSkill())
        exposures = Exposures(registry.store)
        await exposures.show("kitchen", user=registry.admin.id)
        pressed = {
            f"set/{name}": Command(f"kitchen.PlayerSkill.{name}", each, "press")
            for name, each in entities(PlayerSkill()).items()
            if each.component == "button"
        }
        publishing: Any = SimpleNamespace(
            exposures=exposures,
            home=home,
            tasks=tasks,
            commands=pressed,
            show_problem=lambda *_: None,
            end_problem=lambda *_: None,
            assume=lambda topic, *_: asked.done.append(topic),
        )
        yield Commands(registry, manager, publishing, clock=lambda: asked.now)
        asked.gate.set()


async def test_a_command_that_waited_too_long_for_another_is_not_carried_out(
    commands: Commands, asked: Asked
) -> None:
    for topic in (PLAY, PAUSE):
        commands.arrived(Message(topic, b"PRESS"))
    await eventually(lambda: asked.called == ["play"])
    asked.now = 11
    commands.arrived(Message(PLAY, b"PRESS"))
    asked.gate.set()
    # The first was begun in time; the second is too old when its turn comes, and the third is not.
    await eventually(lambda: asked.done == [PLAY, PLAY])
    assert asked.called == ["play", "play"]


async def test_a_skill_has_eight_commands_at_a_time(commands: Commands, asked: Asked) -> None:
    for _ in range(12):
        commands.arrived(Message(PLAY, b"PRESS"))
    asked.gate.set()
    await eventually(lambda: len(asked.done) == 8)
    commands.arrived(Message(PAUSE, b"PRESS"))
    await eventually(lambda: asked.done[8:] == [PAUSE])


async def test_an_entity_takes_twenty_commands_and_then_two_a_second(
    commands: Commands, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    asked.gate.set()

    async def press(times: int) -> None:
        for _ in range(times):
            before = len(asked.done)
            commands.arrived(Message(PLAY, b"PRESS"))
            if "too many commands come at once" not in caplog.text:
                await eventually(lambda before=before: len(asked.done) > before)

    await press(21)
    assert len(asked.done) == 20
    caplog.clear()
    # Another one has its own.
    commands.arrived(Message(PAUSE, b"PRESS"))
    await eventually(lambda: asked.done[20:] == [PAUSE])
    asked.now = 1
    await press(3)
    assert asked.done[21:] == [PLAY, PLAY]


async def test_retained_and_unknown_commands_are_not_carried_out(
    commands: Commands, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    asked.gate.set()
    commands.arrived(Message(PLAY, b"PRESS", retain=True))
    commands.arrived(Message("set/sell", b"PRESS"))
    commands.arrived(Message(PLAY, b"\xff"))
    commands.arrived(Message(PLAY, b"x" * 20_000))
    commands.arrived(Message(PAUSE, b"PRESS"))
    await eventually(lambda: asked.done == [PAUSE])
    await eventually(lambda: asked.emptied == [PLAY])
    for said in ("nothing that is exposed", "a command is text", "at most 16,384 bytes"):
        assert said in caplog.text
