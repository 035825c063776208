"""Nodes as devices describe them, which may be anything."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from agent_core.skills.skill import Skill, skill_method
from tests.hub_agent.home import Home


def running(**also: Any) -> dict[str, Any]:
    return {"name": "camera", "state": "running", "health": "unknown", **also}


class NodesSkill(Skill):
    """Programs."""

    @skill_method(read_only=True)
    def list_nodes(self) -> list[Any]:
        """List what is no list of nodes."""
        return [
            running(device="nas", device_name="Nas"),
            running(health_topic="a/#/b", health_every_s=5),
            running(health_topic=["a"], health_every_s=5),
            running(health_topic="devices/cam/heartbeat", health_every_s="soon"),
            running(state=["a"], reason="long " * 1_000, health={}),
            5,
        ]

    @skill_method(read_only=True)
    def get_logs(self, name: str, lines: int = 50) -> list[str]:
        """Give a line."""
        return [name]

    @skill_method(read_only=True)
    async def follow_logs(self, name: str, lines: int = 50) -> AsyncGenerator[str, None]:
        """Give a line, and no other."""
        yield name
        await asyncio.Event().wait()


async def test_a_device_that_describes_its_nodes_wrongly_breaks_no_list(home: Home) -> None:
    await home.device("Cam", NodesSkill())
    async with home.client() as client:
        listed = (await client.get("/api/nodes")).json()
    assert listed["problems"] == []
    assert [(each["device"], each["health"]) for each in listed["nodes"]] == [("cam", "unknown")] * 4 + [
        ("cam", "{}")
    ]
    odd = listed["nodes"][-1]
    assert (odd["state"], len(odd["reason"])) == ("['a']", 300)


async def test_logs_are_for_those_who_may_call_and_no_device_lists_nodes_by_chat_alone(home: Home) -> None:
    await home.device("Cam", NodesSkill())
    talker = await home.device("Talker", scopes=("chat",))
    async with home.client(await home.token(scopes=("chat",))) as client, home.client(talker.token) as device:
        assert (await client.get("/api/nodes")).status_code == 200
        assert (await device.get("/api/nodes")).status_code == 403
        for reader in (client, device):
            assert (await reader.get("/api/nodes/cam/camera/logs")).status_code == 403


async def test_a_quiet_log_that_is_followed_is_kept_open(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub_live.nodes.HEARTBEAT_S", 0.01)
    await home.device("Cam", NodesSkill())
    async with (
        home.client() as client,
        client.stream("GET", "/api/nodes/cam/camera/logs?follow=true") as followed,
    ):
        read: list[str] = []
        async for line in followed.aiter_lines():
            read.append(line)
            if 'data: {"progress":"camera"}' in read and read[-1] == ":":
                break
    assert read[-1] == ":"
