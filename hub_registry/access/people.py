"""People who log in: passwords, the one-time codes with which they are chosen, and sessions of browsers."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Final

from pydantic import SecretStr
from sqlmodel import Session, col, delete, select

from contracts.claims import Claims, Scope
from contracts.errors import Conflict, Forbidden, TooManyRequests, Unauthorized
from contracts.rates import TokenBuckets
from hub_registry import limits
from hub_registry.access.accounts import (
    Accounts,
    User,
    UserChange,
    find_row,
    rename_row,
    require_not_first,
    user_of,
)
from hub_registry.access.codes import digest_of, new_code
from hub_registry.access.token_rows import TokenRequest
from hub_registry.access.tokens import TokenAuthority
from hub_registry.devices.devices import Device, device_of
from hub_registry.storage.queries import require_user
from hub_registry.storage.store import Store
from hub_registry.storage.tables import (
    DeviceRow,
    HomeLayoutRow,
    PasswordCodeRow,
    Role,
    TokenRow,
    UserRow,
    now,
)
from identity.logins.passwords import Passwords

_log = logging.getLogger(__name__)

OnRemoved = Callable[[str, str], Awaitable[None]]
"""Called with the id of a person who was removed, and of the admin who has what stays of theirs."""

_PERSON: Final[tuple[Scope, ...]] = ("chat", "call", "confirm")
_SCOPES: Final[Mapping[Role, tuple[Scope, ...]]] = MappingProxyType(
    {"admin": (*_PERSON, "admin", "metrics"), "member": _PERSON, "guest": _PERSON}
)
"""What a session may do; a guest then calls ``read_only`` methods only."""
_LATER: Final = "Wait a minute. 'strawberry users code NAME' lets a person choose a new password."


@dataclass(frozen=True)
class PasswordCode:
    """A right to choose a password once.

    Attributes:
        code: To be given to the person; it is stored nowhere.
    """

    user: User
    code: str = field(repr=False)
    expires_at: datetime


@dataclass(eq=False)
class People:
    """Logs people in and out, and removes them.

    Attributes:
        on_handed: Called with each device that has another owner.
    """

    store: Store
    accounts: Accounts
    authority: TokenAuthority
    _: KW_ONLY
    on_handed: Callable[[Device], object]

    def __post_init__(self) -> None:
        self._passwords = Passwords()
        most = limits.LOGIN_FAILURES
        self._sources = TokenBuckets(burst=most, per_second=most / 60)
        self._names = TokenBuckets(burst=most, per_second=1 / 60)
        self._logins = TokenBuckets(burst=limits.LOGINS, per_second=limits.LOGINS / limits.DAY_S)
        self._listeners: list[OnRemoved] = []

    def on_removed(self, listener: OnRemoved) -> Callable[[], None]:
        """Call a listener with each person who was removed; return the function that stops that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def needs_setup(self) -> bool:
        """Return whether no admin can log in yet."""
        with_password = select(UserRow.id).where(
            UserRow.role == "admin", col(UserRow.password).is_not(None), col(UserRow.removed_at).is_(None)
        )
        return await self.store.read(lambda session: session.exec(with_password).first() is None)

    async def make_code(self, user: str) -> PasswordCode:
        """Make the code with which a person chooses a password; an earlier one ends with that.

        Raises:
            NotFound: If there is no such person.
        """
        code = new_code()
        expires_at = now() + timedelta(seconds=limits.PASSWORD_CODE_S)

        def work(session: Session) -> User:
            row = require_user(session, user)
            session.merge(PasswordCodeRow(user=row.id, digest=digest_of(code), expires_at=expires_at))
            return user_of(row)

        return PasswordCode(await self.store.write(work), code, expires_at)

    async def set_up(
        self,
        code: str,
        password: SecretStr,
        *,
        name: str | None = None,
        language: str | None = None,
        source: str = "",
    ) -> User:
        """Set the password of the person whom a code is for, and end their sessions.

        Args:
            name: What the person wants to be called; None leaves it.
            language: Likewise.
            source: Where the request comes from, for limiting guesses.

        Raises:
            Unauthorized: If the code is wrong, used or expired.
            TooManyRequests: If it is, as too many of this source were before.
            InvalidMessage: If that is no name; the code stays good, as it does if the name is taken.
            Conflict: If the name is taken.
        """
        digest = digest_of(code)
        try:
            await self.store.read(lambda session: _of_code(session, digest))
            hashed = await self._passwords.hash(password)

            def work(session: Session) -> User:
                found, row = _of_code(session, digest)
                if name is not None:
                    rename_row(session, row, name)
                row.language = language or row.language
                row.password = hashed
                session.delete(found)
                return user_of(row)

            user = await self.store.write(work)
            self.accounts.forget()
        except Unauthorized:
            # 79 bits cannot be guessed. A right code is never refused for the wrong ones of its neighbours.
            if not self._sources.take(source):
                raise _too_many("codes") from None
            raise
        await self.end_sessions(user.id)
        return user

    async def log_in(self, name: str, password: SecretStr, *, source: str = "") -> User:
        """Return the person with this name, or id, and password.

        Args:
            source: Where the request comes from, for limiting guesses.

        Raises:
            Unauthorized: If there is none; the answer comes as late for an unknown name as for a known one.
            TooManyRequests: If there were too many wrong ones, from this source or for this name.
        """
        row = await self.store.read(lambda session: find_row(session, name))
        await self._check(row, password, source=source, name=row.id if row else name.strip().casefold())
        assert row is not None
        return await self.accounts.get(row.id)

    async def change_password(self, user: str, old: SecretStr, new: SecretStr, *, source: str = "") -> None:
        """Change the password of a person and end all their sessions.

        Raises:
            Unauthorized: If the old one is wrong.
            TooManyRequests: If it was too often.
        """
        row = await self.store.read(lambda session: require_user(session, user))
        await self._check(row, old, source=source, name=user)
        hashed = await self._passwords.hash(new)

        def work(session: Session) -> None:
            require_user(session, user).password = hashed

        await self.store.write(work)
        await self.end_sessions(user)

    async def confirm(self, claims: Claims, password: SecretStr, *, source: str = "") -> None:
        """Check the password of a session's person again; see `TokenAuthority.require_password`.

        Raises:
            Forbidden: If it is wrong; the session goes on.
            TooManyRequests: If it was too often.
        """
        row = await self.store.read(lambda session: require_user(session, claims.own))
        try:
            await self._check(row, password, source=source, name=claims.own)
        except Unauthorized:
            raise Forbidden(
                "the password is wrong", hint="Type the password of your account again."
            ) from None
        self.authority.confirm(claims.jti)

    async def _check(self, row: UserRow | None, password: SecretStr, *, source: str, name: str) -> None:
        limits = (self._sources.of(source), self._names.of(name))
        # Taken before the password is looked at: many that come at once must not all be let pass.
        if not all(limit.take() for limit in limits):
            raise _too_many("passwords")
        matches = await self._passwords.matches(password, row.password if row else None)
        # A client with the old one must not have waited here while it was changed; after all that is written.
        if not (matches and row and row.password == await self.store.write(partial(_password_of, row.id))):
            # What was typed as a name may be a password.
            _log.warning("a wrong password for %s from %s", row.id if row else "an unknown name", source)
            raise Unauthorized("the name or the password is wrong")
        for limit in limits:
            limit.charge(-1)
        if not self._logins.take(name):
            raise TooManyRequests(
                "this person has logged in too often today", hint="Use a session that is open."
            )

    async def open_session(self, user: User, *, name: str) -> str:
        """Issue the token of a session; where the person has too many, the oldest ends.

        Args:
            name: Of the browser, by which a person recognises it.
        """
        token = await self.authority.issue(
            TokenRequest(
                kind="user",
                subject=user.id,
                owner=user.id,
                scopes=_SCOPES[user.role],
                lifetime_s=limits.SESSION_S,
                name=name,
                is_session=True,
            )
        )
        self.authority.confirm(self.authority.check(token).jti)
        sessions = [row for row in await self.authority.good_of(user.id) if row.is_session]
        await self.authority.revoke(row.jti for row in sessions[limits.MOST_SESSIONS :])
        return token

    async def end_session(self, claims: Claims) -> None:
        """Log out: revoke the token of a session, which ends its streams.

        Raises:
            Conflict: If it is the token of a program.
        """
        if not (await self.authority.get(claims.jti)).is_session:
            raise Conflict(
                "this token is of a program, not of a session",
                hint="'strawberry tokens revoke' ends such a token.",
            )
        await self.authority.revoke([claims.jti])

    async def end_sessions(self, user: str) -> None:
        # Tokens of programs stay.
        await self.authority.revoke_owned(user, lambda row: row.is_session)

    async def change(self, user: str, change: UserChange) -> User:
        """Change what is stored about a person; see ``Accounts.change``.

        With another role their sessions end, and all tokens that an admin has as an admin.
        """
        before = await self.accounts.get(user)
        changed = await self.accounts.change(user, change)
        if changed.role != before.role:
            await self.authority.revoke_owned(user, _is_of_role)
        return changed

    async def remove(self, user: str, *, heir: str) -> None:
        """Remove a person, revoke all their tokens, and hand their devices to an admin.

        The devices must be revoked already. What else there is of the person is deleted by the listeners.

        Args:
            heir: Id of the admin who has the devices from now on.

        Raises:
            NotFound: If there is no such person.
            Conflict: If it is the first admin.
            LinkError: If the broker still accepts a login of theirs; it is asked again.
        """

        def work(session: Session) -> list[Device]:
            row = require_user(session, user)
            require_not_first(user)
            row.removed_at, row.password = now(), None
            session.exec(delete(PasswordCodeRow).where(col(PasswordCodeRow.user) == user))
            session.exec(delete(HomeLayoutRow).where(col(HomeLayoutRow.user) == user))
            devices = session.exec(select(DeviceRow).where(DeviceRow.owner == user)).all()
            for device in devices:
                # Of whom it lets confirm, and of what it declares, its new owner has said nothing yet.
                device.owner, device.may_confirm, device.trusted = heir, False, False
            return [device_of(device) for device in devices]

        devices = await self.store.write(work)
        self.accounts.forget()
        for device in devices:
            self.on_handed(device)
        try:
            # Those of devices are revoked with them; a token may be of the time when another had a device.
            await self.authority.revoke_owned(user, lambda row: row.kind != "device")
            for device in devices:
                await self.authority.follow_device(device.id)
        finally:
            async with AsyncExitStack() as listening:  # which calls each, also where another fails
                for listener in self._listeners:
                    listening.push_async_callback(listener, user, heir)


def _password_of(user: str, session: Session) -> str | None:
    row = session.get(UserRow, user)
    return row.password if row else None


def _is_of_role(row: TokenRow) -> bool:
    return row.is_session or (row.kind == "user" and "admin" in row.scope.split())


def _of_code(session: Session, digest: str) -> tuple[PasswordCodeRow, UserRow]:
    found = session.exec(select(PasswordCodeRow).where(PasswordCodeRow.digest == digest)).first()
    if found is None or found.expires_at <= now():
        raise Unauthorized(
            "the code is wrong, was used, or has expired",
            hint="Ask an admin for a new one. 'strawberry users code NAME' makes a new one.",
        )
    return found, require_user(session, found.user)


def _too_many(what: str) -> TooManyRequests:
    return TooManyRequests("too many wrong {what}", what=what, hint=_LATER, retry_after_s=60)
