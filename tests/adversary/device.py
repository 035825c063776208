"""A device that has joined like any other, and from then on says what a test wants it to say."""

import hashlib
import json
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import httpx

from contracts import topics
from contracts.devices.presence import DeviceStatus
from identity.envelope import Seal
from identity.keys import KeyPair
from identity.logins.proofs import make_proof
from tests.e2e.bus import Bus
from tests.e2e.house import House
from tests.proofs import bus_password, proof_of

_LAST_EPOCH = 2**53 - 1


@dataclass(frozen=True)
class Credentials:
    """What a device has after it has joined.

    Attributes:
        key_file: Its private key.
        epoch: Of its first status.
    """

    id: str
    hub_id: str
    hub_url: str
    broker_url: str
    key_file: str
    token: str = field(repr=False)
    bus_token: str = field(repr=False)
    epoch: int = 1

    @classmethod
    def enrol(cls, house: House, name: str, *, trusted: bool = False) -> Self:
        """Have the owner of the house add a device, and join as it.

        Args:
            trusted: Whether the owner has approved whatever its skills declare.
        """
        key = KeyPair.generate()
        added = house.ask("/api/devices", {"name": name, "trusted": trusted})
        body = {"token": added["token"], "public_key": key.public.jwk()}
        answer = httpx.post(f"{house.url}/api/devices/enrol", json=body, auth=proof_of(key))
        joined = answer.raise_for_status().json()
        file = house.directory / f"{joined['device']}.pem"
        key.save(file)
        return cls(
            id=joined["device"],
            hub_id=joined["hub_id"],
            hub_url=house.url,
            broker_url=house.broker_url,
            key_file=str(file),
            token=joined["token"],
            bus_token=joined["bus_token"],
        )

    @cached_property
    def key(self) -> KeyPair:
        """Its key."""
        return KeyPair.load(Path(self.key_file))

    def headers(self, method: str, url: str) -> dict[str, str]:
        """Return what goes with a request of its own to the hub."""
        target = url.partition("?")[0]
        proof = make_proof(self.key, method=method, target=target, token=self.token, now=time.time())
        return {"authorization": f"DPoP {self.token}", "dpop": proof}

    def password(self) -> str:
        """Return what it logs in with on the bus, once."""
        return bus_password(self.hub_id, self.id, self.key, self.bus_token)().get_secret_value()


@dataclass
class HostileDevice:
    """The device on the bus; a context manager that holds its connection.

    Attributes:
        epoch: Of its last status: each begins a start of its own, so that none is an old one.
        listed: What its manifest names: the payload of each registration.
        reply: What it answers to each call, apart from what makes it an answer to that call.
    """

    credentials: Credentials
    epoch: int = 0
    listed: dict[str, bytes] = field(default_factory=dict, repr=False)
    reply: bytes = b""

    def __post_init__(self) -> None:
        mine = self.credentials
        self.id, self.seal = mine.id, Seal(mine.hub_id, mine.key)
        password = bus_password(mine.hub_id, mine.id, mine.key, mine.bus_token)
        calls = topics.CALL.filter(device=mine.id)
        self.bus = Bus(mine.broker_url, mine.id, password, filters=("hub/+/status", calls))

    def __enter__(self) -> Self:
        self.bus.__enter__()
        self.bus._client.on_message = self._answer
        return self

    def _answer(self, client: Any, _: object, message: Any) -> None:
        if topics.CALL.match(message.topic) and self.reply:
            call = json.loads(message.payload)
            topic = topics.RESULT.build(device=self.id, instance=call["instance"], call=call["id"])
            own = f'{{"id":"{call["id"]}","epoch":{call["epoch"]},'.encode()
            # The later one of two fields of the same name counts: these are the call's unless it has its own.
            client.publish(topic, self.seal.sign(topic, own + self.reply[1:]), qos=1)

    def __exit__(self, *_: object) -> None:
        self.bus.__exit__()

    @property
    def is_spent(self) -> bool:
        """Whether the broker threw it out, or no later status is possible."""
        return self.bus.gone.is_set() or self.epoch >= _LAST_EPOCH

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
