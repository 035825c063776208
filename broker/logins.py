"""Logins of a broker of our own, of whatever kind, as the hub changes them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretStr

from contracts.access import Principal
from contracts.devices.presence import Revocation

__all__ = ["BrokerLogins", "BusLogin"]


@dataclass(frozen=True)
class BusLogin:
    """One that may log in.

    Attributes:
        principal: Its kind and id decide its rights; the id is the user name and, for a device, the
            client id.
        token: The password.
        expires_at: Not valid from here on, seconds since the epoch.
    """

    principal: Principal
    token: SecretStr
    expires_at: int


class BrokerLogins(Protocol):
    """Makes a broker agree with the database. Each function has done its work when it returns.

    All raise `Disconnected` while the broker is away; `settle` at the next connect makes up for it.
    """

    async def allow(self, login: BusLogin) -> None:
        """Allow a login with this token and no other; a client that used another is disconnected."""
        ...

    async def revoke(self, principal: Principal, revocation: Revocation) -> None:
        """Remove a login, and disconnect its client at once.

        Args:
            revocation: Its tokens.
        """
        ...

    async def sync(self, logins: Collection[BusLogin], revocation: Revocation) -> None:
        """Make the broker agree as a whole: these may log in, and no others that were allowed before.

        Args:
            revocation: All tokens that are revoked and have not expired.
        """
        ...
