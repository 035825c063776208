"""The bearer of the token of an HTTP request, and what it may do."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import Request

from contracts.claims import Claims, Scope
from contracts.errors import Forbidden, NotFound, Unauthorized
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.tokens import TokenAuthority
from identity.keys import PublicKey
from identity.proofs import ProofCheck

_PROOF: Final = (
    "Send 'Authorization: DPoP TOKEN' and a proof in the header 'DPoP'; docs/protocol.md says how."
)


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


class Refusals(Protocol):
    """Records what is refused; see `hub_agent.calls.audit.AuditTrail.refusals`."""

    def __call__(self, claims: Claims, *, method: str) -> AbstractContextManager[None]:
        """Return a context that records it when what is in it is forbidden."""
        ...


class Gate:
    """Authenticates HTTP requests by their token.

    Args:
        refusals: Records requests without the right to make them.
    """

    def __init__(
        self, authority: TokenAuthority, accounts: Accounts, *, refusals: Refusals | None = None
    ) -> None:
        self._authority = authority
        self._accounts = accounts
        self._refusals = refusals
        self._proofs = ProofCheck()

    async def bearer(self, request: Request) -> Bearer:
        """Return the bearer of a request.

        Raises:
            Unauthorized: If there is no valid token.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        scheme, token = scheme.lower(), token.strip()
        if scheme not in ("bearer", "dpop") or not token:
            raise Unauthorized("the request carries no token", hint="Send 'Authorization: Bearer TOKEN'.")
        claims = self._authority.check(token)
        if claims.kind == "device":
            if scheme != "dpop" or claims.cnf is None:
                raise Unauthorized("the token of a device counts only with a proof of its key", hint=_PROOF)
            self._proofs.check(
                _proof(request),
                method=request.method,
                is_target=partial(_is_for, request),
                token=token,
                key_id=claims.cnf.jkt,
            )
        claims = await self._authority.authenticate(token)
        try:
            return Bearer(claims, await self._accounts.get(claims.own))
        except NotFound:
            raise Unauthorized("the user of this token no longer exists") from None

    def require_key(self, request: Request, key: PublicKey) -> None:
        """Require the proof that a device without a token has this key.

        Raises:
            Unauthorized: If there is none, or it is by another key.
        """
        proved = self._proofs.possessed(
            _proof(request), method=request.method, is_target=partial(_is_for, request)
        )
        if proved != key:
            raise Unauthorized("the proof is by another key than the one in the request", hint=_PROOF)

    def require(self, *scopes: Scope) -> Callable[[Request], Awaitable[Bearer]]:
        """Return a function that authenticates a request and requires one of the scopes."""

        async def authenticate(request: Request) -> Bearer:
            bearer = await self.bearer(request)
            with self._recording(request, bearer):
                _require_scope(bearer, *scopes)
            return bearer

        return authenticate

    def require_user(self, *scopes: Scope) -> Callable[[Request], Awaitable[Bearer]]:
        """Like `require`, but for no device: on the bus it receives nothing of others either."""
        authenticate = self.require(*scopes)

        async def authenticate_user(request: Request) -> Bearer:
            bearer = await authenticate(request)
            with self._recording(request, bearer):
                if bearer.device is not None:
                    raise Forbidden("the token of a device may not do that", hint="Use the token of a user.")
            return bearer

        return authenticate_user

    async def require_admin(self, request: Request) -> Bearer:
        """Authenticate a request and require the scope ``admin`` in a token of an admin.

        A device of an admin does not count, whatever its scopes.

        Raises:
            Forbidden: If it is any other token.
        """
        bearer = await self.bearer(request)
        with self._recording(request, bearer):
            if bearer.claims.kind != "user" or bearer.user.role != "admin":
                raise Forbidden("only an admin may do that")
            _require_scope(bearer, "admin")
        return bearer

    def _recording(self, request: Request, bearer: Bearer) -> AbstractContextManager[None]:
        if self._refusals is None:
            return nullcontext()
        return self._refusals(bearer.claims, method=f"{request.method} {quote(request.scope['path'])[:100]}")


def _proof(request: Request) -> str:
    proofs = request.headers.getlist("dpop")
    if len(proofs) != 1:
        raise Unauthorized("the request carries no proof of the device's key", hint=_PROOF)
    return proofs[0]


def _is_for(request: Request, url: str) -> bool:
    """Return whether a URL names this request.

    Its host does not count: the hub does not know all its names, least of all behind a proxy, and the token
    that goes with the proof is of no use to another hub.
    """
    try:
        path = unquote(urlsplit(url).path)
    except ValueError:
        return False
    return path in (request.scope["path"], request.scope.get("root_path", "") + request.scope["path"])


def _require_scope(bearer: Bearer, *scopes: Scope) -> None:
    if bearer.claims.scopes.isdisjoint(scopes):
        raise Forbidden(
            f"the token lacks the scope {' or '.join(map(repr, scopes))}",
            hint=f"'strawberry tokens add NAME --scope {scopes[0]}' makes one that has it.",
        )
