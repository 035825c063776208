"""Who makes an HTTP request: the bearer of a token, and what it may do."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request

from contracts.claims import Claims, Scope
from contracts.errors import Forbidden, NotFound, Unauthorized
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.tokens import TokenAuthority

_SCHEME = "bearer"


@dataclass(frozen=True)
class Bearer:
    """Somebody with a good token.

    Attributes:
        user: The owner of the token, on whose behalf it acts.
    """

    claims: Claims
    user: User

    @property
    def device(self) -> str | None:
        """Id of the device that asks, where a device does."""
        return self.claims.sub if self.claims.kind == "device" else None


class Gate:
    """Lets requests with a good token in."""

    def __init__(self, authority: TokenAuthority, accounts: Accounts) -> None:
        self._authority = authority
        self._accounts = accounts

    async def bearer(self, request: Request) -> Bearer:
        """Give who makes the request.

        Raises:
            Unauthorized: If there is no good token.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != _SCHEME or not token.strip():
            raise Unauthorized("the request carries no token", hint="Send 'Authorization: Bearer TOKEN'.")
        claims = await self._authority.authenticate(token.strip())
        try:
            return Bearer(claims, await self._accounts.get(claims.own))
        except NotFound:
            raise Unauthorized("the user of this token no longer exists") from None

    def require(self, *scopes: Scope) -> Callable[[Request], Awaitable[Bearer]]:
        """Make a dependency that lets in whoever has one of the scopes."""

        async def dependency(request: Request) -> Bearer:
            bearer = await self.bearer(request)
            _require_scope(bearer, *scopes)
            return bearer

        return dependency

    async def require_admin(self, request: Request) -> Bearer:
        """Let in an admin in person, as a dependency.

        A program that was given only some scopes of an admin's, and a device of an admin's, is none.

        Raises:
            Forbidden: If it is anybody else.
        """
        bearer = await self.bearer(request)
        if bearer.claims.kind != "user" or bearer.user.role != "admin":
            raise Forbidden("only an admin may do that")
        _require_scope(bearer, "register")
        return bearer


def _require_scope(bearer: Bearer, *scopes: Scope) -> None:
    if bearer.claims.scopes.isdisjoint(scopes):
        raise Forbidden(
            f"the token lacks the scope {' or '.join(map(repr, scopes))}",
            hint=f"'strawberry tokens add NAME --scope {scopes[0]}' makes one that has it.",
        )
