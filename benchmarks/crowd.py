"""Many spokes at once: known to a hub, and heard by it, from one link."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bus.link import Link
from contracts import topics
from contracts.devices.presence import DeviceStatus
from contracts.devices.registration import Method, Registration
from hub_registry.access.accounts import Accounts
from hub_registry.storage.store import open_store
from hub_registry.storage.tables import DeviceRow, now
from identity.envelope import Seal
from identity.keys import KeyPair

SKILLS: Final = 4
_METHODS: Final = 5
METHODS: Final = SKILLS * _METHODS
"""Of one spoke."""


@dataclass(frozen=True)
class Spoke:
    """What a device puts on the bus when it comes online, without a process behind it."""

    id: str
    key: KeyPair

    def _online(self, seal: Seal, registrations: dict[str, bytes], seq: int) -> bytes:
        digests = {name: hashlib.sha256(payload).hexdigest() for name, payload in registrations.items()}
        status = DeviceStatus(state="online", epoch=1_000, connection=1, seq=seq, skills=digests)
        return seal.seal(topics.STATUS.build(device=self.id), status)

    def messages(self, hub_id: str, *, with_skills: bool, seq: int = 1) -> Iterator[tuple[str, bytes]]:
        """Sign what it sends when it comes online, or with a higher `seq` when it confirms that it is."""
        seal, payloads = Seal(hub_id, self.key), {}
        for made in self._registrations() if with_skills else ():
            topic = topics.SKILL.build(device=self.id, skill=made.skill)
            payloads[made.skill] = seal.seal(topic, made)
            yield topic, payloads[made.skill]
        yield topics.STATUS.build(device=self.id), self._online(seal, payloads, seq)

    def _registrations(self) -> Iterator[Registration]:
        # Every method of every spoke differs, which is the hardest case for the search.
        for skill in range(SKILLS):
            yield Registration(
                skill=f"Skill{skill}Of{self.id.title()}",
                doc="Controls one of the things in this room.",
                methods=[_method(f"set_{self.id}_{skill}_{number}") for number in range(_METHODS)],
            )


def _method(name: str) -> Method:
    return Method(
        name=name,
        signature=f"{name}(level: int = 30, room: str | None = None) -> bool",
        doc="Set the level of a thing.\n\nArgs:\n    level: From 0 to 100.\n    room: Where it stands.\n",
        parameters={
            "type": "object",
            "properties": {"level": {"type": "integer"}, "room": {"type": ["string", "null"]}},
            "additionalProperties": False,
        },
        positional=["level", "room"],
        result={"type": "boolean"},
    )


def make_spokes(count: int) -> list[Spoke]:
    """Make spokes with keys of their own."""
    return [Spoke(f"spoke{number}", KeyPair.generate()) for number in range(count)]


async def enrol(database: Path, spokes: Iterable[Spoke]) -> str:
    """Write spokes into the database of a hub that does not run yet.

    Returns:
        The hub's id.
    """
    KeyPair.load_or_create(database.parent / "key.pem")  # a hub refuses a database without its key
    async with open_store(database) as store:
        accounts = Accounts(store)
        owner = (await accounts.first_admin()).id
        rows = [
            DeviceRow(
                id=spoke.id,
                owner=owner,
                display_name=spoke.id,
                key=spoke.id,
                public_key=spoke.key.public.jwk(),
                key_id=spoke.key.kid,
                trusted=True,
                created_at=now(),
            )
            for spoke in spokes
        ]
        await store.write(lambda session: session.add_all(rows))
        return await accounts.hub_id()


async def publish(link: Link, messages: Iterable[tuple[str, bytes]]) -> None:
    """Put messages on the bus, one after the other, retained."""
    for topic, payload in messages:
        await link.publish(topic, payload, retain=True)
