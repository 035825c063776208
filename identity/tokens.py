"""Tokens: JWTs that the hub signs with its identity key, EdDSA and nothing else."""

import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final

import jwt
from pydantic import ValidationError

from contracts.claims import (
    Audience,
    Claims,
    ClientScope,
    Confirmation,
    PrincipalKind,
    Scope,
)
from contracts.errors import Unauthorized
from identity.keys import KeyPair, PublicKey
from identity.limits import LEEWAY_S, LONGEST_TOKEN

_ALGORITHM: Final = "EdDSA"
_NEW: Final[dict[PrincipalKind, str]] = {
    "device": "An admin of the hub lets the device join again: 'strawberry devices invite NAME'.",
    "client": "An admin of the hub makes a new one: 'strawberry broker login NAME'.",
    "user": "Log in again. For a program, an admin of the hub makes a new one: 'strawberry tokens add NAME'.",
}
_ANOTHER: Final[dict[Audience, str]] = {
    "http": "'strawberry tokens add NAME' makes one for HTTP; a device has two, and this is its 'bus_token'.",
    "mqtt": "'strawberry broker login NAME' makes one for MQTT; a device has two, and needs its 'bus_token'.",
}


def make_claims(
    *,
    hub_id: str,
    subject: str,
    kind: PrincipalKind,
    owner: str,
    scopes: Iterable[Scope | ClientScope],
    lifetime_s: int,
    audience: Audience | None = None,
    key: PublicKey | None = None,
    now: float | None = None,
) -> Claims:
    """Put together the claims of a new token with an id of its own.

    Args:
        hub_id: Issuer.
        subject: Whom it is for.
        owner: The user it belongs to.
        lifetime_s: Seconds from now until it expires.
        audience: What it is for; None for HTTP if it is a user's, else for MQTT.
        key: The key the bearer has bound, for devices.
        now: Seconds since the epoch, if not the present.
    """
    issued = int(time.time() if now is None else now)
    return Claims(
        iss=hub_id,
        sub=subject,
        kind=kind,
        own=owner,
        aud=audience or ("http" if kind == "user" else "mqtt"),
        scope=" ".join(scopes),
        iat=issued,
        exp=issued + lifetime_s,
        jti=uuid.uuid4().hex,
        cnf=Confirmation(jkt=key.kid) if key else None,
    )


def issue(key: KeyPair, claims: Claims, **more: object) -> str:
    """Sign a token (JWS compact form), with more claims for others who read it."""
    payload = claims.model_dump(exclude_none=True) | more
    return jwt.encode(payload, key.for_tokens, algorithm=_ALGORITHM, headers={"kid": key.kid})


def verify(
    token: str,
    *,
    key: PublicKey,
    hub_id: str,
    audience: Audience,
    is_revoked: Callable[[Claims], bool] = lambda _: False,
    now: float | None = None,
) -> Claims:
    """Check a token and give its claims.

    Args:
        audience: What it was shown for.

    Raises:
        Unauthorized: With the reason: malformed, wrong algorithm or signature, expired, not for this
            audience or hub, revoked.
    """
    if len(token) > LONGEST_TOKEN:
        raise Unauthorized("the token is too long")
    try:
        payload = jwt.decode(
            token,
            key.for_tokens,
            algorithms=[_ALGORITHM],
            audience=["http", "mqtt"],
            issuer=hub_id,
            # Expiry is checked below, against a clock that can be given.
            options={
                "require": ["iss", "sub", "aud", "exp", "iat", "jti"],
                "verify_exp": False,
                "verify_iat": False,
            },
        )
        claims = Claims.model_validate(payload)
    except jwt.InvalidAudienceError:
        raise Unauthorized("the token is for another audience") from None
    except jwt.InvalidIssuerError:
        raise Unauthorized("the token belongs to another hub") from None
    except jwt.InvalidAlgorithmError:
        raise Unauthorized("the token is not signed with EdDSA") from None
    except jwt.InvalidSignatureError:
        raise Unauthorized("the signature of the token is not valid") from None
    except (jwt.PyJWTError, ValidationError, ValueError, TypeError):
        raise Unauthorized("the token is malformed") from None
    if claims.aud != audience:
        raise Unauthorized(
            "the token is not for {audience}", audience=audience.upper(), hint=_ANOTHER[audience]
        )
    if claims.exp + LEEWAY_S <= (time.time() if now is None else now):
        raise Unauthorized("the token has expired", hint=new_token_hint(claims))
    if is_revoked(claims):
        raise revoked(claims)
    return claims


def revoked(claims: Claims | None = None) -> Unauthorized:
    return Unauthorized("the token has been revoked", hint=new_token_hint(claims) if claims else "")


def new_token_hint(claims: Claims) -> str:
    """Return how the bearer of an invalid token gets a new one; empty for the hub, which makes its own."""
    return _NEW.get(claims.kind, "")


def token_id(token: str) -> str:
    """Return the ``jti`` of a token of our own making, which is not checked again.

    Raises:
        Unauthorized: If it is no token.
    """
    try:
        return Claims.model_validate(jwt.decode(token, options={"verify_signature": False})).jti
    except (jwt.PyJWTError, ValidationError):
        raise Unauthorized("the token is malformed") from None
