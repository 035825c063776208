"""The hub's own identity, and the people who use it."""

import re
import secrets
import unicodedata
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, cast, get_args

from sqlmodel import Session, col, select

from contracts.errors import ConfigError, Conflict, Forbidden, InvalidMessage
from contracts.names import device_key
from contracts.validation import Language, TimeZone
from contracts.wire import Strict
from hub_registry import limits
from hub_registry.storage.queries import client_names, no_user, require_user
from hub_registry.storage.store import Store
from hub_registry.storage.tables import HubRow, Role, UserRow, now

ADMIN_ID: Final = "admin"
"""The first user, made at the first start, for whom the command line of the hub's machine acts: always an
admin, and never removed, so that a home is never without one."""
OwnLanguage = Language | Literal[""] | None
OwnTimeZone = TimeZone | Literal[""] | None
"""Of a person; an empty text stands for the household's."""
_UNSEEN: Final = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]")
"""Letters and marks that are printable, and show nothing."""
_TOGETHER: Final = frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
_LOOKS: Final = str.maketrans(
    "АВЕЅІЈКМНОРСТУХЗаеѕіјкорсухһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορυI10",
    "ABESIJKMHOPCTYX3aesijkopcyxhdqwABEZHIKMNOPTYXaikvopullO",
)
"""After Unicode's technical standard 39, for the scripts of European keyboards."""


@dataclass(frozen=True)
class User:
    """A person.

    Attributes:
        language: BCP 47, or None where the household's applies.
        time_zone: IANA name, or None where the household's applies.
        has_password: Whether they can log in.
    """

    id: str
    display_name: str
    role: Role
    language: str | None = None
    time_zone: str | None = None
    has_password: bool = False

    @property
    def read_only(self) -> bool:
        return self.role == "guest"

    def require_writer(self, why: str = "") -> None:
        """Check that this user may modify something.

        Raises:
            Forbidden: If they have read-only access.
        """
        if self.read_only:
            raise Forbidden(
                "{user} has read-only access{why}",
                user=self.display_name,
                why=why,
                hint="Ask a user with full access.",
            )


class UserChange(Strict):
    """What to change about a person; what is left out or None stays, an empty text clears it."""

    name: str | None = None
    role: Role | None = None
    language: OwnLanguage = None
    time_zone: OwnTimeZone = None


class Accounts:
    """The people of one home."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Every request asks for one.
        self._known: dict[str, User] = {}

    async def hub_id(self, *, key: str = "") -> str:
        """Return the id of the hub; made at the first start, it never changes.

        Args:
            key: Fingerprint of the hub's key, which the database has from then on.

        Raises:
            ConfigError: If it has another one.
        """
        return await self._store.write(partial(_hub_id, key))

    async def first_admin(self) -> User:
        """Return the first user, who is made at the first start."""

        def work(session: Session) -> User:
            row = session.get(UserRow, ADMIN_ID)
            if row is None:
                row = UserRow(id=ADMIN_ID, display_name="Admin", role="admin", created_at=now())
                session.add(row)
            return user_of(row)

        return await self._store.write(work)

    async def add(
        self, display_name: str, *, role: Role, language: str | None = None, time_zone: str | None = None
    ) -> User:
        """Add a person, who cannot log in yet.

        Raises:
            InvalidMessage: If that is no name.
            Conflict: If the name is taken.
        """

        def work(session: Session) -> User:
            name = _free_name(session, display_name)
            # Ids of people who were removed are never given out again; logins of the bus have theirs.
            taken = set(session.exec(select(UserRow.id)).all()) | client_names(session)
            row = UserRow(
                id=device_key(name, taken, otherwise="person"),
                display_name=name,
                role=role,
                language=language or None,
                time_zone=time_zone or None,
                created_at=now(),
            )
            session.add(row)
            return user_of(row)

        return await self._store.write(work)

    async def change(self, user: str, change: UserChange) -> User:
        """Change what is stored about a person.

        Raises:
            NotFound: If there is no such person.
            InvalidMessage: If that is no name.
            Conflict: If the name is taken, or the first admin would be one no longer.
        """

        def work(session: Session) -> User:
            row = require_user(session, user)
            if change.role is not None and change.role != row.role:
                require_not_first(user)
                row.role = change.role
            if change.name is not None:
                rename_row(session, row, change.name)
            if change.language is not None:
                row.language = change.language or None
            if change.time_zone is not None:
                row.time_zone = change.time_zone or None
            return user_of(row)

        changed = await self._store.write(work)
        self.forget()
        return changed

    async def follow(self) -> None:
        self.forget()

    def forget(self) -> None:
        # Another one, for what is being read just now is of before.
        self._known = {}

    async def users(self) -> list[User]:
        return await self._store.read(lambda session: [user_of(row) for row in _present(session)])

    async def get(self, user: str) -> User:
        """Return the person with this id.

        Raises:
            NotFound: If there is none.
        """
        known = self._known
        if user not in known:
            known[user] = await self._store.read(lambda session: user_of(require_user(session, user)))
        return known[user]

    async def find(self, name: str, *, or_removed: bool = False) -> User:
        """Return the person with this id or name.

        Args:
            or_removed: Find a removed user by their id, too.

        Raises:
            NotFound: If there is none.
        """

        def work(session: Session) -> User:
            row = find_row(session, name) or (session.get(UserRow, name) if or_removed else None)
            if row is None:
                raise no_user(name)
            return user_of(row)

        return await self._store.read(work)


def find_row(session: Session, name: str) -> UserRow | None:
    """Return the row of the person with this id or name, None where there is none."""
    wanted = _folded(name)
    rows = _present(session)
    named = (row for row in rows if _folded(row.display_name) == wanted)
    return next(named, None) or next((row for row in rows if row.id == wanted), None)


def require_not_first(user: str) -> None:
    """Require that a person is not the first admin.

    Raises:
        Conflict: If they are.
    """
    if user == ADMIN_ID:
        raise Conflict(
            "the first admin stays an admin: the command line of the hub's machine acts for them",
            hint="Make another user an admin as well, or rename this one.",
        )


def user_of(row: UserRow) -> User:
    """Return the person that a row is about."""
    return User(
        id=row.id,
        display_name=row.display_name,
        # Whom an altered row is about may do least.
        role=cast("Role", row.role) if row.role in get_args(Role) else "guest",
        language=row.language,
        time_zone=row.time_zone,
        has_password=row.password is not None,
    )


def rename_row(session: Session, row: UserRow, name: str) -> None:
    """Call a person something else.

    Raises:
        InvalidMessage: If that is no name.
        Conflict: If the name is taken.
    """
    row.display_name = _free_name(session, name, but=row.id)


def _free_name(session: Session, name: str, *, but: str = "") -> str:
    name = unicodedata.normalize("NFC", name.strip())
    if (
        not name
        or len(name) > limits.MAX_ACCOUNT_NAME
        or not name.isprintable()
        or _UNSEEN.search(name)
        or _is_mixed(name)
    ):
        raise InvalidMessage(
            "a person cannot be called {name!r}",
            name=name[:20],
            most=limits.MAX_ACCOUNT_NAME,
            hint="A name is one line of up to {most} letters, all of one script.",
        )
    # Nor may a name be the id of another: both log in. Of two that look alike, people take one for the other.
    for row in _present(session):
        others = (row.display_name, row.id)
        if row.id != but and any(
            same(name) == same(each) for same in (_folded, _skeleton) for each in others
        ):
            raise Conflict("there is a user called {name!r} already", name=name, hint="Choose another name.")
    return name


def _folded(name: str) -> str:
    # As typed at a login with any keyboard.
    return unicodedata.normalize("NFKC", name.strip()).casefold()


def _skeleton(name: str) -> str:
    # Letters of other scripts become the Latin ones that they resemble.
    return unicodedata.normalize("NFKC", name).translate(_LOOKS).casefold()


def _is_mixed(name: str) -> bool:
    """Return whether a name has letters of scripts that are not written together."""
    letters = (each for each in unicodedata.normalize("NFKC", name) if each.isalpha())
    scripts = {unicodedata.name(letter, "OTHER").split()[0] for letter in letters if _is_plain(letter)}
    return len(scripts) > 1 and not scripts <= _TOGETHER


def _is_plain(letter: str) -> bool:
    return unicodedata.category(letter) != "Lm"  # modifiers are of several scripts


def _present(session: Session) -> list[UserRow]:
    wanted = select(UserRow).where(col(UserRow.removed_at).is_(None)).order_by(col(UserRow.created_at))
    return list(session.exec(wanted))


def _hub_id(key: str, session: Session) -> str:
    row = session.exec(select(HubRow)).first()
    if row is None:
        row = HubRow(id=f"hub-{secrets.token_hex(8)}", created_at=now())
    if key and row.key not in ("", key):
        raise ConfigError(
            "the key here ({key}) is not that of the hub whose database this is ({known})",
            key=key,
            known=row.key,
            hint="Copy hub/key.pem from that hub's machine or its backup, or name another database.",
        )
    row.key = row.key or key
    session.add(row)
    return row.id
