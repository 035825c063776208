"""Signing what is published, and checking what arrives, before anything is parsed."""

from contracts.errors import BadSignature
from contracts.wire import Wire
from identity import signing
from identity.keys import KeyPair, PublicKey


class Seal:
    """Signs messages of one party of one hub."""

    def __init__(self, hub_id: str, key: KeyPair) -> None:
        self.hub_id = hub_id
        self.key = key

    def seal(self, topic: str, message: Wire) -> bytes:
        """Serialise a message for this topic (without prefix) and sign it."""
        return self.sign(topic, message.model_dump_json().encode())

    def sign(self, topic: str, document: bytes) -> bytes:
        """Sign a JSON object that is serialised already."""
        body = signing.body_of(document)
        covered = signing.signed_bytes(self.hub_id, self.key.kid, topic, body)
        return signing.join(body, self.key.sign(covered))


def unseal(hub_id: str, topic: str, payload: bytes, key: PublicKey) -> bytes:
    """Check the signature and give the JSON document without it.

    Args:
        hub_id: The hub whose bus this is.
        topic: The full topic it arrived on, without prefix.
        payload: As it arrived.
        key: The one key that may have signed it.

    Raises:
        BadSignature: If it is not signed, or not by this key for this topic and hub.
    """
    body, signature = signing.split(payload)
    if not key.verify(signature, signing.signed_bytes(hub_id, key.kid, topic, body)):
        raise BadSignature(f"the signature is not valid for {topic}")
    return body + b"}"
