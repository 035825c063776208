"""Who may log in to the bus: what the hub tells a broker, whatever kind of broker it is."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretStr

from contracts.access import Principal
from contracts.presence import Revocation

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
        """Let one in, with this token and with no other; it is disconnected where it used another."""
        ...

    async def revoke(self, principal: Principal, revocation: Revocation) -> None:
        """Let one in no longer, and disconnect it at once.

        Args:
            revocation: Its tokens.
        """
        ...

    async def sync(self, logins: Collection[BusLogin], revocation: Revocation) -> None:
        """Make the broker agree as a whole: these may log in, and nobody else that was let in before.

        Args:
            revocation: All tokens that are revoked and have not expired.
        """
        ...
