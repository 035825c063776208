"""The owner's decisions about what devices declare: kept in memory, written to the database."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from pydantic import ValidationError
from sqlalchemy import bindparam, insert
from sqlmodel import Session, col, delete, select

from agent_core.search.directory import RegisteredSkill
from contracts.answers.devices import Item
from contracts.errors import StorageError
from hub_registry import limits
from hub_registry.devices.review import Known, Reviewed, approved, review, with_allowed
from hub_registry.storage.store import Store
from hub_registry.storage.tables import ApprovalRow, DeviceRow

_log = logging.getLogger(__name__)


_REPLACED: Final = delete(ApprovalRow).where(
    col(ApprovalRow.device_id) == bindparam("d"), col(ApprovalRow.skill) == bindparam("s")
)


class Approvals:
    """What is known and approved of the skills of every device."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Known]] = {}
        self._providers: dict[str, set[str]] = {}
        self._unwritten: set[tuple[str, str]] = set()
        self._in_writing: set[tuple[str, str]] = set()
        # What was approved and cannot be read is not new: until it is approved again the strictest holds.
        self._lost: set[tuple[str, str]] = set()

    async def load(self, store: Store) -> set[str]:
        """Read what the database has; return the devices of which that is something else than before.

        May be done again at any time; what was decided meanwhile stays.
        """
        before = {device: dict(there) for device, there in self._known.items()}
        changed: set[str] = set()
        rows = await store.read(lambda session: session.exec(select(ApprovalRow)).all())
        ours = self._unwritten | self._in_writing
        there = {(row.device_id, row.skill) for row in rows}
        known_before = {(device, skill) for device, known in before.items() for skill in known}
        for device, skill in known_before - there - ours:
            # Another device has this name by now.
            if self._known.get(device, {}).get(skill) is before[device][skill]:
                del self._known[device][skill]
                self._providers.get(skill, set()).discard(device)
                changed.add(device)
        for row in rows:
            try:
                known = Known.model_validate(row.known)
                was = before.get(row.device_id, {}).get(row.skill)
                is_ours = (row.device_id, row.skill) in ours
                if known == was or is_ours or self._known.get(row.device_id, {}).get(row.skill) is not was:
                    continue
                self._lost.discard((row.device_id, row.skill))
                self._keep(row.device_id, row.skill, known)
                self._unwritten.discard((row.device_id, row.skill))
                changed.add(row.device_id)
            except ValidationError:
                _log.warning("what is approved of %s of %s cannot be read", row.skill, row.device_id)
                self._lost.add((row.device_id, row.skill))
                # It may have been the provider for the home, which no other becomes without approval then.
                self._providers.setdefault(row.skill, set()).add(row.device_id)
        return changed

    def leave_unwritten(self) -> None:
        """Drop unwritten changes: what another process of this hub writes takes precedence."""
        self._unwritten.clear()

    async def flush(self, store: Store) -> None:
        """Write what changed.

        Raises:
            StorageError: If the database cannot be used; it is written the next time then.
        """
        unwritten, self._unwritten = self._unwritten, set()
        self._in_writing |= unwritten
        rows = [
            {
                "device_id": device,
                "skill": skill,
                "known": self._known[device][skill].model_dump(mode="json", exclude_defaults=True),
            }
            for device, skill in unwritten
        ]

        def work(session: Session) -> None:
            there = set(session.exec(select(DeviceRow.id)))
            written = [row for row in rows if row["device_id"] in there]
            if written:
                # Two statements in all: a thousand devices that register at once are thousands of rows.
                connection = session.connection()
                replaced = [{"d": row["device_id"], "s": row["skill"]} for row in written]
                connection.execute(_REPLACED, replaced)
                connection.execute(insert(ApprovalRow), written)

        if rows:
            try:
                await store.write(work)
            except (StorageError, asyncio.CancelledError):
                # A hub that stops cancels what waits for the database, and writes it before it closes that.
                self._unwritten |= unwritten & self._all()
                raise
            finally:
                self._in_writing -= unwritten

    def review(self, device: str, skill: RegisteredSkill, *, trusted: bool) -> Reviewed:
        """Return what of a registration counts now, and remember what has to be."""
        there = self._known.get(device, {})
        room = sum(1 + len(known.flags) for known in there.values()) < limits.MOST_KNOWN_METHODS
        room = room and (device, skill.name) not in self._lost
        reviewed = review(
            skill,
            there.get(skill.name, Known()),
            trusted=trusted,
            provided=bool(self._providers.get(skill.name, set()) - {device}),
            room=room,
        )
        if room:
            self._keep(device, reviewed.skill.name, reviewed.known)
        return replace(reviewed, skill=with_allowed(reviewed.skill, reviewed.known))

    def allow(self, device: str, skill: str, method: str, digest: str | None) -> None:
        """Allow models to call a method whose author declared nothing without asking; None revokes it."""
        known = self._known.get(device, {}).get(skill, Known())
        allowed = {name: each for name, each in known.allowed.items() if name != method}
        allowed |= {method: digest} if digest is not None else {}
        self._keep(device, skill, known.model_copy(update={"allowed": allowed}))

    def approve(self, device: str, skills: Iterable[RegisteredSkill]) -> None:
        """Approve all that a device declares in these registrations."""
        for skill in skills:
            known = self._known.get(device, {}).get(skill.name, Known())
            self._lost.discard((device, skill.name))
            self._keep(device, skill.name, approved(skill, known))

    def deny(self, device: str, items: Iterable[Item]) -> None:
        """Leave items without approval for good; they are no longer counted as waiting."""
        for item in items:
            known = self._known.get(device, {}).get(item.skill, Known())
            denied = sorted({*known.denied, item.digest})
            self._keep(device, item.skill, known.model_copy(update={"denied": denied}))

    def prefer(self, skill: str, devices: Sequence[str]) -> set[str]:
        """Set the order of the providers of a skill, which approves them; return whom it concerns."""
        concerned = {device for device, there in self._known.items() if skill in there} | set(devices)
        for device in concerned:
            known = self._known.get(device, {}).get(skill, Known())
            place = devices.index(device) if device in devices else None
            role = known.role if place is None else "approved"
            self._keep(device, skill, known.model_copy(update={"place": place, "role": role}))
        return concerned

    def forget(self, device: str) -> None:
        """Forget a device that was removed."""
        self._known.pop(device, None)
        for providers in self._providers.values():
            providers.discard(device)
        self._unwritten &= self._all()

    def _all(self) -> set[tuple[str, str]]:
        return {(device, skill) for device, there in self._known.items() for skill in there}

    def _keep(self, device: str, skill: str, known: Known) -> None:
        there = self._known.setdefault(device, {})
        if there.get(skill) != known:
            there[skill] = known
            # What cannot be read stays, for at the next start this would be all that is known.
            if (device, skill) not in self._lost:
                self._unwritten.add((device, skill))
        if known.role != "none":
            self._providers.setdefault(skill, set()).add(device)
