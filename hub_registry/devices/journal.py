"""Changes of presence and skills, written to the database in batches and read back when the hub starts."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import bindparam, func, insert, tuple_, update
from sqlmodel import Session, col, delete, select
from sqlmodel.sql.expression import SelectOfScalar

from agent_core.search.directory import RegisteredSkill
from contracts.errors import StorageError, StrawberryError
from contracts.phrases import Phrase
from hub_registry.devices.devices import device_of
from hub_registry.devices.directory import Directory
from hub_registry.devices.presence import HighWater
from hub_registry.devices.registrations import read_registration
from hub_registry.storage.news import SILENT
from hub_registry.storage.store import Store
from hub_registry.storage.tables import DeviceRow, RegistrationRow
from identity.keys import PublicKey

_log = logging.getLogger(__name__)

_ROWS: Final = 100
"""Registrations that are read at once: 50 MB where each is as large as it may be."""


@dataclass
class _Batch:
    skills: dict[tuple[str, str], RegistrationRow | None] = field(default_factory=dict)
    high: dict[str, tuple[str, HighWater]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.skills or self.high)


class Journal:
    """Collects changes and writes them in one transaction at a time.

    Ingesting the same message in several hub processes writes the same rows.

    Attributes:
        store: Where they are written; None while another hub does it: then they stay noted.
    """

    def __init__(self, store: Store | None) -> None:
        self.store = store
        self._batch = _Batch()
        self._flushing = asyncio.Lock()
        self._alive: dict[str, datetime] = {}

    def skill(self, device: str, key_id: str, skill: RegisteredSkill) -> None:
        """Note a skill that now counts, signed with this key."""
        self._batch.skills[device, skill.name] = RegistrationRow(
            device_id=device, skill=skill.name, key_id=key_id, payload=skill.payload.decode()
        )

    def skill_gone(self, device: str, skill: str) -> None:
        self._batch.skills[device, skill] = None

    def high_water(self, device: str, key_id: str, high: HighWater) -> None:
        self._batch.high[device] = (key_id, high)

    def alive(self, device: str, at: datetime) -> None:
        self._alive[device] = at

    async def flush(self) -> None:
        """Write what was noted, signs of life excepted; what cannot be written now stays noted."""
        # Once this returns, what another call had begun to write is written, too.
        async with self._flushing:
            if (store := self.store) is not None and self._batch:
                await self._write_batch(store)

    async def _write_batch(self, store: Store) -> None:
        batch, self._batch = self._batch, _Batch()
        try:
            await store.write(lambda session: _write(session, batch))
        except StorageError as error:
            _log.error("the registry could not be written, it is tried again: %s", error)
            self._put_back(batch)
        except asyncio.CancelledError:
            # A hub that stops writes what waited for the database before it closes that.
            self._put_back(batch)
            raise
        except Exception:  # noqa: BLE001
            # Not the database's fault but something in the rows; trying again would fail for ever.
            _log.exception("the registry could not be written; devices register again at their next start")

    def _put_back(self, batch: _Batch) -> None:
        self._batch.skills = batch.skills | self._batch.skills
        self._batch.high = batch.high | self._batch.high

    async def flush_alive(self) -> None:
        """Write the signs of life."""
        if (store := self.store) is None or not self._alive:
            return
        alive, self._alive = self._alive, {}
        try:
            await store.write(lambda session: _write_alive(session, alive))
        except StorageError as error:
            _log.error("signs of life could not be written: %s", error)


def _write(session: Session, batch: _Batch) -> None:
    keys = dict(session.exec(select(DeviceRow.id, DeviceRow.key_id)).all())
    connection = session.connection()
    replaced = [{"d": device, "s": skill} for device, skill in batch.skills]
    if replaced:
        gone = delete(RegistrationRow).where(
            col(RegistrationRow.device_id) == bindparam("d"), col(RegistrationRow.skill) == bindparam("s")
        )
        connection.execute(gone, replaced)
    # A device that was removed or has a new key since then is not what this is about any more.
    admitted = [
        row.model_dump() for row in batch.skills.values() if row and keys.get(row.device_id) == row.key_id
    ]
    if admitted:
        connection.execute(insert(RegistrationRow), admitted)
    for device, (key_id, high) in batch.high.items():
        connection.execute(_raise_high_water(device, key_id, high), execution_options={SILENT: True})


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
    seen = update(DeviceRow).where(col(DeviceRow.id) == bindparam("d")).values(last_seen=bindparam("at"))
    rows = [{"d": device, "at": at} for device, at in alive.items()]
    session.connection().execute(seen, rows, execution_options={SILENT: True})


async def follow(store: Store, directory: Directory, journal: Journal, *, hub_id: str) -> None:
    """Apply what other processes of this hub have stored of devices, their skills and approvals.

    What changes here meanwhile stays.
    """
    before = {entry.id: (entry, entry.device, dict(entry.registered)) for entry in directory.entries()}
    # What is newer here is in the database first. A skill that comes meanwhile is not of those before: it is
    # missing there because it is new, not because another process removed it.
    await journal.flush()
    if journal.store is not None:
        await directory.approvals.flush(journal.store)
    else:
        directory.approvals.leave_unwritten()

    def stored(session: Session) -> tuple[Sequence[DeviceRow], dict[tuple[str, str], str]]:
        digest = func.encode(func.sha256(func.convert_to(RegistrationRow.payload, "UTF8")), "hex")
        digests = session.exec(select(RegistrationRow.device_id, RegistrationRow.skill, digest))
        return session.exec(select(DeviceRow)).all(), {(row[0], row[1]): row[2] for row in digests}

    devices, digests = await store.read(stored)
    for gone in before.keys() - {row.id for row in devices}:
        directory.drop(gone)
    for row in devices:
        was = before[row.id][1] if row.id in before else None
        directory.follow(device_of(row), _high_water(row), was=was)
    for device in await directory.approvals.load(store):
        if (entry := directory.get(device)) is not None:
            directory.review(entry)

    def is_as_before(device: str, skill: str) -> bool:
        entry, old = directory.get(device), before.get(device)
        # With another key it is another entry, without skills.
        was = old[2].get(skill) if old is not None and old[0] is entry else None
        return entry is not None and entry.registered.get(skill) is was

    known = {(id_, name): skill.digest for id_, old in before.items() for name, skill in old[2].items()}
    for device, skill in known.keys() - digests.keys():
        if is_as_before(device, skill):
            directory.drop_skill(device, skill)
    news = [key for key, digest in digests.items() if known.get(key) != digest]
    for start in range(0, len(news), _ROWS):
        wanted = tuple_(RegistrationRow.device_id, RegistrationRow.skill).in_(news[start : start + _ROWS])
        query = select(RegistrationRow).where(wanted)
        rows = await store.read(partial(_rows, query))
        await _put_skills(directory, rows, hub_id=hub_id, may_put=is_as_before)


def _rows(query: SelectOfScalar[RegistrationRow], session: Session) -> Sequence[RegistrationRow]:
    return session.exec(query).all()


def _high_water(row: DeviceRow) -> HighWater:
    return HighWater(row.epoch, row.connection, row.seq, ended=row.ended)


async def read_back(store: Store, directory: Directory, *, hub_id: str) -> None:
    """Put every device with its skills into the directory; whether it is online is unknown as yet.

    What is stored is checked as it was when it came. What does not hold is a problem of its device.
    """

    def stored(session: Session) -> tuple[Sequence[DeviceRow], Sequence[RegistrationRow]]:
        return session.exec(select(DeviceRow)).all(), session.exec(select(RegistrationRow)).all()

    devices, registrations = await store.read(stored)
    for row in devices:
        device = device_of(row)
        directory.put(device, _high_water(row))
        problems = []
        if row.key_id is not None and device.public_key is None:
            problems.append("its stored key cannot be used: join it again")
        if row.aliases != list(device.aliases):
            problems.append("its stored aliases cannot be used: set them again")
        for problem in problems:
            _log.warning("%s: %s", row.id, problem)
            directory.note_problem(device.id, problem)
    await _put_skills(directory, registrations, hub_id=hub_id)


async def _put_skills(
    directory: Directory,
    registrations: Sequence[RegistrationRow],
    *,
    hub_id: str,
    may_put: Callable[[str, str], bool] = lambda _device, _skill: True,
) -> None:
    keys = {found.device_id: directory.public_key(found.device_id) for found in registrations}

    def checked() -> list[RegisteredSkill | str | None]:
        return [_checked(found, keys[found.device_id], hub_id=hub_id) for found in registrations]

    for found, skill in zip(registrations, await asyncio.to_thread(checked), strict=True):
        if not may_put(found.device_id, found.skill):
            continue
        if isinstance(skill, RegisteredSkill):
            try:
                directory.put_skill(found.device_id, skill)
            except Exception as error:  # noqa: BLE001 - as for those that cannot be read
                _log.exception("the stored %s of %s cannot be used", found.skill, found.device_id)
                directory.drop_skill(found.device_id, found.skill)
                skill = type(error).__name__
        if isinstance(skill, str):
            problem = Phrase("its stored {skill} was left out: {reason}", skill=found.skill, reason=skill)
            _log.warning("%s: %s", found.device_id, problem)
            directory.note_problem(found.device_id, problem)


def _checked(found: RegistrationRow, key: PublicKey | None, *, hub_id: str) -> RegisteredSkill | str | None:
    """Read a stored registration; return why not where it does not hold, None for a device without a key."""
    if key is None:
        return None
    try:
        return read_registration(
            found.payload.encode(), hub_id=hub_id, device=found.device_id, skill=found.skill, key=key
        )
    except StrawberryError as error:
        return error.message
    except Exception as error:  # noqa: BLE001
        # One row must not keep the hub from starting.
        _log.exception("reading the stored %s of %s failed", found.skill, found.device_id)
        return Phrase("the hub cannot process it ({error})", error=type(error).__name__)
