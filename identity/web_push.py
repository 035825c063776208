"""Web push: the hub's key for push services (VAPID, RFC 8292), and messages for one browser (RFC 8291)."""

import base64
import binascii
import os
import time
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDH,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from contracts.errors import ConfigError, InvalidMessage
from identity.files import write_private

_RECORD: Final = 4096
"""Size of the one record of a message (RFC 8188); the message is shorter."""
_LONGEST_S: Final = 12 * 3600
"""Seconds for which a push service may take a signature; RFC 8292 allows a day."""
_AUTH_BYTES: Final = 16


class VapidKey:
    """The hub's P-256 key; a browser takes messages from its owner only."""

    def __init__(self, key: EllipticCurvePrivateKey) -> None:
        self._key = key

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the key of a file that only the owner may read; make it where there is none.

        Raises:
            ConfigError: If the file holds another key, or none.
        """
        if not path.exists():
            made = generate_private_key(SECP256R1())
            pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            write_private(path, pem, instead_of=b"")
        try:
            key = load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError):
            key = None
        if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
            raise ConfigError(
                f"{path} is no P-256 key",
                hint="Remove the file: a new key is made, and each browser is asked again.",
            )
        return cls(key)

    @property
    def public(self) -> str:
        """Return the public point, uncompressed, in base64url: ``applicationServerKey`` of a browser."""
        return _encode(_point(self._key.public_key()))

    def authorization(self, endpoint: str, *, contact: str) -> str:
        """Return the ``Authorization`` header of a request to a push service.

        Args:
            contact: An ``https:`` or ``mailto:`` address at which the service reaches the hub's operator.
        """
        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int(time.time()) + _LONGEST_S,
            "sub": contact,
        }
        return f"vapid t={jwt.encode(claims, self._key, algorithm='ES256')}, k={self.public}"


class BrowserKey:
    """The keys of one subscription of a browser.

    Args:
        point: Its P-256 point, uncompressed, in base64url (``p256dh``).
        secret: Its 16 bytes in base64url (``auth``).

    Raises:
        InvalidMessage: If they are no such keys.
    """

    def __init__(self, point: str, secret: str) -> None:
        try:
            self._point = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), _decode(point))
            self._secret = _decode(secret)
        except (ValueError, binascii.Error):
            raise InvalidMessage("the keys of the subscription cannot be read") from None
        if len(self._secret) != _AUTH_BYTES:
            raise InvalidMessage("the keys of the subscription cannot be read")

    def encrypt(self, message: bytes) -> bytes:
        """Return the body of a push message, ``Content-Encoding: aes128gcm``.

        Args:
            message: At most some 4,000 bytes.
        """
        own = generate_private_key(SECP256R1())
        sender, receiver = _point(own.public_key()), _point(self._point)
        shared = own.exchange(ECDH(), self._point)
        material = _derived(shared, self._secret, b"WebPush: info\0" + receiver + sender, 32)
        salt = os.urandom(16)
        key = _derived(material, salt, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _derived(material, salt, b"Content-Encoding: nonce\0", 12)
        header = salt + _RECORD.to_bytes(4, "big") + bytes([len(sender)]) + sender
        return header + AESGCM(key).encrypt(nonce, message + b"\2", None)


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


def _point(key: EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
