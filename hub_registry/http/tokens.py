"""Tokens: ``/api/tokens``, ``strawberry tokens``, and their part of the people page."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Final, get_args

from pydantic import Field

from chat.http.requests import paced
from chat.operations import ADMIN, Needs, Resource
from contracts.answers.people import TokenAnswer, TokenSummary
from contracts.claims import Scope
from contracts.devices.joining import DeviceTokens
from contracts.errors import Conflict, Forbidden, TooManyRequests
from contracts.rates import TokenBuckets
from hub_registry import limits
from hub_registry.access.bearer import Bearer
from hub_registry.access.token_rows import TokenRequest
from hub_registry.access.tokens import TokenAuthority, no_token
from hub_registry.devices.devices import check_text
from hub_registry.http.parts import LongLifetime
from hub_registry.storage.tables import TokenRow, now

_IN_PERSON: Final = Needs(("confirm", "admin"))


@dataclass(frozen=True)
class Tokens:
    """Tokens, and how many are made.

    Attributes:
        adding: Held while one is made.
        added: Of each person.
        renewed: Of each device.
    """

    authority: TokenAuthority
    adding: asyncio.Lock = field(default_factory=asyncio.Lock)
    added: TokenBuckets = field(default_factory=lambda: _a_day(limits.TOKENS_ISSUED_PER_DAY))
    renewed: TokenBuckets = field(default_factory=lambda: _a_day(limits.RENEWALS_PER_DAY))


tokens: Resource[Tokens, Bearer] = Resource("tokens", "/api/tokens")


@tokens.get(_IN_PERSON)
async def list_tokens(
    tokens: Tokens,
    asking: Bearer,
    all: bool = False,  # noqa: A002 - its name in the query
    valid: bool = False,
) -> list[TokenSummary]:
    """List your own tokens, of programs and of browsers.

    Args:
        all: Those of all people and devices, for an admin.
        valid: Leave out those that are revoked or expired.
    """
    if all:
        asking.require(ADMIN)
    return await paced(
        _summary(row, asking)
        for row in await tokens.authority.list()
        if (all or _is_of(row, asking))
        and not (valid and (row.revoked_at is not None or row.expires_at <= now()))
    )


@tokens.post(_IN_PERSON)
async def add_token(
    tokens: Tokens,
    asking: Bearer,
    name: Annotated[str, Field(min_length=1, max_length=64)],
    scopes: Annotated[list[Scope], Field(min_length=1)],
    lifetime_s: LongLifetime | None = None,
) -> TokenAnswer:
    """Make a token, which is shown only now.

    It acts as you, with at most the scopes of the token that asks; `admin` needs the password. 409 where a
    valid one of yours has that name.

    Args:
        lifetime_s: A year by default, a century at most.
    """
    check_text(name)
    # Who may confirm may let a program do so by words; no session has that by itself.
    held = asking.claims.scopes | ({"say_yes"} if "confirm" in asking.claims.scopes else set())
    if lacking := [scope for scope in scopes if scope not in held]:
        raise Forbidden(
            "a token opens no more than the one it is made with, which lacks {scope!r}",
            scope=lacking[0],
            hint="Leave it out, or ask an admin.",
        )
    if "admin" in scopes:
        await tokens.authority.require_password(asking.claims)
    # One at a time: of two at once, both would find the name free and room for one more.
    async with tokens.adding:
        good = [row for row in await tokens.authority.good_of(asking.user.id) if not row.is_session]
        if name in (row.name for row in good):
            raise Conflict(
                "you have a token named {name!r} already",
                name=name,
                hint="Choose another name, or revoke that one first.",
            )
        if len(good) >= limits.MOST_TOKENS:
            raise Conflict(
                "you have {most} tokens already",
                most=limits.MOST_TOKENS,
                hint="Revoke one that you no longer need. 'strawberry tokens revoke' ends one.",
            )
        if not tokens.added.take(asking.user.id):
            raise TooManyRequests("you have made too many tokens today", hint="Use one of them.")
        token = await tokens.authority.issue(
            TokenRequest(
                kind="user",
                subject=asking.user.id,
                owner=asking.user.id,
                scopes=[scope for scope in get_args(Scope) if scope in scopes],
                lifetime_s=lifetime_s or limits.USER_TOKEN_S,
                name=name,
            )
        )
    asking.note(f"make_token {name} ({', '.join(scopes)})")
    return TokenAnswer(token=token)


@tokens.post(Needs(("register",), devices=True), "/renew")
async def renew_token(tokens: Tokens, asking: Bearer) -> DeviceTokens:
    """Make new tokens like the present ones of a device, for HTTP and for MQTT.

    The first use of `token` ends the present ones.
    """
    # A person's token ends at its date; only unattended ones renew themselves.
    if asking.device is None:
        raise Forbidden("only a device renews its token", hint="'strawberry tokens add' makes a new one.")
    if not tokens.renewed.take(asking.device):
        raise TooManyRequests("this device has renewed its token too often", hint="Use the one it has.")
    token = await tokens.authority.renew(asking.claims, lifetime_s=limits.DEVICE_TOKEN_S)
    return DeviceTokens(token=token, bus_token=tokens.authority.bus_token(token))


@tokens.delete(_IN_PERSON, "/{jti}")
async def revoke_token(tokens: Tokens, asking: Bearer, jti: str) -> None:
    """Revoke a token of yours at once; an admin revokes any."""
    row = await tokens.authority.get(jti)
    if not (asking.is_admin or _is_of(row, asking)):
        raise no_token()
    await tokens.authority.revoke([row.jti])
    asking.note(f"revoke_token {row.name or row.subject}")


def _a_day(most: int) -> TokenBuckets:
    return TokenBuckets(burst=most, per_second=most / limits.DAY_S)


def _is_of(row: TokenRow, bearer: Bearer) -> bool:
    # Not of a device or a login of the bus.
    return row.kind == "user" and row.owner == bearer.user.id


def _summary(token: TokenRow, bearer: Bearer) -> TokenSummary:
    session = {"session": token.is_session, "current": token.jti == bearer.claims.jti}
    return TokenSummary.model_validate(token.model_dump() | session, extra="ignore")
