"""What was taken in, kept in the database, and read back when the hub starts.

Writes are gathered, so that a thousand devices are a few commits.
"""

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import bindparam, insert, tuple_, update
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, delete, select

from contracts.errors import InvalidMessage
from contracts.registration import Method, MethodFlags, Registration
from hub_registry.devices.devices import Device, device_of
from hub_registry.devices.directory import Directory, RegisteredSkill
from hub_registry.devices.presence import HighWater
from hub_registry.storage.store import Store
from hub_registry.storage.tables import DeviceRow, RegistrationRow, SkillRow

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Admitted:
    key_id: str
    skill: RegisteredSkill
    at: datetime


@dataclass
class _Batch:
    skills: dict[tuple[str, str], _Admitted | None] = field(default_factory=dict)
    high: dict[str, tuple[str, HighWater]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.skills or self.high)


class Journal:
    """Collects changes and writes them in one transaction at a time.

    Ingesting the same message in several hub processes writes the same rows.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batch = _Batch()
        self._alive: dict[str, datetime] = {}

    def skill(self, device: str, key_id: str, skill: RegisteredSkill, at: datetime) -> None:
        """Note a skill that now counts, signed with this key."""
        self._batch.skills[device, skill.name] = _Admitted(key_id, skill, at)

    def skill_gone(self, device: str, skill: str) -> None:
        """Note a skill that no longer counts."""
        self._batch.skills[device, skill] = None

    def high_water(self, device: str, key_id: str, high: HighWater) -> None:
        """Note the latest status of a device, signed with this key."""
        self._batch.high[device] = (key_id, high)

    def alive(self, device: str, at: datetime) -> None:
        """Note a sign of life."""
        self._alive[device] = at

    async def flush(self) -> None:
        """Write what was noted, signs of life excepted; what cannot be written now stays noted."""
        batch, self._batch = self._batch, _Batch()
        if not batch:
            return
        try:
            await self._store.write(lambda session: _write(session, batch))
        except SQLAlchemyError as error:
            _log.error("the registry could not be written, it is tried again: %s", error)
            self._batch.skills = batch.skills | self._batch.skills
            self._batch.high = batch.high | self._batch.high
        except Exception:  # noqa: BLE001
            # Not the database's fault but something in the rows; trying again would fail for ever.
            _log.exception("the registry could not be written; devices register again at their next start")

    async def flush_alive(self) -> None:
        """Write the signs of life."""
        alive, self._alive = self._alive, {}
        if not alive:
            return
        try:
            await self._store.write(lambda session: _write_alive(session, alive))
        except SQLAlchemyError as error:
            _log.error("signs of life could not be written: %s", error)


def _write(session: Session, batch: _Batch) -> None:
    keys = dict(session.exec(select(DeviceRow.id, DeviceRow.key_id)).all())
    connection = session.connection()
    # A device that was removed or has a new key since then is not what this is about any more.
    admitted = {
        place: found
        for place, found in batch.skills.items()
        if found is not None and keys.get(place[0]) == found.key_id
    }
    replaced = [{"d": device, "c": name} for device, name in batch.skills]
    if replaced:
        for table in (SkillRow, RegistrationRow):
            connection.execute(
                delete(table).where(
                    col(table.device_id) == bindparam("d"), col(table.class_name) == bindparam("c")
                ),
                replaced,
            )
    if admitted:
        connection.execute(
            insert(RegistrationRow),
            [_registration_values(device, found.skill) for (device, _), found in admitted.items()],
        )
        methods = [
            row
            for (device, _), found in admitted.items()
            for row in _method_values(device, found.skill, found.at)
        ]
        if methods:
            connection.execute(insert(SkillRow), methods)
    for device, (key_id, high) in batch.high.items():
        connection.execute(_raise_high_water(device, key_id, high))


def _raise_high_water(device: str, key_id: str, high: HighWater) -> Any:
    stored = tuple_(DeviceRow.epoch, DeviceRow.connection, DeviceRow.seq, DeviceRow.ended)
    return (
        update(DeviceRow)
        .where(
            col(DeviceRow.id) == device,
            col(DeviceRow.key_id) == key_id,
            stored <= tuple_(high.epoch, high.connection, high.seq, high.ended),
        )
        .values(epoch=high.epoch, connection=high.connection, seq=high.seq, ended=high.ended)
    )


def _write_alive(session: Session, alive: dict[str, datetime]) -> None:
    values = [{"d": device, "at": at} for device, at in alive.items()]
    connection = session.connection()
    connection.execute(
        update(DeviceRow).where(col(DeviceRow.id) == bindparam("d")).values(last_seen=bindparam("at")),
        values,
    )
    connection.execute(
        update(SkillRow)
        .where(col(SkillRow.device_id) == bindparam("d"))
        .values(last_heartbeat=bindparam("at")),
        values,
    )


def _registration_values(device: str, skill: RegisteredSkill) -> dict[str, Any]:
    return {
        "device_id": device,
        "class_name": skill.name,
        "docstring": skill.registration.doc,
        "area": skill.registration.area,
        "digest": skill.digest,
    }


def _method_values(device: str, skill: RegisteredSkill, at: datetime) -> list[dict[str, Any]]:
    return [
        {
            "device_id": device,
            "class_name": skill.name,
            "function_name": method.name,
            "position": position,
            "signature": method.signature,
            "docstring": method.doc,
            "device_agnostic": skill.device_agnostic,
            "last_heartbeat": at,
            "parameters": method.parameters,
            "positional": method.positional,
            "result": method.result,
            "flags": method.flags.model_dump(),
            "timeout_ms": method.timeout_ms,
            "progress": method.progress,
            "sentences": method.sentences,
        }
        for position, method in enumerate(skill.methods.values())
    ]


@dataclass(frozen=True)
class _Stored:
    device: Device
    high: HighWater
    skills: list[RegisteredSkill]


async def read_back(store: Store, directory: Directory) -> None:
    """Put every device with its skills into the directory; whether it is there is unknown as yet."""
    for stored in await store.read(_stored):
        directory.put(stored.device, stored.high)
        for skill in stored.skills:
            directory.put_skill(stored.device.id, skill)


def _stored(session: Session) -> list[_Stored]:
    methods: defaultdict[tuple[str, str], list[SkillRow]] = defaultdict(list)
    for method in session.exec(select(SkillRow).order_by(col(SkillRow.position))):
        methods[method.device_id, method.class_name].append(method)
    skills: defaultdict[str, list[RegisteredSkill]] = defaultdict(list)
    for row in session.exec(select(RegistrationRow)):
        try:
            skills[row.device_id].append(_skill(row, methods[row.device_id, row.class_name]))
        except (InvalidMessage, ValidationError) as error:
            _log.warning("skipped the stored %s of %s: %s", row.class_name, row.device_id, error)
    return [
        _Stored(
            device_of(row), HighWater(row.epoch, row.connection, row.seq, ended=row.ended), skills[row.id]
        )
        for row in session.exec(select(DeviceRow))
    ]


def _skill(row: RegistrationRow, methods: list[SkillRow]) -> RegisteredSkill:
    registration = Registration(
        skill=row.class_name,
        doc=row.docstring,
        device_agnostic=any(method.device_agnostic for method in methods),
        area=row.area,
        methods=[_method(method) for method in methods],
    )
    return RegisteredSkill.of(registration, row.digest)


def _method(row: SkillRow) -> Method:
    return Method(
        name=row.function_name,
        signature=row.signature,
        doc=row.docstring,
        parameters=row.parameters,
        positional=row.positional,
        result=row.result,
        flags=MethodFlags.model_validate(row.flags),
        timeout_ms=row.timeout_ms,
        progress=row.progress,
        sentences=row.sentences,
    )
