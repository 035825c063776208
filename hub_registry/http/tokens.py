"""Tokens: for programs, renewed by devices, revoked."""

import asyncio
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, NoBody, answer, answer_each, read, read_query
from contracts.claims import SCOPES, Scope
from contracts.devices.joining import DeviceTokens
from contracts.errors import Conflict, Forbidden, TooManyRequests
from contracts.rates import TokenBuckets
from contracts.wire import Strict, Timestamp
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.access.token_rows import TokenRequest
from hub_registry.access.tokens import no_token
from hub_registry.devices.devices import check_text
from hub_registry.http.parts import LongLifetime
from hub_registry.registry import Registry
from hub_registry.storage.tables import TokenRow, now

_RENEWALS: Final = 12
"""Renewals of a device in a day. One a year is enough; each is a row for a year."""


_MOST: Final = 100
"""Good tokens of one person's programs: quotas and streams count by token, so there is a bound to them."""
_ISSUES: Final = 200
"""Tokens that one person makes at once, and in a day."""


class TokenBody(Strict):
    """A token that a program shall get."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    lifetime_s: LongLifetime | None = None


class TokensQuery(Strict):
    """Which tokens are listed.

    Attributes:
        all: Those of devices and of all people, too.
        valid: Only those that are neither revoked nor expired.
    """

    all: bool = False
    valid: bool = False


class TokenSummary(Strict):
    """A token that was issued.

    Attributes:
        session: Whether it is the session of a browser.
        current: Whether it is the one that asks.
    """

    jti: str
    kind: str
    subject: str
    owner: str
    name: str
    scope: str
    issued_at: Timestamp
    expires_at: Timestamp
    revoked_at: Timestamp | None
    session: bool
    current: bool

    @classmethod
    def of(cls, token: TokenRow, bearer: Bearer) -> "TokenSummary":
        """Make it of a token, for the bearer of one."""
        return cls(
            jti=token.jti,
            kind=token.kind,
            subject=token.subject,
            owner=token.owner,
            name=token.name,
            scope=token.scope,
            issued_at=token.issued_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
            session=token.is_session,
            current=token.jti == bearer.claims.jti,
        )


class TokenAnswer(Strict):
    """A token; it is shown once and stored nowhere."""

    token: str


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    authority, lifetimes = registry.authority, registry.settings.lifetimes
    may_register = gate.require("register")
    in_person = gate.require_user("confirm", "admin")
    issuing = asyncio.Lock()
    issues = TokenBuckets(burst=_ISSUES, per_second=_ISSUES / (24 * 60 * 60))
    renewals = TokenBuckets(burst=_RENEWALS, per_second=_RENEWALS / (24 * 60 * 60))

    async def list_tokens(request: Request) -> Answer[list[TokenSummary]]:
        query = read_query(request, TokensQuery)
        bearer = await (gate.require_admin if query.all else in_person)(request)
        rows = [row for row in await authority.list() if query.all or _is_of(row, bearer)]
        if query.valid:
            rows = [row for row in rows if row.revoked_at is None and row.expires_at > now()]
        return await answer_each(TokenSummary.of(row, bearer) for row in rows)

    async def add_token(request: Request) -> Answer[TokenAnswer]:
        bearer = await in_person(request)
        body = await read(request, TokenBody)
        check_text(body.name)
        with gate.recording("POST /api/tokens", bearer):
            if lacking := [scope for scope in body.scopes if scope not in bearer.claims.scopes]:
                raise Forbidden(
                    "a token opens no more than the one it is made with, which lacks {scope!r}",
                    scope=lacking[0],
                    hint="Leave it out, or ask an admin.",
                )
            if "admin" in body.scopes:
                await authority.require_password(bearer.claims)
        # One at a time: of two at once, both would find the name free and room for one more.
        async with issuing:
            good = [row for row in await authority.good_of(bearer.user.id) if not row.is_session]
            if body.name in (row.name for row in good):
                raise Conflict(
                    "you have a token named {name!r} already",
                    name=body.name,
                    hint="Choose another name, or revoke that one first.",
                )
            if len(good) >= _MOST:
                raise Conflict(
                    "you have {most} tokens already", most=_MOST, hint="'strawberry tokens revoke' ends one."
                )
            if not issues.take(bearer.user.id):
                raise TooManyRequests("you have made too many tokens today", hint="Use one of them.")
            token = await authority.issue(
                TokenRequest(
                    kind="user",
                    subject=bearer.user.id,
                    owner=bearer.user.id,
                    scopes=[scope for scope in SCOPES if scope in body.scopes],
                    lifetime_s=body.lifetime_s or lifetimes.user_s,
                    name=body.name,
                )
            )
        gate.note(f"make_token {body.name} ({', '.join(body.scopes)})", bearer)
        return answer(TokenAnswer(token=token))

    async def renew_token(request: Request) -> Answer[DeviceTokens]:
        bearer = await may_register(request)
        # A person's token ends at its date; only unattended ones renew themselves.
        if bearer.device is None:
            raise Forbidden("only a device renews its token", hint="'strawberry tokens add' makes a new one.")
        if not renewals.take(bearer.device):
            raise TooManyRequests("this device has renewed its token too often", hint="Use the one it has.")
        token = await authority.renew(bearer.claims, lifetime_s=lifetimes.device_s)
        return answer(DeviceTokens(token=token, bus_token=authority.bus_token(token)))

    async def revoke_token(request: Request) -> NoBody:
        bearer = await in_person(request)
        row = await authority.get(request.path_params["jti"])
        if not (bearer.is_admin or _is_of(row, bearer)):
            raise no_token()
        await authority.revoke([row.jti])
        gate.note(f"revoke_token {row.name or row.subject}", bearer)
        return NoBody()

    return [
        Route("/api/tokens", list_tokens),
        Route("/api/tokens", add_token, methods=["POST"]),
        Route("/api/tokens/renew", renew_token, methods=["POST"]),
        Route("/api/tokens/{jti}", revoke_token, methods=["DELETE"]),
    ]


def _is_of(row: TokenRow, bearer: Bearer) -> bool:
    """Return whether a token acts for this person, without being of a device or a login of the bus."""
    return row.kind == "user" and row.owner == bearer.user.id
