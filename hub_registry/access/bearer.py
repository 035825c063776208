"""The bearer of the token of an HTTP request, and what it may do."""

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
    """The bearer of a valid token.

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
    """Authenticates HTTP requests by their token."""

    def __init__(self, authority: TokenAuthority, accounts: Accounts) -> None:
        self._authority = authority
        self._accounts = accounts

    async def bearer(self, request: Request) -> Bearer:
        """Return the bearer of a request.

        Raises:
            Unauthorized: If there is no valid token.
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
        """Return a function that authenticates a request and requires one of the scopes."""

        async def authenticate(request: Request) -> Bearer:
            bearer = await self.bearer(request)
            require_scope(bearer, *scopes)
            return bearer

        return authenticate

    async def require_admin(self, request: Request) -> Bearer:
        """Authenticate a request and require the scope ``admin`` in a token of an admin.

        A device of an admin does not count, whatever its scopes.

        Raises:
            Forbidden: If it is any other token.
        """
        bearer = await self.bearer(request)
        if bearer.claims.kind != "user" or bearer.user.role != "admin":
            raise Forbidden("only an admin may do that")
        require_scope(bearer, "admin")
        return bearer


def require_scope(bearer: Bearer, *scopes: Scope) -> None:
    """Check that a bearer has one of the scopes.

    Raises:
        Forbidden: If it has none.
    """
    if bearer.claims.scopes.isdisjoint(scopes):
        raise Forbidden(
            f"the token lacks the scope {' or '.join(map(repr, scopes))}",
            hint=f"'strawberry tokens add NAME --scope {scopes[0]}' makes one that has it.",
        )
