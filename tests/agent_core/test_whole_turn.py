"""Turns on real parts: a model server over HTTP, both gateways, and the real sandbox."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path

import pytest

from agent_core.gateway.protocol import Gateway
from agent_core.loop import TurnRequest, run_turn
from agent_core.prompt import Household, system_prompt
from agent_core.search.catalogue import (
    FoundMethod,
    SearchPage,
    SkillCall,
    Target,
    describe_target,
    split_path,
)
from agent_core.tools.skill_calls import Consent
from agent_core.tools.toolset import SkillToolset, ToolLimits
from contracts.chat import SkillCalled, TurnEvent, TurnFinal
from contracts.devices.registration import Method, MethodFlags
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json
from sandbox_host import Pool, PoolSettings, open_pool
from tests.model_server import Says, ScriptedModel, calls

Serve = Callable[..., ScriptedModel]
OpenGateway = Callable[..., AbstractAsyncContextManager[Gateway]]

LEVEL = {"level": {"type": "integer", "minimum": 0, "maximum": 100}}


def method(name: str, **flags: bool) -> Method:
    return Method(
        name=name,
        signature=f"{name}(level: int) -> int",
        doc="Change the lamp.",
        parameters={
            "type": "object",
            "properties": LEVEL,
            "required": ["level"],
            "additionalProperties": False,
        },
        positional=["level"],
        flags=MethodFlags(**flags),
    )


METHODS = {"dim": method("dim"), "burn": method("burn", confirm=True)}


class Lamp:
    """One device with one skill, whose person takes a while to answer."""

    expires_s = 30.0

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.thinks_s = 0.0
        self.stuck: asyncio.Event | None = None
        self.cancelled = False

    async def search(self, query: str) -> SearchPage:
        found = tuple(
            FoundMethod(f"devices.hall.LampSkill.{name}", each.signature, each.summary, ("hall",))
            for name, each in METHODS.items()
        )
        return SearchPage(found, len(found))

    async def describe(self, path: str) -> str:
        return describe_target(await self.resolve(path))

    async def describe_skill(self, name: str) -> dict[str, Json]:
        raise CallError(ErrorCode.UNKNOWN_SKILL, name)

    async def resolve(self, path: str) -> Target:
        parts = split_path(path)
        if parts.method not in METHODS:
            raise CallError(ErrorCode.UNKNOWN_SKILL, f"there is no {path}", hint="nearest: dim")
        return Target(
            f"devices.hall.LampSkill.{parts.method}", "hall", "Hall", "LampSkill", METHODS[parts.method]
        )

    async def call(self, call: SkillCall) -> Json:
        if self.stuck is not None:
            self.stuck.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        self.levels.append(call.arguments["level"])
        return {"level": call.arguments["level"]}

    async def ask(self, tell: Callable[[str], None]) -> bool:
        tell("q1")
        await asyncio.sleep(self.thinks_s)
        return True


@pytest.fixture
async def pool(sandbox_files: Path) -> AsyncIterator[Pool]:
    async with open_pool(PoolSettings(sandbox_files, processes=1, spares=0)) as opened:
        yield opened


async def turn(gateway: Gateway, lamp: Lamp, pool: Pool, *, exec_s: float = 20.0) -> list[TurnEvent]:
    tools = SkillToolset(
        lamp,
        caller=lamp,
        session=await pool.session("c1"),
        consent=Consent(lamp),
        limits=ToolLimits(exec_s=exec_s),
    )
    request = TurnRequest(turn="t1", message="Dim the lamp.", system=system_prompt(Household()))
    async with aclosing(run_turn(request, gateway=gateway, toolset=tools)) as events:
        return [event async for event in events]


async def test_search_describe_and_one_program_that_calls(
    serve: Serve, gateway_to: OpenGateway, pool: Pool
) -> None:
    code = "lamp = devices.hall.LampSkill\n[lamp.dim(n * 10).level for n in range(1, 4)]"
    server = serve(
        [
            calls("search_skills", query="dim lamp"),
            calls("describe_function", path="devices.hall.LampSkill.dim"),
            calls("python_exec", code=code),
            Says(text="It is dimmed."),
        ]
    )
    lamp = Lamp()
    async with gateway_to(server) as gateway:
        events = await turn(gateway, lamp, pool)
    assert lamp.levels == [10, 20, 30]
    search, description, output = server.requests[-1].results
    assert '"path": "devices.hall.LampSkill.dim"' in search
    assert "def dim(level: int) -> int:" in description
    assert "=> [10, 20, 30]" in output
    assert [event.state for event in events if isinstance(event, SkillCalled)] == ["called", "done"] * 3
    assert isinstance(events[-1], TurnFinal)
    assert server.refused == []
