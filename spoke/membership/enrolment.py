"""What a spoke knows of the hub that it has joined: kept owner-only in ``spoke/enrolment.json``."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from pydantic import Field, SecretStr, ValidationError

from contracts.claims import Claims
from contracts.errors import ConfigError, InvalidMessage, Unauthorized
from contracts.joining import Bus, EnrolAnswer, Login
from identity import tokens
from identity.files import write_private
from identity.keys import PublicKey
from spoke.membership.addresses import has_tls, host_of, is_loopback, usable_brokers
from spoke.membership.trust import Hub

FILE_NAME: Final = "enrolment.json"
KEY_FILE: Final = "key.pem"


class _Stored(EnrolAnswer):
    """The file: what the hub answered, and what this device adds to it."""

    hub_url: str
    key_id: str
    invitation: str = ""
    renewed: str | None = Field(default=None, repr=False)
    insecure: bool = False


@dataclass(frozen=True)
class Enrolment:
    """A device's place in a home.

    Attributes:
        hub_url: Where it joined.
        hub_id: Whose bus it is; the device token names it.
        device: The device's id.
        key_id: Fingerprint of the key that the hub has bound to it.
        token: The device token: login on the bus, bearer over HTTP.
        hub_key: The one key whose calls are obeyed.
        brokers: Addresses of the bus, the best first.
        prefix: In front of every topic.
        invitation: SHA-256 of the enrolment token that was used, so that another one is recognised.
        login: The ordinary login of a broker that is shared with others; None where the token is it.
        ca: PEM of the certificate authority of this home, vouched for by the hub's key.
        renewed: The token that follows ``token`` and that the hub may not have seen in use yet. Until it
            says so, either may be the one that is good on the bus.
        insecure: Whether connections that others can read were asked for.
    """

    hub_url: str
    hub_id: str
    device: str
    key_id: str
    token: SecretStr
    hub_key: PublicKey
    brokers: tuple[str, ...]
    prefix: str
    invitation: str
    login: Login | None = None
    ca: str | None = field(default=None, repr=False)
    renewed: SecretStr | None = None
    insecure: bool = False

    @classmethod
    def of(
        cls,
        answer: EnrolAnswer,
        *,
        hub: Hub,
        key: PublicKey,
        invitation: SecretStr | None,
        insecure: bool,
        now: float,
    ) -> Self:
        """Take an answer of a hub, once it proves that this hub bound this key.

        Args:
            hub: Where it came from; its key and its certificate authority are the ones that count.
            key: This device's key.
            invitation: The enrolment token that was used, if one was.
            insecure: Whether brokers may be used over connections that others can read.
            now: Seconds since the epoch by the hub's clock.

        Raises:
            InvalidMessage: If the answer contradicts itself or the hub, or names no broker.
            ConfigError: If it only names brokers that would be given the token in clear.
        """
        hub_key = PublicKey.from_jwk(answer.hub_key)
        if (answer.hub_id, hub_key.kid) != (hub.card.hub_id, hub.card.key):
            raise InvalidMessage(f"what {hub.http.url} answers is of another hub than it says it is")
        _check_token(answer, hub_key, kid=key.kid, now=now)
        brokers = _usable(answer, hub=hub.http.url, hosts=None, tls=False, insecure=insecure)
        if not brokers:
            raise _no_broker(answer)
        return cls(
            hub_url=hub.http.url,
            hub_id=answer.hub_id,
            device=answer.device,
            key_id=key.kid,
            token=SecretStr(answer.token),
            hub_key=hub_key,
            brokers=brokers,
            prefix=answer.prefix,
            invitation=fingerprint(invitation) if invitation else "",
            login=answer.login,
            ca=hub.ca,
            insecure=insecure,
        )

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read what was stored; None where nothing was.

        Raises:
            ConfigError: If the file cannot be understood.
        """
        try:
            stored = _Stored.model_validate_json(path.read_bytes())
            return cls(
                hub_url=stored.hub_url,
                hub_id=stored.hub_id,
                device=stored.device,
                key_id=stored.key_id,
                token=SecretStr(stored.token),
                hub_key=PublicKey.from_jwk(stored.hub_key),
                brokers=stored.brokers,
                prefix=stored.prefix,
                invitation=stored.invitation,
                login=stored.login,
                ca=stored.ca,
                renewed=SecretStr(stored.renewed) if stored.renewed else None,
                insecure=stored.insecure,
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (ValidationError, InvalidMessage):
            raise ConfigError(
                f"{path} is damaged",
                hint="Remove it and join again with a token from 'strawberry devices add NAME'.",
            ) from None

    def save(self, path: Path) -> None:
        """Store it owner-only, whole or not at all."""
        stored = _Stored(
            hub_url=self.hub_url,
            hub_id=self.hub_id,
            device=self.device,
            key_id=self.key_id,
            token=self.token.get_secret_value(),
            hub_key=self.hub_key.jwk(),
            brokers=self.brokers,
            prefix=self.prefix,
            invitation=self.invitation,
            login=self.login,
            ca=self.ca,
            renewed=self.renewed.get_secret_value() if self.renewed else None,
            insecure=self.insecure,
        )
        write_private(path, stored.model_dump_json(indent=2).encode())

    @property
    def bearers(self) -> tuple[SecretStr, ...]:
        """The tokens that may be good over HTTP, the newest first."""
        return (self.renewed, self.token) if self.renewed else (self.token,)

    def claims(self, token: SecretStr) -> Claims:
        """Give the claims of one of this device's tokens, also of one that has expired.

        Raises:
            Unauthorized: If it is none of this hub's.
        """
        # At the beginning of time no token has expired.
        return tokens.verify(token.get_secret_value(), key=self.hub_key, hub_id=self.hub_id, now=0)

    def with_renewed(self, token: str, *, now: float) -> Self:
        """Take a token that the hub made to follow the present one.

        Raises:
            InvalidMessage: If it is not one for this device, or has expired.
        """
        answer = EnrolAnswer(
            brokers=self.brokers, device=self.device, token=token, hub_id=self.hub_id, hub_key={}
        )
        _check_token(answer, self.hub_key, kid=self.key_id, now=now)
        return replace(self, renewed=SecretStr(token))

    def settled_on(self, token: SecretStr) -> Self:
        """Keep the token that the hub has taken; the other one is of no use any more."""
        return replace(self, token=token, renewed=None)

    def told(self, bus: Bus, *, hub: Hub) -> Self:
        """Take over where this hub says that the bus is now.

        What came over a connection that others could have changed names no new host, and nothing goes
        without TLS where there was TLS. The certificate authority is the one that the hub's key vouches
        for; a hub that names none any more does not take the old one away.
        """
        hosts = None if hub.http.is_verified else {host_of(url) for url in (hub.http.url, *self.brokers)}
        brokers = _usable(
            bus, hub=hub.http.url, hosts=hosts, tls=has_tls(self.brokers), insecure=self.insecure
        )
        moved = replace(self, hub_url=hub.http.url, ca=hub.ca or self.ca)
        if not brokers:
            return moved
        return replace(moved, brokers=brokers, prefix=bus.prefix, login=bus.login)

    def was_invited_by(self, token: SecretStr) -> bool:
        """Whether this token brings nothing new: the one used to join, or the device token itself."""
        return token in self.bearers or fingerprint(token) == self.invitation


def fingerprint(token: SecretStr) -> str:
    """Give the SHA-256 of a token: it tells tokens apart and is none."""
    return hashlib.sha256(token.get_secret_value().encode()).hexdigest()


def _check_token(answer: EnrolAnswer, hub_key: PublicKey, *, kid: str, now: float) -> None:
    try:
        claims = tokens.verify(answer.token, key=hub_key, hub_id=answer.hub_id, now=now)
    except Unauthorized as error:
        raise InvalidMessage(f"the hub's answer holds no valid device token: {error.message}") from None
    if claims.sub != answer.device or claims.kind != "device":
        raise InvalidMessage("the hub's answer names a device that its token is not for")
    if claims.cnf is None or claims.cnf.jkt != kid:
        raise InvalidMessage("the hub's token is not bound to the key of this device")


def _usable(bus: Bus, *, hub: str, hosts: set[str] | None, tls: bool, insecure: bool) -> tuple[str, ...]:
    # The ordinary login of a shared broker crosses as its owner chose; a token never does.
    readable = not tls and (insecure or bus.login is not None)
    return usable_brokers(bus.brokers, hub=hub, hosts=hosts, readable=readable)


def _no_broker(bus: Bus) -> ConfigError | InvalidMessage:
    if not bus.brokers:
        return InvalidMessage("the hub names no broker", hint="Its settings must name one for devices.")
    if all(is_loopback(host_of(url)) for url in bus.brokers):
        return ConfigError(
            "the broker of this hub is not open to other machines", hint="Start it with --lan where it runs."
        )
    return ConfigError(
        f"the hub names only brokers that would be sent the token in clear: {', '.join(bus.brokers)}",
        hint="Start the hub with --lan, or add --insecure if you accept that.",
    )
