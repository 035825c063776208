"""Registrations: one skill of one device, read from the bytes that the device signed."""

import hashlib

from agent_core.search.directory import RegisteredSkill
from contracts import topics
from contracts.errors import InvalidMessage
from contracts.names import HUB_SKILLS
from hub_registry import limits
from identity.envelope import unseal
from identity.keys import PublicKey


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
    return parse_registration(document, payload, skill=skill)


def parse_registration(document: bytes, payload: bytes, *, skill: str) -> RegisteredSkill:
    """Parse a registration whose signature was checked.

    Args:
        document: The payload without its signature.
        skill: Name of the class, as the topic gives it.

    Raises:
        InvalidMessage: If it is malformed, or for another skill.
    """
    registration = topics.SKILL.parse(document)
    if registration.skill != skill:
        raise InvalidMessage(
            "it registers {skill!r} on the topic of {other!r}", skill=registration.skill, other=skill
        )
    if skill in HUB_SKILLS:
        raise InvalidMessage("the name {skill} is reserved for the hub's own skill", skill=skill)
    sentences = sum(len(texts) for method in registration.methods for texts in method.sentences.values())
    if sentences > limits.MAX_SENTENCES:
        raise InvalidMessage(
            "{sentences} sentences are more than the {most} allowed",
            sentences=sentences,
            most=limits.MAX_SENTENCES,
        )
    return RegisteredSkill.of(registration, hashlib.sha256(payload).hexdigest(), payload)
