"""A device that has joined like any other, and from then on says what a test wants it to say."""

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from contracts import topics
from contracts.presence import DeviceStatus
from contracts.registration import Registration
from identity.envelope import Seal
from identity.keys import KeyPair
from identity.proofs import make_proof
from tests.e2e.bus import Bus
from tests.e2e.house import House
from tests.proofs import proof_of

_LAST_EPOCH = 2**53 - 1


@dataclass
class HostileDevice:
    """The device; a context manager that holds its connection to the broker.

    Attributes:
        epoch: Of its next status: each begins a start of its own, so that none is an old one.
        listed: What its manifest names: the payload of each registration.
    """

    id: str
    token: str = field(repr=False)
    seal: Seal = field(repr=False)
    bus: Bus = field(repr=False)
    epoch: int = 1
    listed: dict[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def enrol(cls, house: House, name: str) -> Self:
        """Have the owner of the house add a device, and join as it."""
        key = KeyPair.generate()
        added = house.ask("/api/devices", {"name": name})
        body = {"token": added["token"], "public_key": key.public.jwk()}
        answer = httpx.post(f"{house.url}/api/devices/enrol", json=body, auth=proof_of(key))
        joined = answer.raise_for_status().json()
        bus = Bus(house.broker_url, joined["device"], joined["bus_token"], filters=("hub/+/status",))
        return cls(joined["device"], joined["token"], Seal(joined["hub_id"], key), bus)

    def __enter__(self) -> Self:
        self.bus.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.bus.__exit__()

    @property
    def is_spent(self) -> bool:
        """Whether the broker threw it out, or no later status is possible."""
        return self.bus.gone.is_set() or self.epoch >= _LAST_EPOCH

    def headers(self, method: str, url: str) -> dict[str, str]:
        """Return what goes with a request of its own to the hub."""
        target = url.partition("?")[0]
        proof = make_proof(self.seal.key, method=method, target=target, token=self.token, now=time.time())
        return {"authorization": f"DPoP {self.token}", "dpop": proof}

    def status_of(self, document: dict[str, Any]) -> dict[str, Any]:
        """Make a status the latest one of this device, with all that it has registered."""
        self.epoch += 1
        skills = {name: hashlib.sha256(payload).hexdigest() for name, payload in self.listed.items()}
        return document | {"epoch": self.epoch, "connection": 1, "seq": 0, "skills": skills}

    def come_online(self) -> None:
        """Publish an honest status."""
        status = DeviceStatus.model_validate(self.status_of({"state": "online"}))
        topic = topics.STATUS.build(device=self.id)
        self.bus.publish(topic, self.seal.seal(topic, status), retain=True)

    def register(self, *registrations: Registration) -> None:
        """Publish skills, and a manifest that names them."""
        for registration in registrations:
            topic = topics.SKILL.build(device=self.id, skill=registration.skill)
            self.listed[registration.skill] = payload = self.seal.seal(topic, registration)
            self.bus.publish(topic, payload, retain=True)
        self.come_online()
