"""The audit trail: nothing that was noted is lost, and it stays in order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.errors import StorageError
from contracts.rpc import Actor
from hub_agent.calls.audit import AuditTrail
from hub_registry.access.audit import Audit, CallRecord
from hub_registry.storage.store import open_store
from hub_registry.storage.tables import now
from tests.hub_registry.spokes import eventually


@pytest.fixture
async def audit(tmp_path: Path) -> AsyncIterator[Audit]:
    async with open_store(tmp_path / "hub" / "hub.db") as store:
        yield Audit(store)


def called(number: int) -> CallRecord:
    return CallRecord(
        at=now(),
        call=str(number),
        actor=Actor(user="admin"),
        device="tv",
        skill="MediaSkill",
        method="play",
        arguments="",
        outcome="result",
    )


async def test_calls_are_written_by_themselves_and_in_their_order(audit: Audit) -> None:
    trail = AuditTrail(audit)
    noted = [called(number) for number in range(200)]
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(trail.run())
        for record in noted:
            trail.note(record)
            await asyncio.sleep(0)

        async def written() -> bool:
            return await audit.latest(limit=500) == noted[::-1]

        await eventually(written)
        writing.cancel()


async def test_calls_are_kept_while_the_disk_is_full(audit: Audit, monkeypatch) -> None:
    trail = AuditTrail(audit)
    write = audit.record_all

    async def refuse(records: object) -> None:
        raise StorageError("the disk is full")

    for number in (1, 2):
        monkeypatch.setattr(audit, "record_all", refuse)
        trail.note(called(number))
        assert not await trail.flush()
    monkeypatch.setattr(audit, "record_all", write)
    assert await trail.flush()
    assert [record.call for record in await audit.latest()] == ["2", "1"]


async def test_a_hub_that_stops_leaves_no_call_unwritten(audit: Audit) -> None:
    trail = AuditTrail(audit)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(trail.run())
        trail.note(called(1))
        # It has seen the record, and gathers more, when it is stopped.
        await asyncio.sleep(0)
        writing.cancel()
    trail.note(called(2))

    await trail.flush()

    assert [record.call for record in await audit.latest()] == ["2", "1"]
