"""Issuing, checking, renewing and revoking tokens: one act for the database, the broker and HTTP."""

import asyncio
import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Final, Protocol, get_args

from pydantic import SecretStr
from sqlmodel import Session, col, delete, select

from broker.logins import ACL_CLAIM, BusLogin, acl
from contracts.access import Principal
from contracts.claims import Claims, PrincipalKind, Scope, device_scopes
from contracts.devices.presence import Revocation
from contracts.errors import NotFound, PasswordNeeded, StrawberryError, Unauthorized
from hub_registry import limits
from hub_registry.access.token_rows import (
    TokenRequest,
    claims_of,
    end_replaced,
    good_of,
    revoke_owned,
    revoke_rows,
    revoke_with_renewals,
    row_of,
    unexpired,
)
from hub_registry.storage.store import Store
from hub_registry.storage.tables import DeviceRow, TokenRow, now, readable
from identity import tokens
from identity.keys import KeyPair

_log = logging.getLogger(__name__)

OnRevoked = Callable[[Revocation], Awaitable[None]]
"""Called with every revocation, and with the tokens of a device whose rights change: streams are closed."""

_REMEMBERED: Final = timedelta(days=30)
"""How long a token that has expired is still listed."""
_RIGHTS: Final = select(DeviceRow.id, DeviceRow.owner, DeviceRow.scope)
"""Of each device, what its tokens are good for now."""
_ON_BUS: Final = ("device", "client")
"""Who logs in on the bus, each with one token at a time. A user's tokens are for HTTP."""


class BusLogins(Protocol):
    """The logins of the broker, as the authority changes them; see `hub_registry.access.login_sync`."""

    async def allow(self, login: BusLogin) -> None: ...

    async def revoke(self, principal: Principal, revocation: Revocation) -> None: ...

    def resync(self) -> None: ...


class TokenAuthority:
    """Issues the tokens of one hub and decides which are still good.

    Of each device and client one token is good on the bus: the newest that replaced nothing, or whose use
    over HTTP was seen. It can be signed again from its row, for brokers that keep passwords.

    Attributes:
        acts: Held while database and broker are changed together, so that one act follows the other.
    """

    def __init__(self, store: Store, *, hub_id: str, key: KeyPair, for_emqx: bool = False) -> None:
        self.hub_id = hub_id
        self.key = key
        self._for_emqx = for_emqx
        self.acts = asyncio.Lock()
        self._store = store
        self._rows: dict[str, TokenRow] = {}
        self._devices: dict[str, tuple[str, str]] = {}
        self._verified: dict[bytes, Claims] = {}
        self._on_bus: dict[tuple[str, str], Claims] = {}
        self._confirmed: dict[str, float] = {}
        self._broker_logins: BusLogins | None = None
        self._listeners: list[OnRevoked] = []

    async def load(self) -> None:
        """Read the tokens that have not expired, and what devices may.

        May be done again at any time, with `acts` held.
        """
        rows, devices = await self._store.read(
            lambda session: (unexpired(session), session.exec(_RIGHTS).all())
        )
        self._rows = {row.jti: row for row in rows}
        self._devices = {
            id_: (owner, " ".join(("register", *device_scopes(scope)))) for id_, owner, scope in devices
        }
        claims = readable(filter(_is_on_bus, rows), partial(claims_of, hub_id=self.hub_id))
        self._on_bus = {(each.kind, each.sub): each for each in claims}

    async def follow(self) -> None:
        """Apply what another process of this hub has changed, and call the listeners as that one did."""
        async with self.acts:
            rows, devices, on_bus = self._rows, self._devices, self._on_bus
            await self.load()
            changed = {device for device, may in devices.items() if self._devices.get(device) != may}
            ended = [
                row.jti
                for row in self._rows.values()
                if (before := rows.get(row.jti)) is not None and before.revoked_at is None
                if row.revoked_at is not None or (row.kind == "device" and row.subject in changed)
            ]
            if self._broker_logins is not None and (ended or self._on_bus != on_bus):
                self._broker_logins.resync()
            if ended:
                await self._tell(Revocation(tokens=ended, before=now()))

    def on_revoked(self, listener: OnRevoked) -> Callable[[], None]:
        """Call a listener with each revocation; return the function that stops that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def use_logins(self, logins: BusLogins) -> Callable[[], None]:
        """Keep the logins of the broker up to date from now on; return the function that stops that."""
        self._broker_logins = logins

        def leave() -> None:
            self._broker_logins = None

        return leave

    async def issue(self, request: TokenRequest) -> str:
        """Issue a token; of a device or client, the one that is good on the bus from now on.

        Raises:
            LinkError: If the broker refuses the login; nothing was issued then.
            Conflict: If another client has that name on the broker.
        """
        claims, row = self.prepare(request)
        async with self.acts, self.admitting(claims):
            await self._store.write(lambda session: session.add(row))
        return self.hand_out(claims, row)

    def prepare(self, request: TokenRequest) -> tuple[Claims, TokenRow]:
        """Make the claims and the row of a token, to be stored along with something else."""
        claims = tokens.make_claims(
            hub_id=self.hub_id,
            subject=request.subject,
            kind=request.kind,
            owner=request.owner,
            scopes=request.scopes,
            lifetime_s=request.lifetime_s,
            audience="mqtt" if request.kind == "client" else "http",
            key=request.key,
        )
        return claims, row_of(claims, name=request.name, replaces=None, is_session=request.is_session)

    @asynccontextmanager
    async def admitting(self, claims: Claims) -> AsyncIterator[None]:
        """Allow the login with a token, then run the block; `acts` must be held.

        What the broker refuses is raised before the database is changed. If the database fails, the broker
        gets the full list of logins again.
        """
        logins = self._broker_logins if claims.kind in _ON_BUS else None
        try:
            if logins is not None:
                await logins.allow(self._login(claims))
            yield
        except BaseException:
            if logins is not None:
                logins.resync()
            raise
        if claims.kind in _ON_BUS:
            self._on_bus[claims.kind, claims.sub] = claims

    def hand_out(self, claims: Claims, row: TokenRow) -> str:
        """Sign a token whose row has been stored."""
        self._rows[row.jti] = row
        return self.sign(claims)

    def sign(self, claims: Claims) -> str:
        """Sign a token; one for MQTT tells EMQX what it allows, where that is the bus."""
        if self._for_emqx and claims.aud == "mqtt":
            return tokens.issue(self.key, claims, **{ACL_CLAIM: acl(Principal.of(claims))})
        return tokens.issue(self.key, claims)

    def bus_token(self, token: str) -> str:
        """Sign the token with which a device logs in on the bus, as the other of the pair with this one."""
        # As it was signed: a broker that keeps passwords gets the same from the row.
        return self.sign(self._as_signed(token).model_copy(update={"aud": "mqtt"}))

    async def renew(self, claims: Claims, *, lifetime_s: int) -> str:
        """Issue a token like this one. The old one stays good until the new one was used once.

        So an answer that is lost on its way does not lock out the device.
        """
        old = await self._store.read(lambda session: session.get(TokenRow, claims.jti))
        claimed, _ = self.prepare(
            TokenRequest(
                kind=claims.kind,
                subject=claims.sub,
                owner=claims.own,
                # The order of the table, so that two tokens with the same rights read the same.
                scopes=[scope for scope in get_args(Scope) if scope in claims.scopes],
                lifetime_s=lifetime_s,
            )
        )
        claimed = claimed.model_copy(update={"cnf": claims.cnf})
        row = row_of(claimed, name=old.name if old else "", replaces=claims.jti)
        async with self.acts:
            # It may have been revoked while this was under way.
            self._refuse_revoked(claims)
            await self._store.write(lambda session: session.add(row))
        return self.hand_out(claimed, row)

    def check(self, token: str) -> Claims:
        """Return the claims of a good token for HTTP.

        Raises:
            Unauthorized: With the reason.
        """
        return self._at_present(self._as_signed(token))

    def _as_signed(self, token: str) -> Claims:
        # By its hash: how long a look-up takes says nothing of the token then.
        digest = hashlib.sha256(token.encode()).digest()
        claims = self._verified.get(digest)
        if claims is None or claims.exp <= time.time():
            claims = tokens.verify(token, key=self.key.public, hub_id=self.hub_id, audience="http")
            if len(self._verified) >= limits.VERIFIED_TOKENS:
                self._verified.clear()
            self._verified[digest] = claims
        self._refuse_revoked(claims)
        return claims

    def _at_present(self, claims: Claims) -> Claims:
        """Return the claims that count: a device may have been given to another person, or other scopes."""
        present = self._devices.get(claims.sub) if claims.kind == "device" else None
        if present is None or present == (claims.own, claims.scope):
            return claims
        return claims.model_copy(update={"own": present[0], "scope": present[1]})

    async def authenticate(self, token: str) -> Claims:
        """Check a token that came over HTTP; the first use of a renewed one revokes its predecessor.

        Raises:
            Unauthorized: With the reason.
        """
        claims = self.check(token)
        await self.use(claims)
        return claims

    async def use(self, claims: Claims) -> None:
        """Note that a token was used whose claims were just checked; see `authenticate`.

        Raises:
            Unauthorized: With the reason.
        """
        if claims.jti not in self._rows:
            await self._look_for(claims)
        if not self.was_used(claims.jti):
            async with self.acts:
                await self._first_use(claims)

    async def _look_for(self, claims: Claims) -> None:
        """Refuse a token that the database does not know.

        After a restore that is one of the time since the backup, and it may have been revoked since.
        """
        row = await self._store.read(lambda session: session.get(TokenRow, claims.jti))
        if row is None:
            raise Unauthorized(
                "this hub does not know the token: it is not in the backup that was restored",
                hint=tokens.new_token_hint(claims),
            )
        # Another process of this hub has issued it, and may have revoked it since it was read.
        self._rows.setdefault(row.jti, row)
        self._refuse_revoked(claims)

    async def _first_use(self, claims: Claims) -> None:
        self._refuse_revoked(claims)
        if self.was_used(claims.jti):
            return
        ended: list[TokenRow] = []

        def work(session: Session) -> None:
            ended.extend(end_replaced(session, claims.jti))

        if self._rows[claims.jti].replaces is None:
            await self._store.write(work)
        else:
            try:
                async with self.admitting(claims):
                    await self._store.write(work)
            except StrawberryError as error:
                # The bearer did nothing wrong: both its tokens stay as good as they were.
                _log.error("the bus keeps the old token of %s for now: %s", claims.sub, error)
                return
        self._rows[claims.jti].used_at = now()
        await self.announce(ended)

    def is_session(self, jti: str) -> bool:
        """Return whether a token that was used is the session of a browser."""
        row = self._rows.get(jti)
        return row is not None and row.is_session

    def was_used(self, jti: str) -> bool:
        """Return whether a device's token has been used over HTTP."""
        row = self._rows.get(jti)
        return row is None or row.used_at is not None or row.revoked_at is not None or not _counts_use(row)

    def is_revoked(self, jti: str) -> bool:
        """Return whether a token that has not expired was revoked."""
        row = self._rows.get(jti)
        return row is not None and row.revoked_at is not None

    async def read_good(self, jti: str) -> bool | None:
        """Return whether a token is good on the bus, as the database has it; None where that has none."""
        row = await self._store.read(lambda session: session.get(TokenRow, jti))
        return None if row is None else _is_on_bus(row)

    def on_bus(self, kind: PrincipalKind, subject: str) -> Claims | None:
        """Return the claims of the token with which a device or client may log in, if there is one."""
        claims = self._on_bus.get((kind, subject))
        return self._at_present(claims) if claims is not None and claims.exp > time.time() else None

    def awaits_first_use(self, device: str) -> bool:
        """Return whether the bus token of a device has never been used over HTTP."""
        claims = self._on_bus.get(("device", device))
        return claims is not None and not self.was_used(claims.jti)

    async def list(self) -> Sequence[TokenRow]:
        """List the tokens that were issued, the newest first; everything but the tokens themselves."""
        newest = select(TokenRow).order_by(col(TokenRow.issued_at).desc())
        return await self._store.read(lambda session: session.exec(newest).all())

    async def good_of(self, user: str) -> Sequence[TokenRow]:
        return await self._store.read(lambda session: good_of(session, user))

    async def get(self, jti: str) -> TokenRow:
        """Return what was issued as the token with this id.

        Raises:
            NotFound: If there is none.
        """
        row = await self._store.read(lambda session: session.get(TokenRow, jti))
        if row is None:
            raise no_token()
        return row

    def confirm(self, jti: str) -> None:
        """Note that the person of a session has typed their password just now."""
        present = time.monotonic()
        self._confirmed = {
            each: at for each, at in self._confirmed.items() if present - at < limits.FRESH_SESSION_S
        }
        self._confirmed[jti] = present

    async def require_password(self, claims: Claims) -> None:
        """Require of a session that its person has typed their password in the last minutes.

        Raises:
            PasswordNeeded: If they have not: the browser may be one that was left open.
        """
        is_fresh = (
            time.monotonic() - self._confirmed.get(claims.jti, -limits.FRESH_SESSION_S)
            < limits.FRESH_SESSION_S
        )
        if not is_fresh and (await self.get(claims.jti)).is_session:
            raise PasswordNeeded("this needs your password again", hint="POST /api/session/confirm")

    async def revoke(self, jtis: Iterable[str]) -> None:
        """Revoke single tokens and what renews them: they are refused, and who uses one is disconnected.

        Raises:
            NotFound: If one was never issued.
            LinkError: If the broker does not keep out who used one; it is refused over HTTP, and the
                broker is asked again.
        """
        wanted = list(jtis)

        def work(session: Session) -> list[TokenRow]:
            if any(session.get(TokenRow, jti) is None for jti in wanted):
                raise no_token()
            return revoke_with_renewals(session, wanted)

        async with self.acts:
            await self._end(await self._store.write(work))

    async def follow_device(self, device: str) -> None:
        """Change what the tokens of a device open to what it may now; what they began ends."""
        good = select(TokenRow.jti).where(
            TokenRow.kind == "device", TokenRow.subject == device, col(TokenRow.revoked_at).is_(None)
        )
        async with self.acts:
            await self.load()
            jtis = await self._store.read(lambda session: session.exec(good).all())
            await self._tell(Revocation(tokens=list(jtis), before=now()))

    async def revoke_subject(self, kind: PrincipalKind, subject: str) -> None:
        async with self.acts:
            await self._end(await self._store.write(lambda session: revoke_rows(session, kind, subject)))

    async def revoke_owned(self, owner: str, which: Callable[[TokenRow], bool]) -> None:
        async with self.acts:
            await self._end(await self._store.write(lambda session: revoke_owned(session, owner, which)))

    async def _end(self, rows: Sequence[TokenRow]) -> None:
        await self.announce(rows)
        ended: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for row in rows:
            ended[row.kind, row.subject].append(row.jti)
        for place, jtis in ended.items():
            claims = claims_of(next(row for row in rows if row.jti == jtis[0]), hub_id=self.hub_id)
            if place[0] in _ON_BUS:
                if (present := self._on_bus.get(place)) is None or present.jti not in jtis:
                    continue  # a renewed token that was never used, and so never good on the bus
                claims = self._on_bus.pop(place)
            if self._broker_logins is not None:
                await self._broker_logins.revoke(Principal.of(claims), Revocation(tokens=jtis, before=now()))

    async def end_expired(self) -> None:
        """Remove the logins whose token has expired: not every broker looks at the clock.

        Raises:
            LinkError: If the broker refuses that; it is asked again.
        """
        past = {place: claims for place, claims in self._on_bus.items() if claims.exp <= time.time()}
        if not past:
            return
        async with self.acts:
            # Another process of this hub may have renewed one.
            await self.load()
            for place, claims in past.items():
                if place not in self._on_bus and self._broker_logins is not None:
                    told = Revocation(tokens=[claims.jti], before=now())
                    await self._broker_logins.revoke(Principal.of(claims), told)

    async def forget_expired(self) -> None:
        """Delete the rows of tokens that expired long ago.

        Raises:
            StorageError: If the database cannot be used.
        """
        old = delete(TokenRow).where(col(TokenRow.expires_at) < now() - _REMEMBERED)
        await self._store.write(lambda session: session.exec(old))

    async def announce(self, rows: Iterable[TokenRow]) -> None:
        """Note which tokens are revoked now, and call all listeners."""
        revoked = {row.jti: row for row in rows}
        if revoked:
            self._rows |= revoked
            await self._tell(Revocation(tokens=list(revoked), before=now()))

    async def _tell(self, revocation: Revocation) -> None:
        for listener in tuple(self._listeners):
            await listener(revocation)

    def bus_logins(self) -> Sequence[BusLogin]:
        """Return all logins of the bus, each with its token, which is signed again."""
        present = time.time()
        return [self._login(claims) for claims in self._on_bus.values() if claims.exp > present]

    def unexpired_revocations(self) -> Revocation:
        """Return the revocations that a broker without a memory needs."""
        present = now()
        self._rows = {jti: row for jti, row in self._rows.items() if row.expires_at > present}
        return Revocation(tokens=sorted(filter(self.is_revoked, self._rows)), before=present)

    def _login(self, claims: Claims) -> BusLogin:
        token = SecretStr(self.sign(claims.model_copy(update={"aud": "mqtt"})))
        return BusLogin(Principal.of(claims), token, claims.exp)

    def _refuse_revoked(self, claims: Claims) -> None:
        if self.is_revoked(claims.jti):
            raise tokens.revoked(claims)


def no_token() -> NotFound:
    return NotFound("there is no such token", hint="'strawberry tokens list' lists them.")


def _is_on_bus(row: TokenRow) -> bool:
    is_effective = row.replaces is None or row.used_at is not None
    return row.revoked_at is None and row.kind in _ON_BUS and is_effective


def _counts_use(row: TokenRow) -> bool:
    # The first use replaces another token, or shows that a device joined.
    return row.replaces is not None or row.kind == "device"
