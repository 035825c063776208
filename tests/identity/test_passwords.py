import time

from pydantic import SecretStr

from identity.passwords import Passwords

PASSWORD = SecretStr("M\u00fcller und Sohn")


async def test_a_password_matches_its_hash_however_a_keyboard_wrote_it():
    passwords = Passwords()
    hashed = await passwords.hash(PASSWORD)
    assert hashed != await passwords.hash(PASSWORD)
    assert await passwords.matches(PASSWORD, hashed)
    assert await passwords.matches(SecretStr("Mu\u0308ller und Sohn"), hashed)
    assert not await passwords.matches(SecretStr("muller und sohn"), hashed)
    assert not await passwords.matches(SecretStr("nobody's"), None)
    assert not await passwords.matches(PASSWORD, "a damaged hash")


async def test_nobody_takes_as_long_as_a_wrong_password():
    passwords = Passwords()
    hashed = await passwords.hash(PASSWORD)

    async def takes(stored: str | None) -> float:
        times = []
        for _ in range(3):
            began = time.perf_counter()
            assert not await passwords.matches(SecretStr("wrong"), stored)
            times.append(time.perf_counter() - began)
        return min(times)

    assert await takes(None) > await takes(hashed) / 3
