"""Passwords of people: hashed with argon2id, away from the event loop."""

import asyncio
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import SecretStr

from contracts.errors import TooManyRequests
from identity import limits

if TYPE_CHECKING:
    from argon2 import PasswordHasher


class Passwords:
    """Makes and checks hashes, one after the other.

    Its methods raise `TooManyRequests` where too many wait already.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._decoy: str | None = None

    async def hash(self, password: SecretStr) -> str:
        """Return the hash of a password, with its salt and parameters (PHC string)."""
        async with self._in_turn():
            return await asyncio.to_thread(lambda: self._hasher.hash(_plain(password)))

    async def matches(self, password: SecretStr, hashed: str | None) -> bool:
        """Return whether a hash is of this password.

        Args:
            hashed: None where there is no such person or no password, which takes as long as a wrong one.
        """
        if self._decoy is None:
            self._decoy = await self.hash(SecretStr("nobody's"))
        async with self._in_turn():
            matches = await asyncio.to_thread(self._verify, hashed or self._decoy, _plain(password))
        return matches and hashed is not None

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        if self._waiting >= limits.MOST_PASSWORDS_WAITING:
            raise TooManyRequests(
                "too many passwords are checked at this moment",
                hint="Try again.",
                retry_after_s=limits.PASSWORD_WAIT_S,
            )
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1

    @cached_property
    def _hasher(self) -> "PasswordHasher":
        from argon2 import PasswordHasher  # 50 ms, which no start of a hub waits for

        rounds, memory = limits.HASH_ROUNDS, limits.HASH_MEMORY_KIB
        return PasswordHasher(time_cost=rounds, memory_cost=memory, parallelism=1)

    def _verify(self, hashed: str, password: str) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            return self._hasher.verify(hashed, password)
        except (VerificationError, InvalidHashError):  # the second where the stored hash was damaged
            return False


def _plain(password: SecretStr) -> str:
    # Keyboards differ in how they write "ü": as one character, or as two (RFC 8265, section 4).
    return unicodedata.normalize("NFC", password.get_secret_value())
