"""Tokens: for programs, renewed by devices, revoked."""

from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat.http.requests import answer, answer_each, read
from contracts.claims import SCOPES, Scope
from contracts.errors import Forbidden, TooManyRequests
from contracts.joining import DeviceTokens
from contracts.rates import TokenBuckets
from contracts.wire import Timestamp
from hub_registry.access.bearer import Gate
from hub_registry.access.tokens import TokenRequest
from hub_registry.http.parts import Body, Lifetime
from hub_registry.registry import Registry
from hub_registry.storage.tables import TokenRow

_RENEWALS: Final = 12
"""Renewals of a device in a day. One a year is enough; each is a row for a year."""


class TokenBody(Body):
    """A token that a program shall get."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    lifetime_s: Lifetime | None = None


class TokenSummary(Body):
    """A token that was issued, as an admin sees it."""

    jti: str
    kind: str
    subject: str
    owner: str
    name: str
    scope: str
    issued_at: Timestamp
    expires_at: Timestamp
    revoked_at: Timestamp | None

    @classmethod
    def of(cls, token: TokenRow) -> "TokenSummary":
        """Make it of a token."""
        return cls(**{name: getattr(token, name) for name in cls.model_fields})


class TokenAnswer(Body):
    """A token; it is shown once and stored nowhere."""

    token: str


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    authority, lifetimes = registry.authority, registry.settings.lifetimes
    may_register = gate.require("register")
    renewals = TokenBuckets(burst=_RENEWALS, per_second=_RENEWALS / (24 * 60 * 60))

    async def list_tokens(request: Request) -> Response:
        await gate.require_admin(request)
        return await answer_each([TokenSummary.of(token) for token in await authority.list()])

    async def add_token(request: Request) -> Response:
        bearer = await gate.require_admin(request)
        body = await read(request, TokenBody)
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
        return answer(TokenAnswer(token=token))

    async def renew_token(request: Request) -> Response:
        bearer = await may_register(request)
        # A person's token ends when it was said to; only what nobody looks after renews itself.
        if bearer.device is None:
            raise Forbidden("only a device renews its token", hint="'strawberry tokens add' makes a new one.")
        if not renewals.take(bearer.device):
            raise TooManyRequests("this device has renewed its token too often", hint="Use the one it has.")
        token = await authority.renew(bearer.claims, lifetime_s=lifetimes.device_s)
        return answer(DeviceTokens(token=token, bus_token=authority.bus_token(token)))

    async def revoke_token(request: Request) -> Response:
        await gate.require_admin(request)
        await authority.revoke([request.path_params["jti"]])
        return Response(status_code=204)

    return [
        Route("/api/tokens", list_tokens),
        Route("/api/tokens", add_token, methods=["POST"]),
        Route("/api/tokens/renew", renew_token, methods=["POST"]),
        Route("/api/tokens/{jti}", revoke_token, methods=["DELETE"]),
    ]
