"""Registrations: one skill of one device, read from the bytes that the device signed."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_core.skills.foreign_schema import check_schema
from contracts import topics
from contracts.errors import InvalidMessage
from contracts.names import HUB_SKILLS
from contracts.registration import Method, Registration
from identity.envelope import unseal
from identity.keys import PublicKey


@dataclass(frozen=True)
class RegisteredSkill:
    """One skill of one device, as its signed registration says.

    Attributes:
        digest: SHA-256 of the payload, as the device's manifest lists it.
        methods: By name, in the order of the registration.
        payload: What the device signed; this is what the database keeps.
    """

    registration: Registration
    digest: str
    methods: Mapping[str, Method]
    payload: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, registration: Registration, digest: str, payload: bytes = b"") -> "RegisteredSkill":
        """Check what the types of a registration leave open, and index its methods.

        Raises:
            InvalidMessage: A method is there twice, or a schema is malformed.
        """
        for method in registration.methods:
            try:
                check_schema(method.parameters)
                if method.result is not None:
                    check_schema(method.result)
            except ValueError as error:
                raise InvalidMessage(f"{registration.skill}.{method.name}: {error}") from None
        if len({method.name for method in registration.methods}) != len(registration.methods):
            raise InvalidMessage(f"{registration.skill} registers a method twice")
        return cls(registration, digest, {method.name: method for method in registration.methods}, payload)

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.registration.skill

    @property
    def device_agnostic(self) -> bool:
        """Whether any device that has the skill serves as well as another."""
        return self.registration.device_agnostic


def read_registration(
    payload: bytes, *, hub_id: str, device: str, skill: str, key: PublicKey
) -> RegisteredSkill:
    """Check and parse a registration, whether it comes from the bus or from the database.

    Args:
        payload: As the device published it, signature included.
        skill: Name of the class, as the topic gives it.
        key: The device's key.

    Raises:
        InvalidMessage: If it is not signed by this key for this device and skill, or malformed.
    """
    document = unseal(hub_id, topics.SKILL.build(device=device, skill=skill), payload, key)
    registration = topics.SKILL.parse(document)
    assert isinstance(registration, Registration)
    if registration.skill != skill:
        raise InvalidMessage(f"it registers {registration.skill!r} on the topic of {skill!r}")
    if skill in HUB_SKILLS:
        raise InvalidMessage(f"the name {skill} is reserved for the hub's own skill")
    return RegisteredSkill.of(registration, hashlib.sha256(payload).hexdigest(), payload)
