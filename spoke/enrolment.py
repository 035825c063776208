"""What a spoke knows of the hub that it has joined: kept owner-only in ``spoke/enrolment.json``."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from broker import tokens
from broker.files import write_private
from broker.keys import PublicKey
from contracts.errors import ConfigError, InvalidMessage, Unauthorized
from contracts.names import DeviceId
from contracts.wire import Json

FILE_NAME: Final = "enrolment.json"


class EnrolmentAnswer(BaseModel):
    """What ``POST /api/devices/enrol`` answers."""

    model_config = ConfigDict(frozen=True)

    device: DeviceId
    token: str
    hub_id: str
    hub_key: dict[str, Any]
    brokers: tuple[str, ...]
    prefix: str = ""


class HubAnswer(BaseModel):
    """What ``GET /.well-known/strawberry`` answers; ``key`` is the fingerprint of the hub's key."""

    model_config = ConfigDict(frozen=True)

    hub_id: str
    key: str
    brokers: tuple[str, ...]
    prefix: str = ""


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
        brokers: Addresses of the bus.
        prefix: In front of every topic.
        invitation: SHA-256 of the enrolment token that was used, so that another one is recognised.
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

    @classmethod
    def of(
        cls, answer: EnrolmentAnswer, *, hub_url: str, key: PublicKey, invitation: SecretStr, now: float
    ) -> Self:
        """Take an answer of a hub, once it proves that this hub bound this key.

        Args:
            key: This device's key.
            invitation: The enrolment token that was used.
            now: Seconds since the epoch by the hub's clock.

        Raises:
            InvalidMessage: If the answer contradicts itself.
        """
        hub_key = PublicKey.from_jwk(answer.hub_key)
        try:
            claims = tokens.verify(answer.token, key=hub_key, hub_id=answer.hub_id, now=now)
        except Unauthorized as error:
            raise InvalidMessage(f"the hub's answer holds no valid device token: {error.message}") from None
        if claims.sub != answer.device or claims.kind != "device":
            raise InvalidMessage("the hub's answer names a device that its token is not for")
        if claims.cnf is None or claims.cnf.jkt != key.kid:
            raise InvalidMessage("the hub's token is not bound to the key of this device")
        if not answer.brokers:
            raise InvalidMessage("the hub names no broker", hint="Its settings must name one for devices.")
        return cls(
            hub_url=hub_url,
            hub_id=answer.hub_id,
            device=answer.device,
            key_id=key.kid,
            token=SecretStr(answer.token),
            hub_key=hub_key,
            brokers=answer.brokers,
            prefix=answer.prefix,
            invitation=fingerprint(invitation),
        )

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read what was stored; None where nothing was.

        Raises:
            ConfigError: If the file cannot be understood.
        """
        try:
            stored = json.loads(path.read_bytes())
            answer = EnrolmentAnswer.model_validate(stored)
            return cls(
                hub_url=str(stored["hub_url"]),
                hub_id=answer.hub_id,
                device=answer.device,
                key_id=str(stored["key_id"]),
                token=SecretStr(answer.token),
                hub_key=PublicKey.from_jwk(answer.hub_key),
                brokers=answer.brokers,
                prefix=answer.prefix,
                invitation=str(stored["invitation"]),
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, ValidationError, InvalidMessage):
            raise ConfigError(
                f"{path} is damaged",
                hint="Remove it and join again with a token from 'strawberry devices add NAME'.",
            ) from None

    def save(self, path: Path) -> None:
        """Store it owner-only."""
        stored = {
            "hub_url": self.hub_url,
            "hub_id": self.hub_id,
            "device": self.device,
            "key_id": self.key_id,
            "token": self.token.get_secret_value(),
            "hub_key": self.hub_key.jwk(),
            "brokers": self.brokers,
            "prefix": self.prefix,
            "invitation": self.invitation,
        }
        write_private(path, json.dumps(stored, indent=2).encode())

    def at(self, *, hub_url: str, told: Json) -> Self:
        """Take over where the hub says that it is now.

        Only what names this hub counts. Nothing of that is signed, so the token goes nowhere that it
        might not have gone before: to hosts that are known, and never without TLS where there was TLS.
        """
        moved = replace(self, hub_url=hub_url)
        try:
            answer = HubAnswer.model_validate(told)
        except ValidationError:
            return moved
        if (answer.hub_id, answer.key) != (self.hub_id, self.hub_key.kid):
            return moved
        known = {urlsplit(url).hostname for url in (hub_url, *self.brokers)}
        schemes = {urlsplit(url).scheme for url in self.brokers}
        brokers = tuple(
            url
            for url in answer.brokers
            if urlsplit(url).hostname in known and urlsplit(url).scheme in schemes
        )
        return replace(moved, brokers=brokers or self.brokers, prefix=answer.prefix)

    def was_invited_by(self, token: SecretStr) -> bool:
        """Whether this token brings nothing new: the one used to join, or the device token itself."""
        return token == self.token or fingerprint(token) == self.invitation


def fingerprint(token: SecretStr) -> str:
    """Give the SHA-256 of a token: it tells tokens apart and is none."""
    return hashlib.sha256(token.get_secret_value().encode()).hexdigest()
