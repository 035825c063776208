"""Signed status and registrations of a spoke."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal

from bus.link import Message
from contracts import own_version, topics
from contracts.devices.presence import DeviceStatus
from contracts.devices.registration import Registration
from contracts.errors import InvalidMessage
from identity.envelope import Seal, unseal


class OwnStatus:
    """Signs the statuses of one epoch in order, and recognises its own among those received.

    Args:
        manifest: SHA-256 of the registration of every skill there is.
    """

    def __init__(self, seal: Seal, *, device: str, epoch: int, manifest: Mapping[str, str]) -> None:
        self.topic = topics.STATUS.build(device=device)
        self.epoch = epoch
        self.connection = 0
        self._seal = seal
        self._manifest = dict(manifest)
        self._seq = 0
        self._said: set[bytes] = set()  # until the broker echoes them

    def begin(self) -> Message:
        """Begin the next connection and return its Last Will.

        The will is not remembered as an echo: received while the connection stands, it is false.
        """
        self.connection += 1
        self._seq = 0
        self._said.clear()
        # `offline` is final within its connection whatever its seq, so the will may have the first.
        return self._message("offline")

    def offer(self, manifest: Mapping[str, str]) -> None:
        self._manifest = dict(manifest)

    def online(self, *, hub_session: str | None) -> Message:
        """Return the online status, answering this session of the hub."""
        self._seq += 1
        return self._remembered(self._message("online", hub_session=hub_session))

    def offline(self) -> Message:
        """Return the status that ends this connection."""
        self._seq += 1
        return self._remembered(self._message("offline"))

    def is_echo(self, payload: bytes) -> bool:
        """Return whether this is the first echo of a published status; a second one is a replay."""
        is_echo = payload in self._said
        self._said.discard(payload)
        return is_echo

    def is_later(self, payload: bytes) -> bool:
        """Return whether a status has this device's signature and is newer than all that it published.

        Another process then has its key.
        """
        try:
            body = unseal(self._seal.hub_id, self.topic, payload, self._seal.key.public)
            status = topics.STATUS.parse(body)
        except InvalidMessage:
            return False
        return status.order > (self.epoch, self.connection, self._seq)

    def _message(self, state: Literal["online", "offline"], *, hub_session: str | None = None) -> Message:
        status = DeviceStatus(
            state=state,
            epoch=self.epoch,
            connection=self.connection,
            seq=self._seq,
            hub_session=hub_session,
            skills=self._manifest if state == "online" else {},
            version=own_version(),
        )
        return Message(self.topic, self._seal.seal(self.topic, status), topics.STATUS.qos, retain=True)

    def _remembered(self, message: Message) -> Message:
        self._said.add(message.payload)
        return message


def sealed_registrations(seal: Seal, device: str, registrations: Iterable[Registration]) -> dict[str, bytes]:
    """Sign registrations; return the payload by topic. The same input gives the same bytes."""
    sealed: dict[str, bytes] = {}
    for registration in registrations:
        topic = topics.SKILL.build(device=device, skill=registration.skill)
        sealed[topic] = seal.seal(topic, registration)
    return sealed


def manifest_of(sealed: Mapping[str, bytes]) -> dict[str, str]:
    """Return the manifest: SHA-256 of each skill's payload as published, signature included."""
    manifest: dict[str, str] = {}
    for topic, payload in sealed.items():
        values = topics.SKILL.match(topic)
        assert values is not None
        manifest[values["skill"]] = hashlib.sha256(payload).hexdigest()
    return manifest
