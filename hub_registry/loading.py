"""Fills the directory from the database when the hub starts."""

from collections import defaultdict
from dataclasses import dataclass

from sqlmodel import Session, col, select

from contracts.registration import Method, MethodFlags, Registration
from hub_registry.devices import Device, device_of
from hub_registry.directory import Directory, RegisteredSkill
from hub_registry.presence import HighWater
from hub_registry.store import Store
from hub_registry.tables import DeviceRow, RegistrationRow, SkillRow


@dataclass(frozen=True)
class _Stored:
    device: Device
    high: HighWater
    skills: list[RegisteredSkill]


async def load(store: Store, directory: Directory) -> None:
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
        skills[row.device_id].append(_skill(row, methods[row.device_id, row.class_name]))
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
