"""Tickets: for whom one replica of a hub asks another, signed with the hub's key, and good once."""

import hashlib
import time
import uuid
from typing import Final, Literal

import jwt
from pydantic import ValidationError

from contracts.claims import Claims
from contracts.errors import Unauthorized
from contracts.wire import Part
from identity.keys import KeyPair, PublicKey
from identity.limits import LEEWAY_S

_ALGORITHM: Final = "EdDSA"
_AUDIENCE: Final = "replica"
"""No token has this audience, and a ticket has no other: neither counts as the other."""
_LIFETIME_S: Final = 30
_OTHER: Final = "the ticket of a replica is for another request"
_MOST: Final = 100_000
"""Tickets that are remembered as used: more than can be passed on within their lifetime."""


class Ticket(Part):
    """A request that is passed on.

    Attributes:
        purpose: An operation for its bearer, what needs no token, or what the replicas tell each other.
        to: The replica that is asked.
        request: Method, path and query.
        body: SHA-256 of the body.
        claims: Of the token of who asks.
        source: Where they ask from, for limits and the audit.
        base: The URL at which they ask, without a path.
    """

    purpose: Literal["operation", "open", "internal"]
    to: str
    request: str
    body: str
    claims: Claims
    may_confirm: bool = False
    source: str = ""
    base: str = ""

    def check(self, body: bytes) -> None:
        """Check that the request has this body.

        Raises:
            Unauthorized: If it has another one.
        """
        if self.body != digest_of(body):
            raise Unauthorized(_OTHER)


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def issue_ticket(key: KeyPair, hub_id: str, ticket: Ticket) -> str:
    """Sign a ticket."""
    payload = {
        "iss": hub_id,
        "aud": _AUDIENCE,
        "exp": int(time.time()) + _LIFETIME_S,
        "jti": uuid.uuid4().hex,
        "ticket": ticket.model_dump(mode="json"),
    }
    return jwt.encode(payload, key.for_tokens, algorithm=_ALGORITHM, headers={"kid": key.kid})


class TicketCheck:
    """Reads the tickets for one replica."""

    def __init__(self, key: PublicKey, *, hub_id: str, instance: str) -> None:
        self._key = key
        self._hub_id = hub_id
        self._instance = instance
        self._used: dict[str, float] = {}

    def read(self, text: str, *, purpose: str, request: str) -> Ticket:
        """Return a ticket for this request, which has not been used before; its body is not checked yet.

        Raises:
            Unauthorized: If it is none.
        """
        try:
            payload = jwt.decode(
                text,
                self._key.for_tokens,
                algorithms=[_ALGORITHM],
                audience=_AUDIENCE,
                issuer=self._hub_id,
                leeway=LEEWAY_S,
                options={"require": ["iss", "aud", "exp", "jti"]},
            )
            ticket = Ticket.model_validate(payload["ticket"])
        except jwt.ExpiredSignatureError:
            raise Unauthorized(
                "the ticket of a replica has expired", hint="Set the clocks of all replicas by NTP."
            ) from None
        except (jwt.PyJWTError, ValidationError, KeyError, ValueError):
            raise Unauthorized("the ticket of a replica is not valid") from None
        said = (ticket.purpose, ticket.to, ticket.request)
        if said != (purpose, self._instance, request) or not self._is_new(payload["jti"]):
            raise Unauthorized(_OTHER)
        return ticket

    def _is_new(self, jti: str) -> bool:
        now = time.monotonic()
        if len(self._used) >= _MOST:
            self._used = {each: until for each, until in self._used.items() if until > now}
        if jti in self._used or len(self._used) >= _MOST:
            return False
        # A little longer than it is good.
        self._used[jti] = now + _LIFETIME_S + 2 * LEEWAY_S
        return True
