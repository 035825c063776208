"""Spokes for tests: what one puts on the bus, right or wrong, without a skill behind it."""

import asyncio
import hashlib
import inspect
import itertools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from agent_core.finder import SkillFinder
from agent_core.search.catalogue import FoundMethod
from bus.link import Link
from contracts import topics
from contracts.claims import Claims
from contracts.devices.presence import DeviceStatus, Heartbeat
from contracts.devices.registration import Method, Registration
from hub_registry.access.token_rows import row_of
from hub_registry.registry import Registry
from identity import tokens
from identity.envelope import Seal
from identity.keys import KeyPair


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until something, plain or to be awaited, holds; a test that waits in vain fails."""
    async with asyncio.timeout(20):
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            await asyncio.sleep(0.01)


async def find(search: SkillFinder, query: str, *, current: str | None = None) -> tuple[FoundMethod, ...]:
    """Find methods as a turn does."""
    return (await search.find(query, current=current)).results


def registration(skill: str = "MediaSkill", *methods: str, agnostic: bool = False) -> Registration:
    return Registration(
        skill=skill,
        doc=f"What {skill} does.",
        device_agnostic=agnostic,
        methods=[
            Method(
                name=name,
                signature=f"{name}(level: int = 30) -> None",
                doc=f"Does {name.replace('_', ' ')}.",
                parameters={"type": "object", "properties": {"level": {"type": "integer"}}},
            )
            for name in methods or ("set_volume",)
        ],
    )


class FakeSpoke:
    """One device's voice on the bus."""

    def __init__(self, link: Link, *, hub_id: str, device: str, key: KeyPair, epoch: int = 1_000) -> None:
        self.device = device
        self.key = key
        self.epoch = epoch
        self.connection = 1
        self.link = link
        self._seal = Seal(hub_id, key)
        self._seq = itertools.count()

    def status_payload(
        self, state: str = "online", *, skills: Mapping[str, bytes] | None = None, **changes
    ) -> bytes:
        """Make a signed status; its manifest lists these registration payloads."""
        given = {
            "state": state,
            "epoch": self.epoch,
            "connection": self.connection,
            "version": "1.2.3",
            "skills": {name: hashlib.sha256(payload).hexdigest() for name, payload in (skills or {}).items()},
        } | changes
        given.setdefault("seq", next(self._seq))
        return self._seal.seal(self.status_topic, DeviceStatus.model_validate(given))

    @property
    def status_topic(self) -> str:
        return topics.STATUS.build(device=self.device)

    def skill_topic(self, skill: str) -> str:
        return topics.SKILL.build(device=self.device, skill=skill)

    def registration_payload(self, made: Registration, *, topic: str | None = None) -> bytes:
        return self._seal.seal(topic or self.skill_topic(made.skill), made)

    async def send(self, topic: str, payload: bytes, *, retain: bool = True) -> None:
        await self.link.publish(topic, payload, retain=retain)

    async def status(self, state: str = "online", **changes) -> bytes:
        payload = self.status_payload(state, **changes)
        await self.send(self.status_topic, payload)
        return payload

    async def online(self, *registrations: Registration) -> dict[str, bytes]:
        """Come online with these skills."""
        payloads = {made.skill: self.registration_payload(made) for made in registrations}
        for skill, payload in payloads.items():
            await self.send(self.skill_topic(skill), payload)
        await self.status(skills=payloads)
        return payloads

    async def heartbeat(self) -> None:
        payload = Heartbeat(seq=1, uptime_s=1.0).model_dump_json().encode()
        await self.link.publish(topics.HEARTBEAT.build(device=self.device), payload, qos=0, retain=True)


async def aged(registry: Registry, device: str, enrolment: Path) -> Claims:
    """Give a device a token that is to be renewed: a sixth of its life is left, as if it had lain there."""
    authority = registry.authority
    claims = tokens.make_claims(
        hub_id=registry.hub_id,
        subject=device,
        kind="device",
        owner=registry.admin.id,
        scopes=("register", "chat"),
        lifetime_s=3_600,
        audience="http",
        key=registry.directory.public_key(device),
        now=time.time() - 3_000,
    )
    row = row_of(claims, name="", replaces=None)
    async with authority.acts, authority.admitting(claims):
        await registry.store.write(lambda session: session.add(row))
    stored, token = json.loads(enrolment.read_text()), authority.hand_out(claims, row)
    given = {"token": token, "bus_token": authority.bus_token(token)}
    enrolment.write_text(json.dumps(stored | given))
    return claims


async def join(registry: Registry, link: Link, name: str, *, trusted: bool = True) -> FakeSpoke:
    """Add and enrol a device."""
    device = await registry.devices.add(name, owner=registry.admin.id, trusted=trusted)
    key = KeyPair.generate()
    invitation = await registry.invite(device.id)
    await registry.enrolment.enrol(invitation.token, key.public.jwk())
    return FakeSpoke(link, hub_id=registry.hub_id, device=device.id, key=key)
