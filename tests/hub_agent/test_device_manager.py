"""Calls of the hub before they are sent: rights, the order of devices, and what the audit keeps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from agent_core.search.catalogue import SkillCall
from agent_core.search.directory import RegisteredSkill
from agent_core.search.targets import find_target
from bus.rpc import CallerSettings, CallRequest
from contracts.devices.presence import DeviceStatus
from contracts.devices.registration import Method, MethodFlags, Registration
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode
from hub_agent.calls.audit import CallRecord, Origin
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.calls.from_skills import SkillCallBody, call_for_skill
from hub_registry.devices.directory import Directory
from hub_registry.storage.tables import now
from tests.hub_registry.test_directory import device

ANN = Actor(user="ann")


@dataclass
class Bus:
    """A caller whose devices answer, are frozen, or let it wait; what it was asked for is what matters."""

    frozen: set[str] = field(default_factory=set)
    asked: list[CallRequest] = field(default_factory=list)
    waits: asyncio.Event | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    settings: CallerSettings = field(default_factory=CallerSettings)

    async def call(self, request: CallRequest, *_: Any, **__: Any) -> str:
        self.asked.append(request)
        self.begun.set()
        if self.waits is not None:
            await self.waits.wait()
        if request.device in self.frozen:
            raise CallError(ErrorCode.TIMEOUT, "no answer", device=request.device)
        return request.device


class House:
    """Two devices with the same skill, the second one heard last."""

    def __init__(self) -> None:
        self.directory, self.bus = Directory(), Bus()
        self.noted: list[CallRecord] = []
        for key in ("hall", "kitchen"):
            entry = self.directory.put(device(key.title(), key, owner=ANN.user))
            status = DeviceStatus(state="online", epoch=1, connection=1, seq=1)
            entry.presence.hear(status, retained=False, at=0)
            self.register(key, {"type": "object"})
            self.hear(key)
        trail: Any = SimpleNamespace(note=self.noted.append)
        self.manager = DeviceManager(self.directory, caller=self.bus, own=None, trail=trail)  # type: ignore[arg-type]

    def register(self, key: str, parameters: dict[str, Any]) -> None:
        methods = [
            Method(name=name, signature=f"{name}()", parameters=parameters, flags=MethodFlags(**flags))
            for name, flags in (("look", {"read_only": True}), ("unlock", {"confirm": True}))
        ]
        made = Registration(skill="DoorSkill", device_agnostic=True, methods=methods)
        self.directory.put_skill(key, RegisteredSkill.of(made, key))

    def hear(self, key: str) -> None:
        entry = self.directory.get(key)
        assert entry is not None
        last = max(each.last_heartbeat or now() for each in self.directory.entries())
        entry.last_heartbeat = last.replace(year=last.year + 1)

    async def call(self, where: str, method: str, *, actor: Actor = ANN) -> Any:
        call = SkillCall(find_target(self.directory, where, "DoorSkill", method), {})
        return await self.manager.call(actor, call, origin=Origin())


@pytest.mark.parametrize("where", ["hall", "hub"])
async def test_what_needs_a_confirmation_is_not_even_sent_without_one(where: str) -> None:
    house = House()
    with pytest.raises(CallError) as refused:
        await house.call(where, "unlock")
    assert refused.value.code is ErrorCode.NEEDS_CONFIRMATION
    assert house.bus.asked == []


async def test_a_device_that_did_not_answer_is_asked_last_until_it_is_heard_again() -> None:
    house = House()
    house.bus.frozen.add("kitchen")
    assert await house.call("hub", "look") == "hall"
    assert await house.call("hub", "look") == "hall"
    assert [request.device for request in house.bus.asked] == ["kitchen", "hall", "hall"]
    house.bus.frozen.clear()
    house.hear("kitchen")
    assert await house.call("hub", "look") == "kitchen"


async def test_a_cancelled_call_is_cancelled_in_the_audit_too() -> None:
    house = House()
    house.bus.waits = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(house.call("hall", "look"))
        await house.bus.begun.wait()
        calling.cancel()
    assert [record.outcome for record in house.noted] == ["cancelled"]


async def test_another_version_of_a_skill_gets_no_arguments_for_this_one() -> None:
    house = House()
    house.register("hall", {"type": "object", "properties": {"door": {}}})
    # The kitchen was heard last, and would be asked first.
    assert await house.call("hub", "look") == "hall"


async def test_a_device_that_vanishes_gets_a_short_time_to_come_back_where_a_person_waits() -> None:
    house = House()
    for actor in (ANN, Actor(user="ann", watcher="w")):
        await house.call("hall", "look", actor=actor)
    assert [request.interactive for request in house.bus.asked] == [True, False]


async def test_a_call_from_a_skill_goes_to_the_device_that_was_approved_and_to_no_namesake() -> None:
    house = House()
    entry = house.directory.put(device("Hall", "hall", owner=ANN.user, aliases=("garage",)))
    entry.presence.hear(DeviceStatus(state="online", epoch=1, connection=1, seq=1), retained=False, at=0)
    house.register("hall", {"type": "object"})
    uses = ["garage.DoorSkill.look", "hall.DoorSkill.look"]
    bell = Registration(skill="BellSkill", uses=uses, methods=[])
    house.directory.put_skill("kitchen", RegisteredSkill.of(bell, "bell"))

    @asynccontextmanager
    async def turn(*_: Any, **__: Any) -> AsyncIterator[None]:
        yield

    claims = SimpleNamespace(sub="kitchen", kind="device", jti="1")
    asking: Any = SimpleNamespace(user=SimpleNamespace(id="ann", read_only=False), claims=claims)
    calls: Any = SimpleNamespace(
        manager=house.manager,
        registry=SimpleNamespace(directory=house.directory),
        quotas=SimpleNamespace(calls=SimpleNamespace(turn=turn)),
    )

    async def look(where: str) -> Any:
        body = SkillCallBody(caller="BellSkill", device=where, skill="DoorSkill", method="look")
        return (await call_for_skill(calls, asking, body)).result

    assert await look("hall") == "hall"
    with pytest.raises(CallError, match="no device 'garage'"):
        await look("garage")
    assert [request.device for request in house.bus.asked] == ["hall"]
