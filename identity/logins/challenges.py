"""Challenges: a server proves who it is before it is sent a token.

A hub signs the challenge with its key; a spoke, whose token only its owner has, answers with an HMAC by that
token. Kept light, because the command line loads it at each start.
"""

import base64
import hashlib
import hmac
import secrets
from typing import Any, Final

from identity.signing import SIGNATURE_BYTES, thumbprint

PATH: Final = "/.well-known/strawberry"
"""Where a server is asked, with ``?challenge=``; its answer has ``proof``."""

FORM: Final = r"[A-Za-z0-9_-]{22,86}"
"""What a challenge is made of: 128 bits or more, base64url."""

_HUB: Final = b"strawberry-hub-1"
_SPOKE: Final = b"strawberry-spoke-1"


def new_challenge() -> str:
    return secrets.token_urlsafe(24)


def hub_document(*, hub_id: str, challenge: str, host: str) -> bytes:
    """Return the bytes that the hub's key signs to show that the hub itself answers.

    Args:
        host: The ``Host`` header of the request: the address that the client means.
    """
    return b"\0".join((_HUB, hub_id.encode(), challenge.encode(), host.lower().encode()))


def proves_hub(card: Any, *, key_id: str, challenge: str, host: str) -> bool:
    """Return whether the JSON of an answer holds the proof of the hub whose key has this thumbprint."""
    from nacl.bindings import crypto_sign_open  # 15 ms, which a command that asks a spoke does without
    from nacl.exceptions import BadSignatureError

    try:
        raw, signature = _decoded(card["hub_key"]["x"]), _decoded(card["proof"])
        document = hub_document(hub_id=card["hub_id"], challenge=challenge, host=host)
    except (LookupError, TypeError, ValueError, AttributeError):
        return False
    # First of all: libsodium does not look at the length of a key.
    if thumbprint(raw) != key_id or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + document, raw)
    except BadSignatureError:
        return False
    return True


def spoke_proof(token: str, *, challenge: str, host: str) -> str:
    """Return how a spoke proves that it has the token of its owner."""
    document = b"\0".join((_SPOKE, challenge.encode(), host.lower().encode()))
    return hmac.new(token.encode(), document, hashlib.sha256).hexdigest()


def proves_spoke(answer: Any, *, token: str, challenge: str, host: str) -> bool:
    """Return whether the JSON of an answer holds the proof of the spoke that made this token."""
    proof = answer.get("proof") if isinstance(answer, dict) else None
    return hmac.compare_digest(
        str(proof).encode(errors="replace"), spoke_proof(token, challenge=challenge, host=host).encode()
    )


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
