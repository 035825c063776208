"""Format of a signature in a message, without the cryptography itself.

A signed payload is a JSON object whose last field is ``"sig"``: 86 characters of unpadded
base64url, an Ed25519 signature (RFC 8032). It covers, joined by NUL, the context, the hub id, the key
id, the full topic without prefix, and the payload's bytes up to the comma in front of ``"sig"``.
Nothing is re-serialised, and nothing is parsed before the signature holds.
"""

import base64
import binascii
import hashlib
from typing import Final

from contracts.errors import BadSignature

CONTEXT: Final = b"strawberry-bus-1"
SIGNATURE_BYTES: Final = 64

_OPEN: Final = b',"sig":"'
_CLOSE: Final = b'"}'
_ENCODED: Final = 86
_TAIL: Final = len(_OPEN) + _ENCODED + len(_CLOSE)


def signed_bytes(hub_id: str, key_id: str, topic: str, body: bytes) -> bytes:
    """Return what is signed: the body bound to the hub, the key and the topic it is published on."""
    return b"\0".join((CONTEXT, hub_id.encode(), key_id.encode(), topic.encode(), body))


def body_of(document: bytes) -> bytes:
    """Return the bytes to be signed of a serialised JSON object: all but its closing brace.

    Raises:
        ValueError: If it is not a JSON object with at least one field.
    """
    if len(document) < len(b'{"a":0}') or not document.startswith(b"{") or not document.endswith(b"}"):
        raise ValueError("only a JSON object with fields can be signed")
    return document[:-1]


def join(body: bytes, signature: bytes) -> bytes:
    """Append the signature to the body as the last field of the object."""
    if len(signature) != SIGNATURE_BYTES:
        raise ValueError(f"a signature has {SIGNATURE_BYTES} bytes, not {len(signature)}")
    return body + _OPEN + base64.urlsafe_b64encode(signature)[:_ENCODED] + _CLOSE


def split(payload: bytes) -> tuple[bytes, bytes]:
    """Split a signed payload into body and signature, by position alone.

    Raises:
        BadSignature: If there is no signature where it must stand.
    """
    tail = payload[-_TAIL:]
    if len(payload) <= _TAIL or not tail.startswith(_OPEN) or not tail.endswith(_CLOSE):
        raise BadSignature("the message is not signed")
    encoded = tail[len(_OPEN) : -len(_CLOSE)]
    try:
        signature = base64.b64decode(encoded + b"==", altchars=b"-_", validate=True)
    except binascii.Error:
        raise BadSignature("the signature is not base64url") from None
    # The last character carries four unused bits: only one spelling of a signature is accepted.
    if base64.urlsafe_b64encode(signature)[:_ENCODED] != encoded:
        raise BadSignature("the signature is not in its canonical form")
    return payload[:-_TAIL], signature


def thumbprint(key: bytes) -> str:
    """Return the id of an Ed25519 key, its RFC 7638 thumbprint: SHA-256, base64url without padding."""
    x = base64.urlsafe_b64encode(key).rstrip(b"=").decode()
    canonical = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
    return base64.urlsafe_b64encode(hashlib.sha256(canonical.encode()).digest()).rstrip(b"=").decode()
