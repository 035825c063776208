"""Tokens as the database keeps them: everything that was signed, and never the token itself."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, text
from sqlmodel import Session, col, select

from contracts.claims import Claims, ClientScope, Confirmation, PrincipalKind, Scope
from contracts.errors import Unauthorized
from hub_registry.storage.tables import TokenRow, now
from identity.keys import PublicKey


@dataclass(frozen=True)
class TokenRequest:
    """What a token shall be good for.

    Attributes:
        subject: Device id, user id or client name.
        owner: Id of the user it belongs to.
        key: The key the bearer has bound (devices).
        name: What a person calls it.
        is_session: Whether it is the session of a browser in which a person logged in.
    """

    kind: PrincipalKind
    subject: str
    owner: str
    scopes: Iterable[Scope | ClientScope]
    lifetime_s: int
    key: PublicKey | None = None
    name: str = ""
    is_session: bool = False


def row_of(claims: Claims, *, name: str, replaces: str | None, is_session: bool = False) -> TokenRow:
    """Make the row of a new token."""
    return TokenRow(
        jti=claims.jti,
        kind=claims.kind,
        subject=claims.sub,
        owner=claims.own,
        name=name,
        audience=claims.aud,
        scope=claims.scope,
        issued_at=datetime.fromtimestamp(claims.iat, UTC),
        expires_at=claims.expires_at,
        replaces=replaces,
        key_id=claims.cnf.jkt if claims.cnf else None,
        is_session=is_session,
    )


def claims_of(row: TokenRow, *, hub_id: str) -> Claims:
    """Return the claims that a row was made of; signed again they are the same token, byte for byte."""
    return Claims.model_validate(
        {
            "iss": hub_id,
            "sub": row.subject,
            "kind": row.kind,
            "own": row.owner,
            "aud": row.audience,
            "scope": row.scope,
            "iat": int(row.issued_at.timestamp()),
            "exp": int(row.expires_at.timestamp()),
            "jti": row.jti,
            "cnf": Confirmation(jkt=row.key_id) if row.key_id else None,
        }
    )


def unexpired(session: Session) -> list[TokenRow]:
    """List the tokens that have not expired, revoked or not, the oldest first."""
    wanted = select(TokenRow).where(col(TokenRow.expires_at) > now())
    return list(session.exec(wanted.order_by(col(TokenRow.issued_at))))


def good_of(session: Session, user: str) -> list[TokenRow]:
    """List the good tokens of a person's programs and sessions, the newest first."""
    wanted = select(TokenRow).where(
        TokenRow.kind == "user",
        TokenRow.owner == user,
        col(TokenRow.revoked_at).is_(None),
        col(TokenRow.expires_at) > now(),
    )
    # Many may be of one second; SQLite counts its rows.
    return list(session.exec(wanted.order_by(col(TokenRow.issued_at).desc(), text("rowid DESC"))))


def revoke_rows(session: Session, kind: PrincipalKind, subject: str) -> list[TokenRow]:
    return _revoke(session, TokenRow.kind == kind, TokenRow.subject == subject)


def revoke_owned(session: Session, owner: str, which: Callable[[TokenRow], bool]) -> list[TokenRow]:
    return _revoke(session, TokenRow.owner == owner, which=which)


def revoke_with_renewals(session: Session, jtis: Iterable[str]) -> list[TokenRow]:
    """Mark tokens as revoked together with what renews them: it was given to the same bearer."""
    wanted = set(jtis)
    return _revoke(session, col(TokenRow.jti).in_(wanted) | _renews(wanted))


def end_replaced(session: Session, used: str) -> list[TokenRow]:
    """Mark a token as used, and as revoked what it replaces with all else that was to replace it."""
    row = session.get(TokenRow, used)
    if row is None:
        raise Unauthorized("the token is not one of this hub's")
    row.used_at = row.used_at or now()
    if row.replaces is None:
        return []
    replaced = (col(TokenRow.jti) == row.replaces) | _renews({row.replaces})
    return _revoke(session, replaced, col(TokenRow.jti) != used)


def _renews(jtis: set[str]) -> ColumnElement[bool]:
    return col(TokenRow.replaces).in_(jtis) & col(TokenRow.used_at).is_(None)


def _revoke(
    session: Session,
    *conditions: ColumnElement[bool] | bool,
    which: Callable[[TokenRow], bool] = lambda _: True,
) -> list[TokenRow]:
    good = session.exec(select(TokenRow).where(*conditions, col(TokenRow.revoked_at).is_(None)))
    found = list(filter(which, good))
    for row in found:
        row.revoked_at = now()
    return found
