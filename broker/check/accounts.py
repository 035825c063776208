"""Temporary accounts on a broker of our own, to check it with; all are deleted at the end."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, Protocol

from pydantic import SecretStr

from broker.logins import BusLogin
from broker.mosquitto.clients import role_name
from broker.mosquitto.commands import DeleteClient, DeleteRole
from broker.mosquitto.dynsec import DynamicSecurity
from broker.mosquitto.logins import MosquittoLogins
from broker.mosquitto.own_logins import hub_login
from broker.mosquitto.provisioning import open_security
from broker.probe import ProbeLogin, open_probe
from contracts import topics
from contracts.access import Principal
from contracts.claims import Claims
from contracts.devices.presence import Revocation
from contracts.errors import LoginRefused
from identity import tokens
from identity.certificates import client_context
from identity.keys import KeyPair

__all__ = ["Accounts", "OurBroker", "open_accounts"]

_LIFETIME_S: Final = 120
"""Longer than trying takes; what a crash leaves behind is worth nothing after that."""

_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class OurBroker:
    """A broker of our own.

    Attributes:
        key: The hub's.
        instance: Name of the hub process as which we log in.
        ca: PEM that vouches for the broker of an ``mqtts`` URL; None for the system's authorities.
        patience_s: How long the broker may take for each answer.
    """

    kind: Literal["embedded", "mosquitto"]
    url: str
    hub_id: str
    key: KeyPair
    instance: str = "main"
    ca: str | None = None
    patience_s: float = 5.0

    def probe(self, client_id: str, username: str, password: SecretStr) -> ProbeLogin:
        """Return the login of a client."""
        return ProbeLogin(
            self.url,
            client_id,
            username,
            password,
            tls=client_context(self.ca),
            protocol=4 if self.kind == "embedded" else None,
            timeout_s=self.patience_s,
        )

    def claims(self, principal: Principal, *, lifetime_s: int = _LIFETIME_S) -> Claims:
        """Make the claims of a token for a moment."""
        return tokens.make_claims(
            hub_id=self.hub_id,
            subject=principal.id,
            kind=principal.kind,
            owner=principal.owner,
            scopes=principal.scopes,
            lifetime_s=lifetime_s,
        )

    def token(self, principal: Principal) -> SecretStr:
        """Issue a token for a moment."""
        return SecretStr(tokens.issue(self.key, self.claims(principal)))


class Accounts(Protocol):
    """Lets principals in for a moment."""

    def hub(self) -> ProbeLogin:
        """Return a login of the hub, which does not disturb a hub that runs."""
        ...

    async def allow(self, principal: Principal) -> ProbeLogin:
        """Allow a principal to log in, and return its login."""
        ...

    async def revoke(self, principal: Principal) -> None:
        """Remove the login of a principal."""
        ...

    def expired(self, principal: Principal) -> ProbeLogin:
        """Return a login with a token that has expired."""
        ...


@asynccontextmanager
async def open_accounts(broker: OurBroker) -> AsyncIterator[Accounts]:
    """Accept logins of accounts; all are forgotten at the end, also when trying is interrupted.

    Raises:
        LoginRefused: If the broker does not let the hub in.
        LinkError: If it cannot be used.
    """
    if broker.kind == "embedded":
        embedded = _OnEmbedded(broker)
        async with open_probe(embedded.hub()) as hub:
            if hub.refusal is not None:
                raise LoginRefused(
                    f"{broker.url} refuses the login of the hub: {hub.refusal}", hint=_NOT_OURS
                )
        yield embedded
        return
    login = hub_login(broker.key, broker.instance)
    async with open_security(broker.url, login, ca=broker.ca) as security:
        accounts = _OnMosquitto(broker, security)
        try:
            yield accounts
        finally:
            async with asyncio.timeout(_PATIENCE_S):
                await accounts.forget()


_NOT_OURS: Final = "Is it the broker of another home? Give its address, or provision it for this one."


class _OnEmbedded:
    """Tokens say all that the embedded broker wants to know; they end by themselves."""

    def __init__(self, broker: OurBroker) -> None:
        self._broker = broker
        self._tokens: dict[Principal, Claims] = {}

    def hub(self) -> ProbeLogin:
        principal = Principal("hub", self._broker.instance)
        return self._login(self._broker.claims(principal), f"{principal.id}-check-{secrets.token_hex(4)}")

    async def allow(self, principal: Principal) -> ProbeLogin:
        claims = self._tokens[principal] = self._broker.claims(principal)
        return self._login(claims, principal.id)

    async def revoke(self, principal: Principal) -> None:
        told = Revocation(tokens=[self._tokens[principal].jti], before=datetime.now(UTC))
        async with open_probe(self.hub()) as hub:
            await hub.publish(topics.BROKER_CONTROL.template, told.model_dump_json().encode())

    def expired(self, principal: Principal) -> ProbeLogin:
        return self._login(self._broker.claims(principal, lifetime_s=-_LIFETIME_S), principal.id)

    def _login(self, claims: Claims, client_id: str) -> ProbeLogin:
        token = SecretStr(tokens.issue(self._broker.key, claims))
        return self._broker.probe(client_id, claims.sub, token)


class _OnMosquitto:
    """Clients and roles of Mosquitto, which are deleted again."""

    def __init__(self, broker: OurBroker, security: DynamicSecurity) -> None:
        self._broker = broker
        self._security = security
        self._broker_logins = MosquittoLogins(security)
        self._known: list[Principal] = []

    def hub(self) -> ProbeLogin:
        login = hub_login(self._broker.key, self._broker.instance)
        client_id = f"{login.username}-check-{secrets.token_hex(4)}"
        return self._broker.probe(client_id, login.username or "", SecretStr(login.password or ""))

    async def allow(self, principal: Principal) -> ProbeLogin:
        claims = self._broker.claims(principal)
        token = SecretStr(tokens.issue(self._broker.key, claims))
        self._known.append(principal)
        await self._broker_logins.allow(BusLogin(principal, token, claims.exp))
        return self._broker.probe(principal.id, principal.id, token)

    async def revoke(self, principal: Principal) -> None:
        await self._broker_logins.revoke(principal, Revocation(before=datetime.now(UTC)))

    def expired(self, principal: Principal) -> ProbeLogin:
        claims = self._broker.claims(principal, lifetime_s=-_LIFETIME_S)
        token = SecretStr(tokens.issue(self._broker.key, claims))
        return self._broker.probe(principal.id, principal.id, token)

    async def forget(self) -> None:
        """Delete all; what is gone already, or was never made, is no error."""
        await self._security.ask(
            [
                *(DeleteClient(username=each.id) for each in self._known),
                # A role only after its client: the other order has crashed Mosquitto.
                *(DeleteRole(rolename=role_name(each)) for each in self._known),
            ]
        )
