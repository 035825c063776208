"""Issuing, checking, renewing and revoking tokens: one act for the database, the broker and HTTP."""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import Session, col, select

from broker import tokens
from broker.keys import KeyPair, PublicKey
from contracts.claims import SCOPES, Claims, PrincipalKind, Scope
from contracts.errors import NotFound, Unauthorized
from contracts.presence import Revocation
from hub_registry.store import Store
from hub_registry.tables import TokenRow, now

OnRevoked = Callable[[Revocation], Awaitable[None]]
"""Told of every revocation: the broker's side publishes it, the HTTP side closes streams."""


@dataclass(frozen=True)
class TokenRequest:
    """What a token shall be good for.

    Attributes:
        subject: Device id, user id or client name.
        owner: Id of the user it belongs to.
        key: The key the bearer has bound (devices).
        name: What a person calls it.
    """

    kind: PrincipalKind
    subject: str
    owner: str
    scopes: Iterable[Scope]
    lifetime_s: int
    key: PublicKey | None = None
    name: str = ""


@dataclass(frozen=True)
class IssuedToken:
    """A token as the list of tokens shows it: everything but the token itself."""

    jti: str
    kind: str
    subject: str
    owner: str
    name: str
    scope: str
    issued_at: datetime
    expires_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None


class TokenAuthority:
    """Issues the tokens of one hub and decides which are still good."""

    def __init__(self, store: Store, *, hub_id: str, key: KeyPair) -> None:
        self.hub_id = hub_id
        self.key = key
        self._store = store
        self._revoked: dict[str, int] = {}
        self._renewals: dict[str, str] = {}
        self._listeners: list[OnRevoked] = []

    async def load(self) -> None:
        """Read which tokens are revoked, and which renewals have not been used yet."""

        def work(session: Session) -> list[TokenRow]:
            return list(session.exec(select(TokenRow).where(col(TokenRow.expires_at) > now())))

        rows = await self._store.read(work)
        self._revoked = {row.jti: int(row.expires_at.timestamp()) for row in rows if row.revoked_at}
        self._renewals = {row.jti: row.replaces for row in rows if row.replaces and row.used_at is None}

    def on_revoked(self, listener: OnRevoked) -> Callable[[], None]:
        """Have a listener told of each revocation; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def issue(self, request: TokenRequest) -> str:
        """Issue a token."""
        claims, row = self.prepare(request)
        await self._store.write(lambda session: session.add(row))
        return self.hand_out(claims, row)

    def prepare(self, request: TokenRequest, *, replaces: str | None = None) -> tuple[Claims, TokenRow]:
        """Make the claims and the row of a token, to be stored along with something else."""
        claims = tokens.make_claims(
            hub_id=self.hub_id,
            subject=request.subject,
            kind=request.kind,
            owner=request.owner,
            scopes=request.scopes,
            lifetime_s=request.lifetime_s,
            key=request.key,
        )
        row = TokenRow(
            jti=claims.jti,
            kind=claims.kind,
            subject=claims.sub,
            owner=claims.own,
            name=request.name,
            scope=claims.scope,
            issued_at=datetime.fromtimestamp(claims.iat, UTC),
            expires_at=datetime.fromtimestamp(claims.exp, UTC),
            replaces=replaces,
        )
        return claims, row

    def hand_out(self, claims: Claims, row: TokenRow) -> str:
        """Sign a token whose row has been stored."""
        if row.replaces:
            self._renewals[claims.jti] = row.replaces
        return tokens.issue(self.key, claims)

    async def renew(self, claims: Claims, *, lifetime_s: int) -> str:
        """Issue a token like this one. The old one stays good until the new one was used once.

        So an answer that is lost on its way locks nobody out.
        """

        def work(session: Session) -> TokenRow | None:
            return session.get(TokenRow, claims.jti)

        old = await self._store.read(work)
        claimed, row = self.prepare(
            TokenRequest(
                kind=claims.kind,
                subject=claims.sub,
                owner=claims.own,
                # The order of the table, so that two tokens with the same rights read the same.
                scopes=[scope for scope in SCOPES if scope in claims.scopes],
                lifetime_s=lifetime_s,
                name=old.name if old else "",
            ),
            replaces=claims.jti,
        )
        claimed = claimed.model_copy(update={"cnf": claims.cnf})
        await self._store.write(lambda session: session.add(row))
        return self.hand_out(claimed, row)

    def check(self, token: str) -> Claims:
        """Give the claims of a good token.

        Raises:
            Unauthorized: With the reason.
        """
        return tokens.verify(
            token,
            key=self.key.public,
            hub_id=self.hub_id,
            is_revoked=lambda claims: claims.jti in self._revoked,
        )

    async def authenticate(self, token: str) -> Claims:
        """Check a token that came over HTTP; the first use of a renewed one ends its predecessor.

        Raises:
            Unauthorized: With the reason.
        """
        claims = self.check(token)
        predecessor = self._renewals.pop(claims.jti, None)
        if predecessor is not None:
            await self._store.write(lambda session: _mark_used(session, claims.jti))
            await self.revoke([predecessor])
        return claims

    async def list(self) -> list[IssuedToken]:
        """List the tokens that are good or were revoked, the newest first."""

        def work(session: Session) -> list[IssuedToken]:
            rows = session.exec(select(TokenRow).order_by(col(TokenRow.issued_at).desc()))
            return [IssuedToken(**row.model_dump(exclude={"replaces"})) for row in rows]

        return await self._store.read(work)

    async def revoke(self, jtis: Iterable[str]) -> None:
        """Revoke single tokens: they are refused from now on, and who uses one is disconnected.

        Raises:
            NotFound: If one was never issued.
        """
        wanted = list(jtis)

        def work(session: Session) -> list[TokenRow]:
            rows = [session.get(TokenRow, jti) for jti in wanted]
            if None in rows:
                raise NotFound("there is no such token", hint="'strawberry tokens list' shows all.")
            found = [row for row in rows if row is not None]
            for row in found:
                row.revoked_at = row.revoked_at or now()
            return found

        await self.announce(await self._store.write(work))

    async def revoke_subject(self, kind: PrincipalKind, subject: str) -> None:
        """Revoke every token of a device, user or client."""

        def work(session: Session) -> list[TokenRow]:
            return revoke_rows(session, kind, subject)

        await self.announce(await self._store.write(work))

    async def announce(self, rows: Iterable[TokenRow]) -> None:
        """Make known, here and to all listeners, which tokens the database now says are revoked."""
        revoked = {row.jti: int(row.expires_at.timestamp()) for row in rows}
        if not revoked:
            return
        self._revoked.update(revoked)
        for jti in revoked:
            self._renewals.pop(jti, None)
        revocation = Revocation(tokens=list(revoked), before=now())
        for listener in tuple(self._listeners):
            await listener(revocation)

    def unexpired_revocations(self) -> Revocation:
        """Give all that a broker which has forgotten everything must be told."""
        present = time.time()
        self._revoked = {jti: expires for jti, expires in self._revoked.items() if expires > present}
        return Revocation(tokens=sorted(self._revoked), before=now())


def revoke_rows(session: Session, kind: PrincipalKind, subject: str) -> list[TokenRow]:
    """Mark every good token of a subject as revoked, within a transaction, and give those rows."""
    rows = session.exec(
        select(TokenRow).where(
            TokenRow.kind == kind,
            TokenRow.subject == subject,
            col(TokenRow.revoked_at).is_(None),
        )
    ).all()
    for row in rows:
        row.revoked_at = now()
    return list(rows)


def _mark_used(session: Session, jti: str) -> None:
    row = session.get(TokenRow, jti)
    if row is None:
        raise Unauthorized("the token is not one of this hub's")
    row.used_at = now()
