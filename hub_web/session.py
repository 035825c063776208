"""Who is logged in: a session is a token of its person, which the browser keeps in a cookie."""

import time
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from contracts.errors import NotFound, Unauthorized
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.bearer import SESSION_COOKIE
from hub_registry.access.tokens import TokenAuthority


@dataclass(frozen=True)
class WebSession:
    """A login.

    Attributes:
        id: ``jti`` of its token.
        scopes: What the token is good for.
        expires_at: Unix time.
    """

    id: str
    token: str
    user: User
    scopes: frozenset[str]
    expires_at: float

    @property
    def is_admin(self) -> bool:
        """Return whether it may change what only an admin may."""
        return self.user.role == "admin" and "admin" in self.scopes


class Sessions:
    """Reads the session of a request or a socket."""

    def __init__(self, authority: TokenAuthority, accounts: Accounts) -> None:
        self._authority = authority
        self._accounts = accounts

    async def of(self, connection: HTTPConnection) -> WebSession | None:
        """Return the session; None where there is no valid one."""
        token = connection.cookies.get(SESSION_COOKIE)
        if not token:
            return None
        try:
            claims = await self._authority.authenticate(token)
            if claims.kind != "user":
                return None
            user = await self._accounts.get(claims.own)
        except (Unauthorized, NotFound):
            return None
        return WebSession(claims.jti, token, user, frozenset(claims.scopes), claims.exp)

    def is_good(self, session: WebSession) -> bool:
        """Return whether a session has neither expired nor ended."""
        return session.expires_at > time.time() and not self._authority.is_revoked(session.id)
