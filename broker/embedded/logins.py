"""Logins of the embedded broker, which checks tokens itself and only learns which of them are revoked."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from broker.limits import REVOCATIONS_AT_ONCE
from broker.logins import BusLogin
from bus.link import Link
from contracts import topics
from contracts.access import Principal
from contracts.devices.presence import Revocation
from identity import tokens

__all__ = ["EmbeddedLogins"]

_ONE_TOKEN: Final = ("device", "client")
"""Those that have one token at a time; a user has one for each program."""


class EmbeddedLogins:
    """Sends revocations to the embedded broker on its control topic; a `broker.logins.BrokerLogins`.

    Args:
        link: Of the hub, who alone may publish there.
    """

    answer_s: Final = 0.0

    def __init__(self, link: Link) -> None:
        self._link = link

    async def allow(self, login: BusLogin) -> None:
        """Allow a login with this token and with no other; see `BrokerLogins.allow`.

        Raises:
            Disconnected: While the broker is away.
        """
        await self._tell([], dict([_only(login)]))

    async def revoke(self, principal: Principal, revocation: Revocation) -> None:
        """Remove a login; of a user, only these tokens; see `BrokerLogins.revoke`.

        Raises:
            Disconnected: While the broker is away.
        """
        only = {_name(principal): ""} if principal.kind in _ONE_TOKEN else {}
        await self._tell(revocation.tokens, only)

    async def sync(self, logins: Collection[BusLogin], revocation: Revocation) -> None:
        """Make the broker agree as a whole; see `BrokerLogins.sync`.

        Raises:
            Disconnected: While the broker is away.
        """
        revoked, only = revocation.tokens, [_only(login) for login in logins]
        for at in range(0, len(revoked), REVOCATIONS_AT_ONCE):
            await self._tell(revoked[at : at + REVOCATIONS_AT_ONCE], {})
        for at in range(0, len(only), REVOCATIONS_AT_ONCE):
            await self._tell([], dict(only[at : at + REVOCATIONS_AT_ONCE]))

    async def _tell(self, revoked: list[str], only: Mapping[str, str]) -> None:
        row = topics.BROKER_CONTROL
        told = Revocation(tokens=revoked, only=dict(only), before=datetime.now(UTC))
        # It acknowledges when this will outlive its restart.
        await self._link.publish(row.build(), told.model_dump_json().encode(), qos=row.qos, confirmed=True)


def _only(login: BusLogin) -> tuple[str, str]:
    return _name(login.principal), tokens.token_id(login.token.get_secret_value())


def _name(principal: Principal) -> str:
    return f"{principal.kind}/{principal.id}"
