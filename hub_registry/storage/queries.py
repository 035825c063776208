"""Rows that more than one part of the registry asks for: people, and clients of the bus."""

from sqlmodel import Session, col, select

from contracts.errors import NotFound
from hub_registry.storage.tables import TokenRow, UserRow, now


def require_user(session: Session, user: str) -> UserRow:
    """Return the row of a person.

    Raises:
        NotFound: If there is none, or the person was removed.
    """
    row = session.get(UserRow, user)
    if row is None or row.removed_at is not None:
        raise no_user(user)
    return row


def no_user(name: str) -> NotFound:
    """Return the error for a name that is of no user."""
    return NotFound(
        "there is no user {name!r}", name=name[:64], hint="'strawberry users list' shows all of them."
    )


def good_clients(session: Session) -> list[TokenRow]:
    """List the tokens of those that may log in on the bus without being devices, by name."""
    wanted = select(TokenRow).where(
        TokenRow.kind == "client", col(TokenRow.revoked_at).is_(None), col(TokenRow.expires_at) > now()
    )
    return list(session.exec(wanted.order_by(col(TokenRow.subject))))


def client_names(session: Session) -> set[str]:
    return {row.subject for row in good_clients(session)}
