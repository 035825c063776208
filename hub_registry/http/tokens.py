"""Tokens: for programs, renewed by devices, revoked."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import Field

from contracts.claims import SCOPES, Scope
from contracts.errors import Forbidden, NotFound
from contracts.wire import rfc3339
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.access.tokens import TokenRequest
from hub_registry.http.parts import Body, Lifetime
from hub_registry.registry import Registry


class TokenBody(Body):
    """A token that a program shall get."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    lifetime_s: Lifetime | None = None


class TokenAnswer(Body):
    """A token; it is shown once and stored nowhere."""

    token: str


def add(router: APIRouter, registry: Registry, gate: Gate) -> None:
    """Add the routes."""
    admin = Depends(gate.require_admin)
    authority, lifetimes = registry.authority, registry.settings.lifetimes

    @router.get("/api/tokens", dependencies=[admin])
    async def list_tokens() -> list[dict[str, Any]]:
        shown = ("jti", "kind", "subject", "owner", "name", "scope")
        moments = ("issued_at", "expires_at", "revoked_at")
        return [
            {name: getattr(token, name) for name in shown}
            | {name: rfc3339(at) if (at := getattr(token, name)) else None for name in moments}
            for token in await authority.list()
        ]

    @router.post("/api/tokens")
    async def add_token(body: TokenBody, bearer: Annotated[Bearer, admin]) -> TokenAnswer:
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
        return TokenAnswer(token=token)

    @router.post("/api/tokens/renew")
    async def renew_token(bearer: Annotated[Bearer, Depends(gate.require("register"))]) -> TokenAnswer:
        # A person's token ends when it was said to; only what nobody looks after renews itself.
        if bearer.device is None:
            raise Forbidden("only a device renews its token", hint="'strawberry tokens add' makes a new one.")
        return TokenAnswer(token=await authority.renew(bearer.claims, lifetime_s=lifetimes.device_s))

    @router.delete("/api/tokens/{jti}", dependencies=[admin], status_code=204)
    async def revoke_token(jti: str) -> Response:
        if all(token.jti != jti for token in await authority.list()):
            raise NotFound(f"there is no token {jti!r}")
        await authority.revoke([jti])
        return Response(status_code=204)
