"""Joining by code: a device asks, and a person who sees its code and its fingerprint approves it.

Requests are kept in memory only: a restart of the hub voids all codes, and a device then asks again.
"""

import hashlib
import hmac
import math
import secrets
import time
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from contracts.answers.devices import Waiting
from contracts.devices.joining import JoinAsked, JoinRequest, join_fingerprint
from contracts.errors import InvalidMessage, NotFound, TooManyRequests
from contracts.rates import Clock, SourceLimit
from contracts.wire import check_shown
from hub_registry import limits
from hub_registry.access.codes import LETTERS
from hub_registry.access.enrolment import Enrolment, Joined, key_taken, too_many
from hub_registry.access.tokens import TokenAuthority
from hub_registry.devices.devices import Device, DeviceChange, Devices
from hub_registry.storage.tables import now
from identity.keys import PublicKey

_LENGTH: Final = 8
"""Letters of a code: 40 bits."""
_SECRET_BYTES: Final = 16

_State = Literal["waiting", "deciding", "approved", "refused"]


@dataclass(eq=False)
class _Request:
    code: str
    secret: bytes
    name: str
    key: PublicKey
    source: str
    ends: float
    expires_at: datetime
    state: _State = "waiting"
    joined: Joined | None = None
    asked: float = field(default=float("-inf"))


@dataclass(frozen=True)
class JoinStatus:
    """The answer to a device that asks.

    Attributes:
        joined: Its enrolment; None before it is approved, and once it has used its token.
    """

    state: Literal["waiting", "approved", "refused"]
    joined: Joined | None = None


@dataclass(frozen=True)
class Approved:
    """A device that a person has approved."""

    device: Device
    fingerprint: str


@dataclass(eq=False)
class Joining:
    """The devices that ask to join by code.

    Attributes:
        hub_key: Fingerprint of the hub's key; with ``ca`` part of what both screens show.
    """

    devices: Devices
    enrolment: Enrolment
    authority: TokenAuthority
    _: KW_ONLY
    hub_key: str
    ca: str | None
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self._requests: list[_Request] = []
        self._asks = SourceLimit(per_minute=limits.JOINS_ASKED, clock=self.clock)
        self._wrong_secrets = SourceLimit(per_minute=limits.JOIN_GUESSES, clock=self.clock)
        self._wrong_codes = SourceLimit(per_minute=limits.JOIN_GUESSES, clock=self.clock)

    async def ask(self, request: JoinRequest, *, source: str) -> JoinAsked:
        """Enter the request of a device to join.

        When too many wait, the oldest of the address that has most of them gives way, so that a flood
        displaces itself first.

        Raises:
            TooManyRequests: If this address, or all together, asked too often.
            InvalidMessage: If the name or the key is none.
            Conflict: If a device has joined with that key already.
        """
        if self._asks.exceeded(source):
            raise too_many("too many devices want to join")
        self._asks.count(source)
        name = request.name.strip()
        if not name or not name.isprintable():
            raise InvalidMessage("a device cannot have this name", hint="Use letters, digits and blanks.")
        key = PublicKey.from_jwk(request.public_key)
        await self._bound_to(key)
        self._forget_expired()
        while len(self._requests) >= limits.JOINS_WAITING:
            self._requests.remove(self._crowding())
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        self._requests.append(
            _Request(
                code=self._new_code(),
                secret=_digest(secret),
                name=name,
                key=key,
                source=source,
                ends=self.clock() + limits.JOIN_CODE_S,
                expires_at=now() + timedelta(seconds=limits.JOIN_CODE_S),
            )
        )
        return JoinAsked(
            code=_shown(self._requests[-1].code),
            secret=secret,
            expires_in_s=limits.JOIN_CODE_S,
            interval_s=limits.JOIN_POLL_S,
        )

    def poll(self, secret: str, *, source: str) -> JoinStatus:
        """Return whether a device was approved.

        Raises:
            NotFound: If no device waits with this secret.
            TooManyRequests: If it asks more often than the interval allows, or guesses.
        """
        self._forget_expired()
        given, found = _digest(secret), None
        for request in self._requests:
            if hmac.compare_digest(request.secret, given):
                found = request
        if found is None:
            # Only wrong secrets are limited: 128 bits cannot be guessed, and a flood must not delay others.
            if self._wrong_secrets.exceeded(source):
                raise too_many("too many wrong secrets")
            self._wrong_secrets.count(source)
            raise NotFound("no device is waiting with this secret", hint="Ask to join again.")
        present = self.clock()
        if present - found.asked < limits.JOIN_POLL_S * limits.POLL_SOONER_SHARE:
            interval_s = limits.JOIN_POLL_S
            raise TooManyRequests(
                "polled too soon",
                hint=f"Ask every {interval_s:g} seconds.",
                retry_after_s=math.ceil(interval_s),
            )
        found.asked = present
        if found.joined is not None:
            if self.authority.is_revoked(found.joined.jti):
                found.state, found.joined = "refused", None
            elif self.authority.was_used(found.joined.jti):
                found.joined = None
        return JoinStatus("waiting" if found.state == "deciding" else found.state, found.joined)

    def waiting(self) -> list[Waiting]:
        """List the devices that wait, the oldest first."""
        self._forget_expired()
        return [
            Waiting(
                code=_shown(each.code),
                name=each.name,
                fingerprint=self._fingerprint(each),
                source=each.source,
                expires_at=each.expires_at,
            )
            for each in self._requests
            if each.state == "waiting"
        ]

    async def approve(
        self, code: str, *, owner: str, name: str | None = None, fingerprint: str | None = None
    ) -> Approved:
        """Approve the device with this code: add it, bind its key, and keep its token for it.

        Args:
            code: As it is shown; case, blanks and dashes do not matter.
            owner: Id of the user who approves it and owns it from now on.
            name: What it shall be called instead of what it asked for.
            fingerprint: As the person was shown it; None where nothing was shown.

        Raises:
            NotFound: If no device is waiting with this code.
            TooManyRequests: If this user tried too many wrong codes.
            Conflict: If another device has its name or its key, or it has another fingerprint.
            LinkError: If the broker refuses its login; it goes on waiting.
        """
        request = self._find(code, by=owner)
        if fingerprint is not None:
            hint = "'strawberry devices approve' lists those that wait."
            check_shown(fingerprint, self._fingerprint(request), name=request.name, hint=hint)
        request.state = "deciding"
        try:
            joined = await self._let_in(request, owner, name)
        except BaseException:
            request.state = "waiting"
            raise
        request.state, request.joined = "approved", joined
        # From here on it needs no code, but may need time to come and ask.
        request.ends = self.clock() + limits.JOIN_CODE_S
        return Approved(joined.device, self._fingerprint(request))

    def refuse(self, code: str, *, by: str) -> None:
        """Refuse the device with this code; this alone voids it.

        Raises:
            NotFound: If no device is waiting with this code.
            TooManyRequests: If this user tried too many wrong codes.
        """
        self._find(code, by=by).state = "refused"

    async def _let_in(self, request: _Request, owner: str, name: str | None) -> Joined:
        known = await self._bound_to(request.key)
        if known is not None:
            if name and name.strip() != known.display_name:
                known = await self.devices.change(known.id, DeviceChange(name=name))
            return await self.enrolment.let_in(known, request.key)
        device = await self.devices.add(name or request.name, owner=owner)
        try:
            return await self.enrolment.let_in(device, request.key)
        except BaseException:
            await self.devices.discard(device.id)
            raise

    async def _bound_to(self, key: PublicKey) -> Device | None:
        """Return the device with this key if it was approved and never came, because the answer was lost.

        A request shows no more than a public key, so a device that was online is never enrolled again.

        Raises:
            Conflict: If it came.
        """
        device = await self.devices.with_key(key)
        if device is None:
            return None
        if device.revoked or device.last_seen or not self.authority.awaits_first_use(device.id):
            raise key_taken()
        return device

    def _find(self, code: str, *, by: str) -> _Request:
        if self._wrong_codes.exceeded(by):
            raise too_many("too many wrong codes")
        self._forget_expired()
        given, found = _plain(code).encode(), None
        for request in self._requests:
            if hmac.compare_digest(request.code.encode(), given) and request.state == "waiting":
                found = request
        if found is None:
            self._wrong_codes.count(by)
            raise NotFound(
                "no device is waiting with this code",
                hint="A code is valid once, for ten minutes; 'strawberry spoke join' shows a new one.",
            )
        return found

    def _crowding(self) -> _Request:
        """Return the oldest request of the address that has most; an approved one stays if it can."""
        open_ = [each for each in self._requests if each.state in ("waiting", "refused")]
        counts = {each.source: 0 for each in open_}
        for each in open_:
            counts[each.source] += 1
        return max(open_ or self._requests, key=lambda each: counts.get(each.source, 0))

    def _forget_expired(self) -> None:
        present = self.clock()
        self._requests = [each for each in self._requests if each.ends > present or each.state == "deciding"]

    def _new_code(self) -> str:
        while True:
            code = "".join(secrets.choice(LETTERS) for _ in range(_LENGTH))
            if all(each.code != code for each in self._requests):
                return code

    def _fingerprint(self, request: _Request) -> str:
        return join_fingerprint(hub_key=self.hub_key, device_key=request.key.kid, ca=self.ca)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _shown(code: str) -> str:
    return f"{code[:4]}-{code[4:]}"


def _plain(code: str) -> str:
    return "".join(letter for letter in code.upper() if letter.isalnum())[: 2 * _LENGTH]
