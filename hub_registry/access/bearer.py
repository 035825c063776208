"""The bearer of the token of an HTTP request, and what it may do."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import HTTPConnection, Request

from agent_core.tools.skill_calls import WHERE_TO_CONFIRM
from chat.http.guard import is_from_own_page
from chat.operations import TOKEN, Needs
from contracts.addresses import is_loopback, source_of_host
from contracts.claims import Claims, Scope
from contracts.errors import Forbidden, NotFound, TooManyRequests, Unauthorized
from contracts.rates import TokenBuckets
from hub_registry import limits
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.tokens import TokenAuthority
from identity.keys import PublicKey
from identity.logins.proofs import ProofCheck
from identity.tokens import make_claims

_PROOF: Final = (
    "Send 'Authorization: DPoP TOKEN' and a proof in the header 'DPoP'; docs/protocol.md says how."
)

SESSION_COOKIE: Final = "strawberry_session"
"""Holds the token of a browser's session."""
_AT_ONCE, _PER_S = 200, 20
"""Bodies without a token from one address: forty devices that wait to join ask so often. Each takes 2 ms."""
_NONE: Final = HTTPConnection({"type": "http", "path": "/", "query_string": b"", "headers": []})


@dataclass(frozen=True)
class Bearer:
    """The bearer of a valid token.

    Attributes:
        user: The owner of the token, on whose behalf it acts.
        may_confirm: Whether a person confirms calls through it: a user's token with that scope, or a device
            that its owner marked; never a broker's login.
        gate: Admitted it; None where a part of the hub asks.
        connection: It asks through this; through none where a part of the hub asks.
    """

    claims: Claims
    user: User
    may_confirm: bool = False
    gate: "Gate | None" = field(default=None, repr=False, compare=False)
    connection: HTTPConnection = field(default=_NONE, repr=False, compare=False)

    @classmethod
    def inside(cls, hub_id: str, name: str, user: User, *, says_yes: bool = False) -> "Bearer":
        """Return who asks on behalf of a user without a token of theirs, as a part of the hub itself.

        It may chat, and no person confirms calls through it.

        Args:
            name: What its turns and audit entries stand under.
            says_yes: Whether a person may, by the next message of a conversation.
        """
        scopes: tuple[Scope, ...] = ("chat", "say_yes") if says_yes else ("chat",)
        claims = make_claims(
            hub_id=hub_id, subject=name, kind="client", owner=user.id, scopes=scopes, lifetime_s=60
        )
        return cls(claims.model_copy(update={"jti": name}), user)

    @property
    def device(self) -> str | None:
        return self.claims.sub if self.claims.kind == "device" else None

    @property
    def is_admin(self) -> bool:
        """Return whether an admin manages the home with it: sees what is other people's, too."""
        claims = self.claims
        return claims.kind == "user" and self.user.role == "admin" and "admin" in claims.scopes

    @property
    def source(self) -> str:
        return source_of(self.connection)

    def hub_url(self, for_others: str | None) -> str:
        """Return where others find the hub: where it was asked, unless only this machine finds it there.

        Args:
            for_others: The address for that case, where there is one.
        """
        if for_others is not None and is_loopback(self.connection.url.hostname):
            return for_others
        return str(self.connection.base_url).rstrip("/")

    def require(self, needs: Needs) -> None:
        """Require rights, but for a password that was just typed; see `TokenAuthority.require_password`.

        Raises:
            Forbidden: If one is missing.
        """
        claims = self.claims
        if needs.admin and (claims.kind != "user" or self.user.role != "admin"):
            # A device of an admin does not count, whatever its scopes.
            raise Forbidden(
                "only an admin may do that", hint="Ask an admin, or use an admin's own token or session."
            )
        if claims.scopes.isdisjoint(needs.scopes):
            raise _lacks(needs.scopes)
        if self.device is not None and not needs.devices:
            raise Forbidden("the token of a device may not do that", hint="Use the token of a user.")
        if self.device is None and not needs.people:
            raise Forbidden("only a device may do that", hint="Use the token of a device.")
        if needs.writes:
            self.user.require_writer()
        if needs.confirms and not self.may_confirm:
            raise cannot_confirm()

    async def require_password(self) -> None:
        """Require that the session's password was typed in the last minutes.

        Raises:
            PasswordNeeded: If it was not.
        """
        if self.gate is not None:
            await self.gate.check_password(self.claims)

    def note(self, act: str, *, address: str = "", outcome: str = "result") -> None:
        if self.gate is not None:
            self.gate.note(act, self, address=address, outcome=outcome)


class Trail(Protocol):
    """Records what is refused, and what changes about people and tokens; see `hub_agent.calls.audit`."""

    def refusals(self, claims: Claims, *, method: str) -> AbstractContextManager[None]:
        """Return a context that records it when what is in it is forbidden."""

    def act(self, act: str, *, user: str, claims: Claims | None, address: str, outcome: str) -> None:
        """Record an act of a person."""


class Gate:
    """Authenticates HTTP requests by their token.

    Args:
        trail: Records requests without the right to make them, and what `note` is given.
        may_confirm: Whether a person confirms calls through a token.
        per_minute: Requests of one device or token in the long run, of which half may come at once; a person
            may make four times as many with all tokens.

    Attributes:
        passed_on: Returns the bearer for whom another replica of the hub asks; None where there is none.
    """

    def __init__(
        self,
        authority: TokenAuthority,
        accounts: Accounts,
        *,
        trail: Trail | None = None,
        may_confirm: Callable[[Claims], bool] = lambda _: False,
        per_minute: int = 6_000,
    ) -> None:
        self._authority = authority
        self._accounts = accounts
        self._trail = trail
        self._may_confirm = may_confirm
        self._proofs, self._joins = ProofCheck(), ProofCheck()
        self.passed_on: Callable[[Request, str], Awaitable[Bearer]] | None = None
        burst, per_second = per_minute / 2, per_minute / 60
        self._holders = TokenBuckets(burst=burst, per_second=per_second, most=limits.MOST_HOLDERS)
        # A person whose program floods the hub goes on in the browser, and gains nothing by a hundred tokens.
        self._people = TokenBuckets(
            burst=limits.TOKENS_PER_HOLDER * burst,
            per_second=limits.TOKENS_PER_HOLDER * per_second,
            most=limits.MOST_HOLDERS,
        )
        self._addresses = TokenBuckets(burst=_AT_ONCE, per_second=_PER_S, most=limits.MOST_HOLDERS)

    async def bearer(self, request: Request) -> Bearer:
        """Return the bearer of a request.

        Raises:
            Unauthorized: If there is no valid token.
            Forbidden: If it is that of a session, and another page than the hub's may have made the request.
            TooManyRequests: If there were too many by it in a short time.
        """
        scheme, token, is_of_browser = _credentials(request)
        if scheme == "replica" and self.passed_on is not None:
            return await self.passed_on(request, token)
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
        await self._authority.use(claims)
        if not is_of_browser and self._authority.is_session(claims.jti):
            raise Unauthorized(
                "the token of a session counts only as the cookie of its browser",
                hint="Programs have tokens of their own; see 'strawberry tokens add'.",
            )
        return await self._counted(claims, request)

    async def _counted(self, claims: Claims, connection: HTTPConnection) -> Bearer:
        self.count(claims)
        try:
            user = await self._accounts.get(claims.own)
        except NotFound:
            raise Unauthorized("the user of this token no longer exists") from None
        return Bearer(claims, user, self._may_confirm(claims), self, connection)

    async def admit(self, request: Request, needs: Needs, what: str = "") -> Bearer:
        """Return the bearer of a request, who has these rights; see `chat.operations.Door`."""
        what = what or f"{request.method} {quote(request.scope['path'])[:100]}"
        return await self.check(await self.bearer(request), needs, what)

    async def admit_session(self, token: str, connection: HTTPConnection, needs: Needs, what: str) -> Bearer:
        """Return the bearer of a session in this process, who has the rights for what is named.

        Args:
            connection: The browser as the hub sees it.

        Raises:
            StrawberryError: As `admit`.
        """
        claims = self._authority.check(token)
        if claims.kind != "user":
            raise Unauthorized("only people have sessions")
        await self._authority.use(claims)
        return await self.check(await self._counted(claims, connection), needs, what)

    async def check(self, bearer: Bearer, needs: Needs, what: str) -> Bearer:
        """Return a bearer who has these rights; one who has not is in the audit, with what is named.

        Raises:
            Forbidden: If one is missing.
        """
        with self.recording(what, bearer):
            bearer.require(needs)
            if needs.password:
                await self.check_password(bearer.claims)
        return bearer

    async def check_password(self, claims: Claims) -> None:
        await self._authority.require_password(claims)

    def count(self, claims: Claims) -> None:
        """Count a request, or a message over a WebSocket.

        Raises:
            TooManyRequests: If there were too many with this token, or of its person, in a short time.
        """
        is_person = claims.kind == "user"
        if not self._holders.take(claims.holder) or (is_person and not self._people.take(claims.own)):
            raise TooManyRequests(
                "too many requests in a short time",
                hint="Wait a moment, or send fewer. "
                "[http] requests_per_minute in strawberry.toml allows more.",
                retry_after_s=1,
            )

    def count_open(self, source: str) -> None:
        """Count a body from an address that needs no token.

        Raises:
            TooManyRequests: If there were too many from there in a short time.
        """
        if not self._addresses.take(source):
            raise TooManyRequests("too many requests in a short time", retry_after_s=1)

    def require_key(self, request: Request, key: PublicKey) -> None:
        """Require the proof that a device without a token has this key.

        Raises:
            Unauthorized: If there is none, or it is by another key.
        """
        proved = self._joins.possessed(
            _proof(request), method=request.method, is_target=partial(_is_for, request)
        )
        if proved != key:
            raise Unauthorized("the proof is by another key than the one in the request", hint=_PROOF)

    def begin_joins(self) -> None:
        """Reject proofs for `require_key` from before now: the previous leader may have accepted them."""
        self._joins = ProofCheck()

    def require(self, *scopes: Scope) -> Callable[[Request], Awaitable[Bearer]]:
        """Return a function that authenticates a request and requires one of the scopes.

        Args:
            scopes: By default any but ``metrics``, which is for nothing else.
        """
        return partial(self.admit, needs=Needs(scopes or TOKEN.scopes, devices=True))

    def require_user(self, *scopes: Scope) -> Callable[[Request], Awaitable[Bearer]]:
        # Devices are refused: they receive nothing of others.
        return partial(self.admit, needs=Needs(scopes or TOKEN.scopes))

    def note(self, act: str, by: Bearer | User, *, address: str = "", outcome: str = "result") -> None:
        """Record in the audit a change of people, tokens or what a device may.

        Args:
            act: A verb, and whom or what it is about. Nothing secret: it is shown and exported.
            address: Where the request came from.
        """
        claims, user = (by.claims, by.user) if isinstance(by, Bearer) else (None, by)
        if self._trail is not None:
            self._trail.act(act, user=user.id, claims=claims, address=address, outcome=outcome)

    def recording(self, what: str, bearer: Bearer) -> AbstractContextManager[None]:
        """Return a context that records in the audit when what is in it is forbidden."""
        if self._trail is None:
            return nullcontext()
        return self._trail.refusals(bearer.claims, method=what)


def source_of(connection: HTTPConnection) -> str:
    return source_of_host(connection.client.host if connection.client else "")


def cannot_confirm() -> Forbidden:
    return Forbidden("this token may not confirm calls", hint=WHERE_TO_CONFIRM)


def _credentials(request: Request) -> tuple[str, str, bool]:
    """Return the scheme and the token of a request, and whether they come in a browser's cookie."""
    cookie = request.cookies.get(SESSION_COOKIE)
    if "authorization" in request.headers or not cookie:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower(), token.strip(), False
    # A browser sends the cookie along with whatever any page asks for. Pages of other ports of this machine
    # are of the same site, so that SameSite does not keep them off.
    fetched = request.headers.get("sec-fetch-site", "same-origin")
    if not is_from_own_page(request) or fetched not in ("same-origin", "none"):
        raise Forbidden(
            "the session is not for pages of another origin",
            hint="Programs send a token; see 'strawberry tokens add'.",
        )
    return "bearer", cookie, True


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


def _lacks(scopes: Sequence[Scope]) -> Forbidden:
    return Forbidden(
        "the token lacks the scope {scopes}",
        scopes=" or ".join(map(repr, scopes)),
        scope=scopes[0],
        hint="'strawberry tokens add NAME --scope {scope}' makes one that has it.",
    )
