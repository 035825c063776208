"""Claims of a token: a JWT, signed by the hub with EdDSA (RFC 7519, RFC 8037)."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, Field

from contracts.wire import Part

Audience = Literal["http", "mqtt"]
"""What a token is good for: requests to the hub, or the login on the bus."""

Scope = Literal["register", "chat", "call", "confirm", "say_yes", "admin", "metrics"]
SCOPES: Final[tuple[Scope, ...]] = ("register", "chat", "call", "confirm", "admin", "metrics")
"""Those of the owner's own token. ``confirm`` answers the questions of the owner's turns; ``admin`` changes
devices, logins and tokens, for an owner who is an admin; ``metrics`` reads ``/metrics`` and nothing else.
``say_yes``, which no token has unless it is named, confirms by the next message of a conversation."""
DeviceScope = Literal["chat", "call"]
"""What is left to a device: to chat as its owner, and to call skills of other devices directly."""
DEVICE_SCOPES: Final[tuple[DeviceScope, ...]] = ("chat",)
"""Of a new device."""
ClientScope = Literal["chat", "home_assistant"]
"""Of a login on the bus: to chat, or to be Home Assistant, which sees only what is exposed to it."""

PrincipalKind = Literal["hub", "device", "user", "client"]


def device_scopes(stored: object) -> tuple[DeviceScope, ...]:
    """Return the scopes of a device that are in a text; another word there opens nothing."""
    words = stored.split() if isinstance(stored, str) else ()
    return tuple(scope for scope in get_args(DeviceScope) if scope in words)


def _scopes(text: str) -> str:
    unknown = set(text.split()) - {*get_args(Scope), *get_args(ClientScope)}
    if unknown:
        raise ValueError(f"unknown scope: {', '.join(sorted(unknown))}")
    return text


class Confirmation(Part):
    """``cnf`` (RFC 7800): the RFC 7638 thumbprint of the key the bearer has bound."""

    jkt: str


class Claims(Part):
    """The claims of one token.

    Attributes:
        iss: Id of the hub.
        sub: Device id, user id, client name, or the hub's instance.
        own: Id of the user it belongs to.
        aud: What it is good for. A device has a token for each, with everything else the same, ``jti``
            included: both are renewed and revoked as one.
        scope: Scopes, separated by blanks (RFC 8693).
        iat: Issued at, seconds since the epoch.
        exp: Not valid from here on, seconds since the epoch.
        jti: Id of this token, for revoking it.
        cnf: Thumbprint of the device's key.
    """

    iss: str
    sub: Annotated[str, Field(min_length=1, max_length=64)]
    kind: PrincipalKind
    own: str
    aud: Audience
    scope: Annotated[str, AfterValidator(_scopes)] = ""
    iat: int
    exp: int
    jti: str
    cnf: Confirmation | None = None

    @property
    def holder(self) -> str:
        """Return the key of its quotas: a device, a login of the bus, or a single token of a user.

        What a device has used up stays used when it renews its token.
        """
        return self.jti if self.kind == "user" else f"{self.kind}/{self.sub}"

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.exp, UTC)

    @property
    def scopes(self) -> frozenset[str]:
        return frozenset(self.scope.split())
