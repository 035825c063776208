"""What hub and spoke say over HTTP when a device joins, and what it needs to take part in the bus."""

import base64
import hashlib
from typing import Annotated, Final, Literal

from pydantic import Field

from contracts import limits
from contracts.names import DeviceId
from contracts.wire import Json, Part

_FINGERPRINT: Final = b"strawberry-join-1"
_CA: Final = b"strawberry-ca-1"


class Login(Part):
    """The ordinary login of a broker that is shared with others."""

    username: str | None = None
    password: str | None = Field(default=None, repr=False)


Authentication = Literal["proof", "token", "login"]
"""How a device logs in on the bus: with its token and a proof of its key, which the embedded broker checks;
with the token alone, which Mosquitto compares whole; or with the ordinary login of a shared broker."""


class BusAccess(Part):
    """Where the bus of this home is, and how a device logs in.

    Attributes:
        brokers: Addresses, the best first: ``mqtt://host:1883``, ``mqtts://host:8883``.
        prefix: In front of every topic; may be empty.
        login: Of a shared broker, where no token is ever sent; None on a broker of our own.
        ca: PEM of the certificate authority of this home, which ``https`` and ``mqtts`` addresses are
            checked against; None where none was made.
        qos: The highest one of subscriptions, and of what is not retained.
    """

    brokers: tuple[str, ...]
    prefix: str = ""
    authentication: Authentication
    login: Login | None = None
    ca: str | None = None
    qos: Literal[0, 1] = 1


class DeviceProfile(Part):
    """How people and generated code name a device, as the hub knows it.

    Attributes:
        name: The display name.
        key: The name in generated code, made from the display name: ``devices.<key>.…``.
        may_confirm: Whether the owner lets a person at it confirm calls.
    """

    name: str
    key: str
    aliases: tuple[str, ...] = ()
    area: str | None = None
    floor: str | None = None
    may_confirm: bool = False


class DeviceBus(BusAccess):
    """The answer to a device that asks for the bus (``GET /api/bus``).

    Attributes:
        profile: Of the device that asks; None for any other client.
    """

    profile: DeviceProfile | None = None


class DeviceTokens(Part):
    """The tokens of a device, which are renewed and revoked as one (``POST /api/tokens/renew``).

    Attributes:
        token: For HTTP.
        bus_token: For the login on the bus.
    """

    token: str = Field(repr=False)
    bus_token: str = Field(repr=False)


class EnrolAnswer(DeviceBus, DeviceTokens):
    """What a device gets when it joins: who it is, whose calls it obeys, and the bus.

    Attributes:
        hub_key: The hub's public key as a JWK.
    """

    profile: DeviceProfile
    device: DeviceId
    hub_id: str
    hub_key: dict[str, str]


class HubCard(Part):
    """Which hub this is, for those who have not joined (``/.well-known/strawberry``).

    Nothing of it is secret, and nothing of it may be believed before ``key`` is known to be the hub's.

    Attributes:
        key: Fingerprint of the hub's key (RFC 7638).
        hub_key: The key itself as a JWK.
        ca: PEM of the certificate authority of this home.
        ca_signature: By the hub's key over `ca_document`, base64url without padding.
        proof: By the hub's key, where the request has a challenge; see `identity.logins.challenges`.
    """

    hub_id: str
    key: str
    hub_key: dict[str, str] = {}
    brokers: tuple[str, ...] = ()
    prefix: str = ""
    ca: str | None = None
    ca_signature: str | None = None
    proof: str | None = None


class JoinRequest(Part):
    """A device that asks to join by code (``POST /api/devices/join``).

    Attributes:
        name: What it would like to be called.
        public_key: Its key as a JWK; also with members that are no strings, as browsers export it.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)]
    public_key: dict[str, Json]


class JoinAsked(Part):
    """The answer to it.

    Attributes:
        code: For a person, to be typed where the hub is trusted. It is shown beside the fingerprint before
            anything is known of who made it, so it has no room for another fingerprint, nor for what moves
            a cursor.
        secret: For the device alone, to ask with whether it was approved; 128 bits.
        expires_in_s: How long both are good.
        interval_s: How often it may ask.
    """

    code: Annotated[str, Field(pattern=r"^[0-9A-Za-z]{1,8}(-[0-9A-Za-z]{1,8})?$")]
    secret: str = Field(repr=False)
    expires_in_s: int
    interval_s: float


class JoinPoll(Part):
    """Whether it was approved (``POST /api/devices/join/poll``)."""

    secret: Annotated[str, Field(max_length=200, repr=False)]


class JoinState(Part):
    """The answer to that.

    Attributes:
        enrolment: Given out with ``approved``, until the device has used its token once.
    """

    state: Literal["waiting", "approved", "refused"]
    enrolment: EnrolAnswer | None = None


def join_fingerprint(*, hub_key: str, device_key: str, ca: str | None) -> str:
    """Return what a person compares on both screens: it binds both keys and the certificate authority.

    A man in the middle would have to show each side other keys, and so another fingerprint.

    Args:
        hub_key: Fingerprint of the hub's key.
        device_key: Fingerprint of the device's key.
        ca: The authority's PEM, None where the hub has none.

    Returns:
        Sixteen letters and digits (base32) in groups of four, for example ``ABCD-EFGH-IJ23-4567``.
    """
    parts = (_FINGERPRINT, hub_key.encode(), device_key.encode(), (ca or "").encode())
    digest = hashlib.sha256(b"\0".join(parts)).digest()
    letters = base64.b32encode(digest).decode()[: limits.FINGERPRINT_SHOWN]
    return "-".join(letters[at : at + 4] for at in range(0, limits.FINGERPRINT_SHOWN, 4))


def ca_document(*, hub_id: str, ca: str) -> bytes:
    """Return the bytes that the hub's key signs to vouch for its certificate authority."""
    return b"\0".join((_CA, hub_id.encode(), ca.encode()))
