"""The hub's own identity, and the people who use it."""

import secrets
from dataclasses import dataclass
from typing import Final, cast

from sqlmodel import Session, col, select

from contracts.errors import Conflict, NotFound
from contracts.names import device_key
from hub_registry.storage.store import Store
from hub_registry.storage.tables import HubRow, Role, UserRow, now

ADMIN_ID: Final = "admin"
"""The first user, made at the first start, who approves devices and adds others."""


@dataclass(frozen=True)
class User:
    """A person.

    Attributes:
        language: BCP 47, or None where the household's applies.
        time_zone: IANA name, or None where the household's applies.
    """

    id: str
    display_name: str
    role: Role
    language: str | None = None
    time_zone: str | None = None

    @property
    def read_only(self) -> bool:
        """Whether this user may call ``read_only`` methods only."""
        return self.role == "guest"


class Accounts:
    """The users of one hub."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Users are added and never changed, so one that was read once need not be read again.
        self._known: dict[str, User] = {}

    async def hub_id(self) -> str:
        """Return the id of this hub, which is made at the first start and never changes."""
        return await self._store.write(_hub_id)

    async def first_admin(self) -> User:
        """Return the first user, who is made at the first start."""

        def work(session: Session) -> User:
            row = session.get(UserRow, ADMIN_ID)
            if row is None:
                row = UserRow(id=ADMIN_ID, display_name="Admin", role="admin", created_at=now())
                session.add(row)
            return _user(row)

        return await self._store.write(work)

    async def add(
        self, display_name: str, *, role: Role, language: str | None = None, time_zone: str | None = None
    ) -> User:
        """Add a user.

        Raises:
            Conflict: If the name is taken.
        """

        def work(session: Session) -> User:
            rows = session.exec(select(UserRow)).all()
            if any(row.display_name.casefold() == display_name.casefold() for row in rows):
                raise Conflict(
                    f"there is a user called {display_name!r} already", hint="Choose another name."
                )
            row = UserRow(
                id=device_key(display_name, {row.id for row in rows}),
                display_name=display_name,
                role=role,
                language=language,
                time_zone=time_zone,
                created_at=now(),
            )
            session.add(row)
            return _user(row)

        return await self._store.write(work)

    async def users(self) -> list[User]:
        """List all users, the oldest first."""

        def work(session: Session) -> list[User]:
            return [_user(row) for row in session.exec(select(UserRow).order_by(col(UserRow.created_at)))]

        return await self._store.read(work)

    async def get(self, user: str) -> User:
        """Return the user with this id.

        Raises:
            NotFound: If there is none.
        """
        known = self._known.get(user)
        if known is None:
            known = await self._store.read(lambda session: _user(require_user(session, user)))
            self._known[user] = known
        return known


def require_user(session: Session, user: str) -> UserRow:
    """Return the row of a user.

    Raises:
        NotFound: If there is none.
    """
    row = session.get(UserRow, user)
    if row is None:
        raise NotFound(f"there is no user {user!r}")
    return row


def _hub_id(session: Session) -> str:
    row = session.exec(select(HubRow)).first()
    if row is None:
        row = HubRow(id=f"hub-{secrets.token_hex(8)}", created_at=now())
        session.add(row)
    return row.id


def _user(row: UserRow) -> User:
    return User(row.id, row.display_name, cast("Role", row.role), row.language, row.time_zone)
