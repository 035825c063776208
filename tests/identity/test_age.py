import io
import os

import pytest
from pydantic import SecretStr
from pyrage import passphrase as other_program

from contracts.errors import ConfigError
from identity import age
from identity.age import AgeReader, AgeWriter

PASSPHRASE = "four words for you"
CHUNK = 64 * 1024


@pytest.fixture(autouse=True)
def _cheap(monkeypatch):
    monkeypatch.setattr(age, "SCRYPT_WORK", 10)


def sealed(content: bytes) -> bytes:
    target = io.BytesIO()
    writer = AgeWriter(target, SecretStr(PASSPHRASE))
    writer.write(content)
    writer.finish()
    return target.getvalue()


def opened(data: bytes, passphrase: str = PASSPHRASE) -> bytes:
    return AgeReader(io.BytesIO(data), SecretStr(passphrase)).readall()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7])
def test_another_program_for_the_format_opens_what_was_written(size):
    content = os.urandom(size)
    assert other_program.decrypt(sealed(content), PASSPHRASE) == content
    assert opened(sealed(content)) == content


@pytest.mark.slow  # the other program sets the work of scrypt itself
def test_what_another_program_wrote_is_opened():
    assert opened(other_program.encrypt(b"from elsewhere", PASSPHRASE)) == b"from elsewhere"


def test_another_passphrase_opens_nothing():
    with pytest.raises(ConfigError, match="not the passphrase"):
        opened(sealed(b"secret"), "five words for nobody")


@pytest.mark.parametrize("size", [0, 5, CHUNK, CHUNK + 5, 2 * CHUNK])
def test_a_file_that_was_cut_off_anywhere_is_refused(size):
    whole = sealed(bytes(size))
    payload = len(whole) - len(sealed(b"")) - size
    head = whole.index(b"\n--- ") + 49
    ends = {0, 10, head - 1, head, head + 15, head + 16, len(whole) - 1, len(whole) - 17}
    ends |= {head + 16 + chunk * (CHUNK + 16) for chunk in range(3)} if payload >= 0 else set()
    for end in sorted(each for each in ends if 0 <= each < len(whole)):
        with pytest.raises(ConfigError):
            opened(whole[:end])


def test_chunks_that_were_swapped_repeated_or_added_to_are_refused():
    whole = sealed(b"a" * CHUNK + b"b" * CHUNK + b"c")
    start = whole.index(b"\n--- ") + 49 + 16
    head, size = whole[:start], CHUNK + 16
    first, second, last = whole[start : start + size], whole[start + size : start + 2 * size], whole[-17:]
    assert opened(head + first + second + last)
    for changed in (second + first + last, first + first + second + last, first + second + last + last):
        with pytest.raises(ConfigError, match="changed"):
            opened(head + changed)


def test_any_bit_that_was_changed_is_noticed():
    whole = bytearray(sealed(b"x" * 100))
    for place in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[place] ^= 1
        with pytest.raises(ConfigError):
            opened(bytes(changed))


def test_a_header_that_asks_for_gigabytes_is_refused_before_they_are_taken():
    whole = sealed(b"x").replace(b" 10\n", b" 30\n", 1)
    with pytest.raises(ConfigError, match="1 GiB"):
        opened(whole)
