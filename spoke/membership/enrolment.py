"""The enrolment of a device, in the owner-only file ``spoke/enrolment.json``."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, SecretStr, ValidationError

from contracts.addresses import BROKER_PORTS, host_of, is_loopback
from contracts.claims import Audience, Claims
from contracts.devices.joining import BusAccess, DeviceBus, DeviceProfile, DeviceTokens, EnrolAnswer
from contracts.errors import ConfigError, InvalidMessage, Unauthorized
from contracts.names import DeviceId
from identity import tokens
from identity.files import write_private
from identity.keys import PublicKey
from spoke.membership.hub_http import is_readable

if TYPE_CHECKING:
    from spoke.membership.trust import Hub

FILE_NAME: Final = "enrolment.json"
KEY_FILE: Final = "key.pem"


Secret = Annotated[SecretStr, PlainSerializer(SecretStr.get_secret_value, return_type=str, when_used="json")]
"""A secret: in plain text in the file, masked everywhere else."""

Key = Annotated[
    PublicKey,
    BeforeValidator(lambda given: PublicKey.from_jwk(given) if isinstance(given, dict) else given),
    PlainSerializer(PublicKey.jwk, when_used="json"),
]
"""A public key; a JWK in the file."""


class Enrolment(DeviceBus):
    """A device's place in a home, as ``spoke/enrolment.json`` holds it.

    Attributes:
        hub_url: Address that it joined at.
        hub_id: Id of the hub, which the device token names.
        device: The device's id.
        key_id: Fingerprint of the key that the hub has bound to it.
        token: The device token for HTTP.
        bus_token: The one for the login on the bus.
        hub_key: The one key whose calls are obeyed.
        brokers: Addresses of the bus, the best first.
        invitation: SHA-256 of the enrolment token that was used, so that another one is recognised.
        ca: PEM of the certificate authority of this home, signed by the hub's key.
        renewed: The token that follows ``token`` and that the hub may not have seen in use yet. Until the
            hub confirms it, the broker may accept either ``bus_token`` or ``renewed_bus_token``.
        insecure: Whether unencrypted connections to another machine are allowed.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    hub_url: str
    hub_id: str
    profile: DeviceProfile
    device: DeviceId
    key_id: str
    token: Secret
    bus_token: Secret
    hub_key: Key
    invitation: str = ""
    renewed: Secret | None = None
    renewed_bus_token: Secret | None = None
    insecure: bool = False

    @classmethod
    def of(
        cls,
        answer: EnrolAnswer,
        *,
        hub: "Hub",
        key: PublicKey,
        invitation: SecretStr | None,
        insecure: bool,
        now: float,
    ) -> Self:
        """Make the enrolment from a hub's answer, after checking that this hub bound this key.

        Args:
            hub: The hub that answered; its key and certificate authority replace those in the answer.
            key: This device's key.
            invitation: The enrolment token that was used, if one was.
            insecure: Whether unencrypted connections to a broker on another machine are allowed.
            now: Seconds since the epoch by the hub's clock.

        Raises:
            InvalidMessage: If the answer contradicts itself or the hub, or names no broker.
            ConfigError: If every broker it names would receive the token unencrypted.
        """
        hub_key = PublicKey.from_jwk(answer.hub_key)
        if (answer.hub_id, hub_key.kid) != (hub.card.hub_id, hub.card.key):
            raise InvalidMessage(f"the enrolment from {hub.http.url} is of another hub than it says it is")
        _check_tokens(answer, hub_key, hub_id=answer.hub_id, device=answer.device, kid=key.kid, now=now)
        brokers = _usable(answer, hub=hub.http.url, hosts=None, vouched=True, tls=False, insecure=insecure)
        if not brokers:
            raise _no_broker(answer)
        return cls(
            hub_url=hub.http.url,
            hub_id=answer.hub_id,
            device=answer.device,
            key_id=key.kid,
            token=SecretStr(answer.token),
            bus_token=SecretStr(answer.bus_token),
            hub_key=hub_key,
            profile=answer.profile,
            invitation=fingerprint(invitation) if invitation else "",
            insecure=insecure,
            **_bus_fields(answer) | {"brokers": brokers, "ca": hub.ca},
        )

    @property
    def shown(self) -> str:
        return f"{self.profile.name} ({self.profile.key})"

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read the stored enrolment; return None if there is none.

        Raises:
            ConfigError: If the file cannot be understood.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (ValidationError, InvalidMessage):
            raise ConfigError(
                f"{path} is damaged",
                hint="Remove it. The spoke of 'strawberry up' then joins again by itself; others join with "
                "'strawberry spoke join'.",
            ) from None

    def save(self, path: Path) -> None:
        """Write it to an owner-only file, atomically.

        Raises:
            ConfigError: If it cannot be written.
        """
        try:
            write_private(path, self.model_dump_json(indent=2).encode())
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None

    @property
    def bearers(self) -> tuple[SecretStr, ...]:
        # The hub may accept either; the newest is first.
        return (self.renewed, self.token) if self.renewed else (self.token,)

    @property
    def bus_tokens(self) -> tuple[SecretStr, ...]:
        # The broker may accept either; the newest is first.
        return (self.renewed_bus_token, self.bus_token) if self.renewed_bus_token else (self.bus_token,)

    def claims(self, token: SecretStr) -> Claims:
        """Return the claims of one of this device's tokens for HTTP, even if it has expired.

        Raises:
            Unauthorized: If the hub did not sign it.
        """
        # At the beginning of time no token has expired.
        return tokens.verify(
            token.get_secret_value(), key=self.hub_key, hub_id=self.hub_id, audience="http", now=0
        )

    def with_renewed(self, given: DeviceTokens, *, now: float) -> Self:
        """Add the tokens that the hub issued to follow the present ones.

        Raises:
            InvalidMessage: If they are not for this device, or have expired.
        """
        _check_tokens(given, self.hub_key, hub_id=self.hub_id, device=self.device, kid=self.key_id, now=now)
        renewed = {"renewed": SecretStr(given.token), "renewed_bus_token": SecretStr(given.bus_token)}
        return self.model_copy(update=renewed)

    def settled_on(self, token: SecretStr) -> Self:
        """Keep the token that the hub accepted, with the one for the bus, and drop the others."""
        on_bus = self.renewed_bus_token if token == self.renewed else self.bus_token
        kept = {"token": token, "bus_token": on_bus, "renewed": None, "renewed_bus_token": None}
        return self.model_copy(update=kept)

    def updated(self, answer: DeviceBus, *, hub: "Hub") -> Self:
        """Apply the hub's answer on where the bus is and how this device is named.

        An answer over an unverified connection cannot name a new host, except with TLS where the hub is on
        this machine: who listens there must have a certificate of the authority that the hub's key signed.
        A bus with TLS stays one, and a hub that names no authority keeps the old one.
        """
        hosts = None if hub.http.is_verified else {host_of(url) for url in (hub.http.url, *self.brokers)}
        brokers = _usable(
            answer,
            hub=hub.http.url,
            hosts=hosts,
            vouched=hub.ca is not None and is_loopback(host_of(hub.http.url)),
            tls=any(map(_has_tls, self.brokers)),
            insecure=self.insecure,
        )
        changes = _bus_fields(answer) | {"brokers": brokers} if brokers else {}
        changes |= {
            "hub_url": hub.http.url,
            "ca": hub.ca or self.ca,
            "profile": answer.profile or self.profile,
        }
        return self.model_copy(update=changes)

    def was_invited_by(self, token: SecretStr) -> bool:
        """Return whether this is the token used to join, or the device token itself."""
        return token in self.bearers or fingerprint(token) == self.invitation


def fingerprint(token: SecretStr) -> str:
    """Return the SHA-256 of a token, which identifies it without revealing it."""
    return hashlib.sha256(token.get_secret_value().encode()).hexdigest()


def _bus_fields(answer: BusAccess) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in BusAccess.model_fields}


def _check_tokens(
    given: DeviceTokens, hub_key: PublicKey, *, hub_id: str, device: str, kid: str, now: float
) -> None:
    pair: tuple[tuple[str, Audience], ...] = ((given.token, "http"), (given.bus_token, "mqtt"))
    for token, audience in pair:
        try:
            claims = tokens.verify(token, key=hub_key, hub_id=hub_id, audience=audience, now=now)
        except Unauthorized as error:
            raise InvalidMessage(f"the hub's answer holds no valid device token: {error.message}") from None
        if claims.sub != device or claims.kind != "device":
            raise InvalidMessage("the hub's token is for another device than its answer")
        if claims.cnf is None or claims.cnf.jkt != kid:
            raise InvalidMessage("the hub's token is not bound to the key of this device")


def _usable(
    bus: BusAccess, *, hub: str, hosts: set[str] | None, vouched: bool, tls: bool, insecure: bool
) -> tuple[str, ...]:
    """Return the offered addresses that are safe to use, in their order.

    A loopback address counts only if the hub is on this machine, and then comes first; otherwise a foreign
    broker on this machine would receive the token.

    Args:
        hub: Address of the hub.
        hosts: The only hosts allowed; None for any.
        vouched: Whether other hosts are allowed with TLS.
        tls: Whether the bus had TLS before, and keeps it.
        insecure: Whether unencrypted connections are allowed.
    """
    # The login of a shared broker may go unencrypted where its owner set it up so; a token never does.
    readable = not tls and (insecure or bus.login is not None)
    beside_hub = is_loopback(host_of(hub))
    usable = [
        url
        for url in bus.brokers
        if urlsplit(url).scheme in BROKER_PORTS
        and host_of(url)
        and (hosts is None or host_of(url) in hosts or (vouched and _has_tls(url)))
        and (readable or not is_readable(url))
        and (beside_hub or not is_loopback(host_of(url)))
    ]
    return tuple(sorted(usable, key=lambda url: not is_loopback(host_of(url))))


def _has_tls(url: str) -> bool:
    return urlsplit(url).scheme == "mqtts"


def _no_broker(bus: BusAccess) -> ConfigError | InvalidMessage:
    if not bus.brokers:
        return InvalidMessage("the hub has no broker for devices", hint="Set one in the hub's settings.")
    if all(is_loopback(host_of(url)) for url in bus.brokers):
        return ConfigError(
            "the broker of this hub accepts no other machines", hint="Start the hub with --lan."
        )
    return ConfigError(
        f"every broker of this hub would receive the token unencrypted: {', '.join(bus.brokers)}",
        hint="Start the hub with --lan, or add --insecure to allow it.",
    )
