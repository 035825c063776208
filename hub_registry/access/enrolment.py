"""Joining: a single-use enrolment token and a device's public key become a bound device."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session, col, delete, select

from contracts.errors import Conflict, TooManyRequests, Unauthorized
from contracts.rates import TokenBuckets
from hub_registry.access.token_rows import TokenRequest, revoke_rows
from hub_registry.access.tokens import TokenAuthority
from hub_registry.devices.devices import Device, device_of, require_device
from hub_registry.storage.store import Store
from hub_registry.storage.tables import DeviceRow, EnrolmentRow, RegistrationRow, TokenRow, now
from identity.keys import PublicKey

_MAX_TOKEN = 200
_ANOTHER = (
    "Make one with 'strawberry devices add NAME', or with 'strawberry devices invite NAME' for a device that "
    "is in the list."
)


@dataclass(frozen=True)
class Invitation:
    """A right to join once.

    Attributes:
        token: To be given to the device; it is stored nowhere.
    """

    device: str
    token: str
    expires_at: datetime


@dataclass(frozen=True)
class Joined:
    """A device that has joined.

    Attributes:
        token: Its device token.
        jti: The id of that token.
    """

    device: Device
    token: str = field(repr=False)
    jti: str


@dataclass(eq=False)
class Enrolment:
    """Enrols devices, once for each invitation.

    Attributes:
        on_bound: Called with each device whose key was stored.
    """

    store: Store
    authority: TokenAuthority
    _: KW_ONLY
    device_token_s: int
    failures: TokenBuckets
    on_bound: Callable[[Device], object]

    async def invite(self, device: str, *, lifetime_s: int) -> Invitation:
        """Make an enrolment token for a device; earlier ones that were not used end with that.

        Raises:
            NotFound: If there is no such device.
        """
        # The locator finds the row; only the secret is a secret, and it is compared in constant time.
        locator, secret = secrets.token_hex(6), secrets.token_urlsafe(24)
        expires_at = now() + timedelta(seconds=lifetime_s)

        def work(session: Session) -> None:
            require_device(session, device)
            session.exec(
                delete(EnrolmentRow).where(
                    col(EnrolmentRow.device_id) == device, col(EnrolmentRow.used_at).is_(None)
                )
            )
            session.add(
                EnrolmentRow(
                    locator=locator,
                    digest=_digest(secret),
                    device_id=device,
                    created_at=now(),
                    expires_at=expires_at,
                )
            )

        await self.store.write(work)
        return Invitation(device, f"{locator}.{secret}", expires_at)

    async def enrol(self, token: str, public_key: dict[str, Any], *, source: str = "") -> Joined:
        """Bind a device's key and issue its device token. Tokens of the device before that end.

        A device that did not receive the answer may send the same again until it has used a token.

        Args:
            token: An enrolment token.
            public_key: The device's Ed25519 key as a JWK.
            source: Where the request comes from, for limiting guesses.

        Raises:
            InvalidMessage: If the key is none; the token stays good.
            TooManyRequests: If the token is wrong, as too many of this source were before.
            Unauthorized: If the token is wrong, used or expired.
            LinkError: If the broker refuses its login; the token stays good then.
            Conflict: If another client has its name on the broker, or another device its key.
        """
        key = PublicKey.from_jwk(public_key)
        try:
            # Checked first: a broker gets no login for a device without the right to join, and wrong tokens
            # hold up no other change.
            device = await self.store.read(lambda session: device_of(self._find(session, token, key)[1]))
            async with self.authority.acts:
                return await self._let_in(device, key, lambda session: self._use(session, token, key))
        except Unauthorized:
            # 192 bits cannot be guessed. A right token is never refused for the wrong ones of its neighbours.
            if not self.failures.take(source):
                raise too_many("too many wrong enrolment tokens") from None
            raise

    async def let_in(self, device: Device, key: PublicKey) -> Joined:
        """Bind a key to a device that an admin approved, and issue its token.

        Raises:
            LinkError: If the broker refuses its login; nothing was changed then.
            Conflict: If another client has its name on the broker, or another device its key.
        """
        async with self.authority.acts:
            return await self._let_in(device, key, lambda session: require_device(session, device.id))

    async def _let_in(self, device: Device, key: PublicKey, use: Callable[[Session], DeviceRow]) -> Joined:
        claims, issued = self.authority.prepare(
            TokenRequest(
                kind="device",
                subject=device.id,
                owner=device.owner,
                scopes=("register", *device.scopes),
                lifetime_s=self.device_token_s,
                key=key,
            )
        )

        def work(session: Session) -> tuple[Device, list[TokenRow]]:
            row = use(session)
            ended = revoke_rows(session, "device", row.id)
            _bind(session, row, key)
            session.add(issued)
            return device_of(row), ended

        async with self.authority.admitting(claims):
            bound, ended = await self.store.write(work)
        # Before anything else is waited for: what is changed meanwhile must come after it.
        self.on_bound(bound)
        await self.authority.announce(ended)
        return Joined(bound, self.authority.hand_out(claims, issued), claims.jti)

    def _use(self, session: Session, token: str, key: PublicKey) -> DeviceRow:
        row, device = self._find(session, token, key)
        row.used_at = now()
        return device

    def _find(self, session: Session, token: str, key: PublicKey) -> tuple[EnrolmentRow, DeviceRow]:
        locator, _, secret = token[:_MAX_TOKEN].partition(".")
        row = session.get(EnrolmentRow, locator)
        matches = hmac.compare_digest(row.digest if row else _digest(""), _digest(secret))
        if row is None or not matches:
            raise Unauthorized("the enrolment token is wrong", hint=_ANOTHER)
        device = require_device(session, row.device_id)
        repeated = device.key_id == key.kid and self.authority.awaits_first_use(device.id)
        if row.used_at is not None and not repeated:
            raise Unauthorized("the enrolment token was used already", hint=_ANOTHER)
        if row.expires_at <= now():
            raise Unauthorized("the enrolment token has expired", hint=_ANOTHER)
        return row, device


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def too_many(message: str) -> TooManyRequests:
    return TooManyRequests(message, hint="Wait a minute and try again.", retry_after_s=60)


def key_taken() -> Conflict:
    """Return the error for a device whose key another one has."""
    return Conflict(
        "a device has joined with this key already",
        hint="Run 'strawberry devices invite NAME' to let it join again, or remove it first.",
    )


def _bind(session: Session, row: DeviceRow, key: PublicKey) -> None:
    # Here, where no other transaction writes: two approvals at once may both have found the key free.
    bound = select(DeviceRow.id).where(DeviceRow.key_id == key.kid, DeviceRow.id != row.id)
    if session.exec(bound).first() is not None:
        raise key_taken()
    row.revoked_at = None
    if row.key_id == key.kid:
        # It may have been damaged where it is stored.
        row.public_key = key.jwk()
        return
    if row.key_id is not None:
        # Another key is another machine, of which the owner has said nothing yet.
        row.may_confirm = row.trusted = False
    # What the old key signed counts no longer: neither its registrations nor its epochs.
    session.exec(delete(RegistrationRow).where(col(RegistrationRow.device_id) == row.id))
    row.public_key, row.key_id = key.jwk(), key.kid
    row.epoch = row.connection = row.seq = 0
    row.ended = False
