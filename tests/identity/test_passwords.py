from argon2 import PasswordHasher, extract_parameters
from pydantic import SecretStr

from identity.logins.passwords import Passwords

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


async def test_a_password_of_nobody_costs_as_much_as_a_wrong_one(monkeypatch):
    passwords, costs, verify = Passwords(), [], PasswordHasher.verify

    def verified(self, hashed, password):
        costs.append(extract_parameters(hashed))
        return verify(self, hashed, password)

    monkeypatch.setattr(PasswordHasher, "verify", verified)
    for stored in (await passwords.hash(PASSWORD), None):
        assert not await passwords.matches(SecretStr("wrong"), stored)
    assert costs[0] == costs[1]
