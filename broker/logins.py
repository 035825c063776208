"""Logins of a broker of our own, of whatever kind, as the hub changes them."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from pydantic import SecretStr

from contracts.access import Principal, whole_rights
from contracts.claims import Claims
from contracts.devices.presence import Revocation
from contracts.errors import Unauthorized
from identity import tokens
from identity.keys import PublicKey
from identity.logins.proofs import ProofCheck

__all__ = ["ACL_CLAIM", "BrokerLogins", "BusLogin", "LoginCheck", "acl"]


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

    All raise `Disconnected` while the broker is away; `sync` at the next connect makes up for it.
    """

    @property
    def answer_s(self) -> float:
        """Return the seconds after which an allowed client has connected; 0 if the broker itself decides."""

    async def allow(self, login: BusLogin) -> None:
        """Allow a login with this token and no other; a client that used another is disconnected."""

    async def revoke(self, principal: Principal, revocation: Revocation) -> None:
        """Remove a login, and disconnect its client at once.

        Args:
            revocation: Its tokens.
        """

    async def sync(self, logins: Collection[BusLogin], revocation: Revocation) -> None:
        """Make the broker agree as a whole: these may log in, and no others that were allowed before.

        Args:
            revocation: All tokens that are revoked and have not expired.
        """


ACL_CLAIM: Final = "acl"
"""Claim of a token from which EMQX reads what its bearer may do, see ``emqx.conf`` of `deploy.rendering`."""


def acl(principal: Principal) -> list[dict[str, str]]:
    """Return what a principal may do on EMQX, which denies the rest."""
    return [
        {"permission": "allow", "action": action, "topic": topic} for action, topic in whole_rights(principal)
    ]


_CLIENT_SUFFIX: Final = re.compile(r"-[A-Za-z0-9_.-]{1,64}\Z")


@dataclass(frozen=True)
class LoginCheck:
    """What a login is checked against, on a broker that asks us for each.

    Attributes:
        is_revoked: Whether a token counts no longer, or its principal has another one by now.
    """

    hub_id: str
    hub_key: PublicKey
    is_revoked: Callable[[Claims], bool]
    proofs: ProofCheck = field(default_factory=ProofCheck)

    def admit(self, *, username: str | None, client_id: str | None, password: str | None) -> Claims:
        """Check a login.

        The username is the principal's id. A device's client id is that id too, so that a device is there
        once; a hub or client may add ``-`` and a suffix, so that several of its programs are. With a token
        that names a key, as each device's does, comes a proof of that key.

        Raises:
            Unauthorized: With the reason.
        """
        if not password:
            raise Unauthorized("no token was given as password")
        token, _, proof = password.partition("~")
        claims = tokens.verify(
            token,
            key=self.hub_key,
            hub_id=self.hub_id,
            audience="mqtt",
            is_revoked=self.is_revoked,
        )
        if username != claims.sub:
            raise Unauthorized("the username is not the one the token is for")
        if not _fits(client_id or "", claims):
            raise Unauthorized("the client id is not the one the token is for")
        if claims.cnf is not None:
            self.proofs.check_login(
                proof, hub_id=self.hub_id, client_id=client_id or "", token=token, key_id=claims.cnf.jkt
            )
        return claims


def _fits(client_id: str, claims: Claims) -> bool:
    if client_id == claims.sub:
        return True
    if claims.kind == "device" or not client_id.startswith(claims.sub):
        return False
    return _CLIENT_SUFFIX.match(client_id, len(claims.sub)) is not None
