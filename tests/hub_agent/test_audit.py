"""The audit trail: nothing that was noted is lost, and it stays in order."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import Session, col, select

from contracts.errors import StorageError
from hub_agent.calls.audit import AuditTrail, CallRecord
from hub_registry.storage.store import Store, open_store
from hub_registry.storage.tables import AuditRow, TokenRow, now
from tests.hub_registry.spokes import eventually


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(tmp_path / "hub" / "hub.db") as opened:
        yield opened


async def written(store: Store) -> list[str]:
    """The ids of the calls in the audit, in their order."""
    ids = select(AuditRow.call).order_by(col(AuditRow.id))
    return await store.read(lambda session: list(session.exec(ids)))


def called(number: int) -> CallRecord:
    return CallRecord(
        call=str(number),
        user="admin",
        actor={"user": "admin"},
        device="tv",
        skill="MediaSkill",
        method="play",
        outcome="result",
    )


async def test_calls_are_written_by_themselves_and_in_their_order(store: Store) -> None:
    trail = AuditTrail(store)
    noted = [called(number) for number in range(200)]
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(trail.run())
        for record in noted:
            trail.note(record)
            await asyncio.sleep(0)

        async def all_written() -> bool:
            return await written(store) == [record.call for record in noted]

        await eventually(all_written)
        writing.cancel()


async def test_calls_are_kept_while_the_disk_is_full(store: Store, monkeypatch) -> None:
    trail = AuditTrail(store)

    async def refuse(work: object) -> None:
        raise StorageError("the disk is full")

    for number in (1, 2):
        monkeypatch.setattr(store, "write", refuse)
        trail.note(called(number))
        assert not await trail.flush()
    monkeypatch.undo()
    assert await trail.flush()
    assert await written(store) == ["1", "2"]


async def test_a_hub_that_stops_leaves_no_call_unwritten(store: Store) -> None:
    trail = AuditTrail(store)
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(trail.run())
        trail.note(called(1))
        # It has seen the record, and gathers more, when it is stopped.
        await asyncio.sleep(0)
        writing.cancel()
    trail.note(called(2))

    await trail.flush()

    assert await written(store) == ["1", "2"]


async def test_a_token_with_many_calls_pushes_out_its_own_and_not_those_of_others(store: Store) -> None:
    trail = AuditTrail(store, rows=10)

    def add(session: Session) -> None:
        for name, count in (("hall", 3), ("flood", 5_000)):
            session.add(token_row(name))
            for number in range(count):
                trail.note(replace(called(number), call=f"{name} {number}", token=name))
        trail.note(replace(called(0), call="old", at=now() - timedelta(days=400)))

    await store.write(add)
    await trail.flush()
    await trail.trim()
    assert await written(store) == [f"hall {number}" for number in range(3)] + [
        f"flood {number}" for number in range(4_993, 5_000)
    ]


def token_row(name: str) -> TokenRow:
    return TokenRow(
        jti=name,
        kind="device",
        subject=name,
        owner="ann",
        audience="http",
        scope="",
        issued_at=now(),
        expires_at=now(),
    )
