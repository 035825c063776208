"""Answers of the hub to NATS's question who may log in, see "Auth Callout" of its documentation."""

import base64
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import nkeys
from nats.aio.msg import Msg

from broker import limits
from broker.logins import LoginCheck
from broker.nats.keys import ACCOUNT
from contracts.access import Action, Principal, whole_rights
from contracts.addresses import is_loopback, source_of_host
from contracts.claims import Claims
from contracts.errors import Forbidden, StorageError, StrawberryError, TooManyRequests, Unauthorized
from contracts.rates import Clock, TokenBuckets, complaint_limit

__all__ = ["SUBJECT", "Callout", "login_name"]

_log = logging.getLogger(__name__)

SUBJECT = "$SYS.REQ.USER.AUTH"
"""Where a server asks, in the account of the hub."""


class Callout:
    """Answers requests to log in.

    Args:
        issuer: Key whose signature the servers accept.
    """

    def __init__(
        self,
        issuer: nkeys.KeyPair,
        check: LoginCheck,
        read_revoked: Callable[[Claims], Awaitable[bool]] | None = None,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._check = check
        self._read_revoked = read_revoked
        burst, per_second = limits.NATS_REFUSALS
        self._refusals = TokenBuckets(burst=burst, per_second=per_second, clock=clock)
        self._complaints = complaint_limit(clock)

    async def answer(self, message: Msg) -> None:
        """Answer one request; it is a JWT of the server, and so is the answer."""
        try:
            request = _claims(message.data)["nats"]
            answer = await self._answer(request, request["client_info"], request["connect_opts"])
        except (ValueError, LookupError, TypeError):
            _log.warning("a request of NATS to log in cannot be read")
            return
        await message.respond(answer.encode())

    async def _answer(self, request: dict[str, Any], client: dict[str, Any], options: dict[str, Any]) -> str:
        name, client_id, host = options.get("user"), client.get("mqtt_id"), client.get("host", "")
        source = source_of_host(host)
        result: dict[str, Any]
        try:
            # Programs on this machine share one address, the hub among them.
            if self._refusals.is_empty(source) and not is_loopback(host):
                raise TooManyRequests("too many logins of its address were refused")
            claims = self._check.admit(username=name, client_id=client_id, password=options.get("pass"))
            if self._read_revoked is not None and await self._read_revoked(claims):
                raise Unauthorized("the token has been revoked")
            result = {"jwt": self._user(request["user_nkey"], claims)}
        except StrawberryError as error:
            if not isinstance(error, StorageError):
                self._refusals.take(source)
            if self._complaints.take(source):
                told = "NATS: refused the login of %.100r as %.100r from %.100s: %s"
                _log.warning(told, client_id, name, source, error.message)
            result = {"error": error.message if isinstance(error, Unauthorized) else "refused"}
        return self._signed(
            {
                "sub": request["user_nkey"],
                "aud": request["server_id"]["id"],
                "nats": {"type": "authorization_response", "version": 2, **result},
            }
        )

    def _user(self, user_key: str, claims: Claims) -> str:
        principal = Principal.of(claims)
        user = {
            "type": "user",
            "version": 2,
            "subs": -1,
            "data": -1,
            "payload": -1,
            "allowed_connection_types": _MQTT,
        }
        return self._signed(
            {
                "sub": user_key,
                "name": login_name(principal, claims.jti),
                "aud": ACCOUNT,
                # The server ends the connection then.
                "exp": claims.exp,
                "nats": user | _permissions(principal),
            }
        )

    def _signed(self, claims: dict[str, Any]) -> str:
        issued = {
            "iss": self._issuer.public_key.decode(),
            "iat": int(time.time()),
            "jti": secrets.token_hex(16),
        }
        head = _encoded({"typ": "JWT", "alg": "ed25519-nkey"})
        body = f"{head}.{_encoded(issued | claims)}"
        return f"{body}.{_base64(self._issuer.sign(body.encode()))}"


_MQTT = ["MQTT", "MQTT_WS"]


def login_name(principal: Principal, token: str = "") -> str:
    """Return the name under which servers list a connection; without a token, its prefix."""
    return f"{principal.kind}/{principal.id}/{token}"


def _claims(token: bytes) -> dict[str, Any]:
    # Not verified: only servers with the system account publish there.
    body = token.split(b".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
    return claims


def _encoded(content: dict[str, Any]) -> str:
    return _base64(json.dumps(content, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _permissions(principal: Principal) -> dict[str, Any]:
    """Return the permissions of a user JWT: subjects, of which only those in a list are allowed.

    Raises:
        Forbidden: If a right cannot be written as a subject.
    """
    given = list(whole_rights(principal))
    ways: tuple[tuple[str, Action], ...] = (("pub", "publish"), ("sub", "subscribe"))
    return {name: _only(topic for action, topic in given if action == way) for name, way in ways}


def _only(filters: Iterable[str]) -> dict[str, list[str]]:
    allow = [subject for each in filters for subject in _subjects(each)]
    # An empty list would allow everything.
    return {"allow": allow} if allow else {"deny": [">"]}


def _subjects(filter_: str) -> Iterator[str]:
    """Return the subjects of a topic filter: ``a/#`` is ``a`` and ``a.>``.

    Raises:
        Forbidden: If a level has characters that mean something else in a subject.
    """
    *levels, last = [_token(each) for each in filter_.split("/")]
    if last == ">" and levels:
        yield ".".join(levels)
    yield ".".join((*levels, last))


def _token(level: str) -> str:
    if level in ("+", "#"):
        return {"+": "*", "#": ">"}[level]
    if not level or not level.isprintable() or any(each in " *>" for each in level):
        raise Forbidden(f"the level {level!r} of a topic cannot be used on NATS")
    # The server's own way to write a dot, which separates levels there.
    return level.replace(".", "//")
