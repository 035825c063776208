"""Ed25519 keys: the identity of the hub and of every device.

Signing and verifying is libsodium's, which takes half the time of OpenSSL and is part of every
call twice; files and tokens are the business of ``cryptography`` and PyJWT.
"""

import base64
import binascii
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign, crypto_sign_open
from nacl.exceptions import BadSignatureError
from pydantic import SecretStr

from contracts.errors import ConfigError, InvalidMessage
from identity.files import write_private
from identity.signing import SIGNATURE_BYTES, thumbprint

_KEY_BYTES = 32
_SECRETS = b"strawberry-secret-1\0"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class PublicKey:
    """The public part of an Ed25519 key; two are equal when they are the same key."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    @classmethod
    def from_jwk(cls, jwk: dict[str, Any]) -> Self:
        """Read an OKP key (RFC 8037): ``{"kty": "OKP", "crv": "Ed25519", "x": …}``.

        Raises:
            InvalidMessage: If it is anything else, carries a private part, or is a point under which
                forged signatures are valid.
        """
        if jwk.get("kty") != "OKP" or jwk.get("crv") != "Ed25519" or not isinstance(jwk.get("x"), str):
            raise InvalidMessage("the key is not an Ed25519 JWK")
        if "d" in jwk:
            raise InvalidMessage("the key carries its private part", hint="Make a new key and send only 'x'.")
        try:
            raw = base64.b64decode(jwk["x"] + "=" * (-len(jwk["x"]) % 4), altchars=b"-_", validate=True)
            key = cls(Ed25519PublicKey.from_public_bytes(raw))
        except (binascii.Error, ValueError):
            raise InvalidMessage("the key is not an Ed25519 JWK") from None
        # Of small or mixed order, or not in its one canonical form.
        if not crypto_core_ed25519_is_valid_point(raw):
            raise InvalidMessage("the key is not a safe Ed25519 key", hint="Make a new key.")
        return key

    @cached_property
    def raw(self) -> bytes:
        return self._key.public_bytes_raw()

    @cached_property
    def kid(self) -> str:
        return thumbprint(self.raw)

    def jwk(self) -> dict[str, str]:
        return {"kty": "OKP", "crv": "Ed25519", "x": _encode(self.raw), "kid": self.kid}

    def verify(self, signature: bytes, data: bytes) -> bool:
        """Return whether the signature over the data is by this key."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            crypto_sign_open(signature + data, self.raw)
        except (BadSignatureError, ValueError):
            return False
        return True

    @property
    def for_tokens(self) -> Ed25519PublicKey:
        # PyJWT takes this form.
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"PublicKey({self.kid})"


class KeyPair:
    """An Ed25519 key with its private part, which never appears in a log."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key())
        # libsodium's form of a private key: the seed and the public key, one after the other.
        self._secret = key.private_bytes_raw() + self.public.raw

    @classmethod
    def generate(cls) -> Self:
        """Make a new key whose thumbprint can stand anywhere on a command line.

        One in 64 would begin with ``-`` and be taken for an option.
        """
        while (pair := cls(Ed25519PrivateKey.generate())).kid.startswith("-"):
            pass
        return pair

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key from a PEM file (PKCS #8).

        Raises:
            ConfigError: If the file cannot be read or holds no Ed25519 key.
        """
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise ConfigError(f"cannot read the key {path}: {error.strerror}") from None
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError("{path} is not an Ed25519 key", path=path, hint="Restore it from a backup.")
        return cls(key)

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """Read the key, or make one and store it owner-only."""
        if path.exists():
            return cls.load(path)
        pair = cls.generate()
        pair.save(path)
        return pair

    def save(self, path: Path) -> None:
        write_private(path, self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @property
    def kid(self) -> str:
        return self.public.kid

    def sign(self, data: bytes) -> bytes:
        return crypto_sign(data, self._secret)[:SIGNATURE_BYTES]

    def secret(self, purpose: str) -> SecretStr:
        """Derive a password of our own for one purpose, always the same (HKDF-SHA256, RFC 5869).

        It need not be stored anywhere, and says nothing about the key or about other passwords.

        Args:
            purpose: For example ``mosquitto hub main``.

        Returns:
            43 characters, base64url without padding: 256 bits.
        """
        derived = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_SECRETS + purpose.encode())
        return SecretStr(_encode(derived.derive(self._key.private_bytes_raw())))

    @property
    def for_tokens(self) -> Ed25519PrivateKey:
        # PyJWT takes this form.
        return self._key

    def __repr__(self) -> str:
        return f"KeyPair({self.kid})"
