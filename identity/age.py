"""Files encrypted with a passphrase, in the format of ``age`` (https://age-encryption.org/v1).

Any program of that format opens them: ``age -d FILE``. Written here because `pyrage`, the library for it, has
all of a file that has a passphrase in memory, and lets the machine that writes decide how much memory the
one that reads will need. Its tests open these files with `pyrage`, and the other way around.
"""

import base64
import binascii
import hmac
import io
import re
import secrets
from typing import TYPE_CHECKING, BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import SecretStr

from contracts.errors import ConfigError
from identity.limits import LONGEST_AGE_LINE, MOST_SCRYPT_WORK, SCRYPT_WORK

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["AgeReader", "AgeWriter"]

_VERSION: Final = b"age-encryption.org/v1"
_SALT_LABEL: Final = b"age-encryption.org/v1/scrypt"
_FILE_KEY_BYTES: Final = 16
_SALT_BYTES: Final = 16
_CHUNK: Final = 64 * 1024
_TAG: Final = 16
_STANZA: Final = re.compile(rb"-> scrypt ([A-Za-z0-9+/]{22}) ([1-9][0-9]?)\Z")

_HINT: Final = "Check the passphrase, and copy the file again."


class AgeWriter(io.RawIOBase):
    """Encrypts what is written; only what was closed with `finish` is a whole file.

    Args:
        target: Is not closed.
    """

    def __init__(self, target: BinaryIO, passphrase: SecretStr) -> None:
        super().__init__()
        self._target = target
        self._waiting = bytearray()
        file_key, salt = secrets.token_bytes(_FILE_KEY_BYTES), secrets.token_bytes(_SALT_BYTES)
        wrapping = ChaCha20Poly1305(_stretched(passphrase, salt, SCRYPT_WORK))
        stanza = b"-> scrypt %s %d\n%s\n" % (
            _encoded(salt),
            SCRYPT_WORK,
            _encoded(wrapping.encrypt(bytes(12), file_key, None)),
        )
        head = _VERSION + b"\n" + stanza + b"---"
        nonce = secrets.token_bytes(_SALT_BYTES)
        target.write(head + b" " + _encoded(_header_mac(file_key, head)) + b"\n" + nonce)
        self._chunks = _Chunks(file_key, nonce)

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer") -> int:
        """Encrypt and write all of the data."""
        given = bytes(data)
        self._waiting += given
        # One byte more than a chunk: the last chunk is marked, and which one it is is known at the end.
        while len(self._waiting) > _CHUNK:
            self._target.write(self._chunks.seal(bytes(self._waiting[:_CHUNK]), last=False))
            del self._waiting[:_CHUNK]
        return len(given)

    def finish(self) -> None:
        """Write the last chunk, without which the file counts as cut off."""
        self._target.write(self._chunks.seal(bytes(self._waiting), last=True))
        self._waiting.clear()


class AgeReader(io.RawIOBase):
    """Decrypts a file; what is read was checked, but that the file is whole is known only at its end.

    Raises:
        ConfigError: Here and from `read`, if it is no such file, the passphrase is another one, or the file
            was changed or cut off.
    """

    def __init__(self, source: BinaryIO, passphrase: SecretStr) -> None:
        super().__init__()
        self._source = source
        head = self._line()
        if head != _VERSION:
            raise ConfigError("this is not an encrypted backup", hint="It begins with 'age-encryption.org'.")
        first = self._line()
        stanza = _STANZA.match(first)
        if stanza is None:
            raise ConfigError("this file is not encrypted with a passphrase", hint=_HINT)
        work, second = int(stanza[2]), self._line()
        if work > MOST_SCRYPT_WORK:
            raise ConfigError(
                f"opening this file takes more than {1 << (MOST_SCRYPT_WORK - 20)} GiB of memory"
            )
        third = self._line()
        wrapping = ChaCha20Poly1305(_stretched(passphrase, _decoded(stanza[1]), work))
        try:
            file_key = wrapping.decrypt(bytes(12), _decoded(second), None)
        except InvalidTag:
            raise ConfigError("this is not the passphrase of the backup", hint="Type it again.") from None
        expected = b"--- " + _encoded(_header_mac(file_key, b"\n".join((head, first, second, b"---"))))
        nonce = self._source.read(_SALT_BYTES)
        if not hmac.compare_digest(third, expected) or len(nonce) < _SALT_BYTES:
            raise _damaged()
        self._chunks = _Chunks(file_key, nonce)
        self._sealed = self._source.read(_CHUNK + _TAG)
        self._plain = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read some of the content; 0 at the end of a file that is whole."""
        view = memoryview(buffer).cast("B")
        if not self._plain and not self._ended:
            following = self._source.read(_CHUNK + _TAG)
            self._ended = not following
            self._plain = self._chunks.open(self._sealed, last=self._ended)
            self._sealed = following
        given = min(len(view), len(self._plain))
        view[:given], self._plain = self._plain[:given], self._plain[given:]
        return given

    def _line(self) -> bytes:
        line = self._source.readline(LONGEST_AGE_LINE)
        if not line.endswith(b"\n"):
            raise ConfigError("this is not an encrypted backup", hint="It begins with 'age-encryption.org'.")
        return line[:-1]


class _Chunks:
    """The chunks of the content, each with its number and whether it is the last one."""

    def __init__(self, file_key: bytes, nonce: bytes) -> None:
        self._cipher = ChaCha20Poly1305(_derived(file_key, salt=nonce, info=b"payload"))
        self._number = 0

    def seal(self, plain: bytes, *, last: bool) -> bytes:
        return self._cipher.encrypt(self._nonce(last=last), plain, None)

    def open(self, sealed: bytes, *, last: bool) -> bytes:
        is_first = self._number == 0
        try:
            plain = self._cipher.decrypt(self._nonce(last=last), sealed, None)
        except InvalidTag:
            raise _damaged() from None
        if not plain and not is_first:
            raise _damaged()
        return plain

    def _nonce(self, *, last: bool) -> bytes:
        nonce = self._number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")
        self._number += 1
        return nonce


def _damaged() -> ConfigError:
    return ConfigError("the backup was changed, or is not complete", hint="Copy it again, or use another.")


def _stretched(passphrase: SecretStr, salt: bytes, work: int) -> bytes:
    derivation = Scrypt(salt=_SALT_LABEL + salt, length=32, n=1 << work, r=8, p=1)
    return derivation.derive(passphrase.get_secret_value().encode())


def _derived(file_key: bytes, *, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(file_key)


def _header_mac(file_key: bytes, head: bytes) -> bytes:
    return hmac.digest(_derived(file_key, salt=b"", info=b"header"), head, "sha256")


def _encoded(data: bytes) -> bytes:
    return base64.b64encode(data).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise _damaged() from None
