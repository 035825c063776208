"""Logins of the embedded broker: tokens, those that are revoked, and the rights that follow."""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, cast

from amqtt.contexts import BaseContext
from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session

from broker.limits import REVOCATION_KEPT_S
from broker.logins import LoginCheck
from contracts import access
from contracts.access import Action, Principal, Right
from contracts.claims import Claims
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError
from identity.files import write_private


@dataclass(eq=False)
class Revocations:
    """The tokens that are refused, and the one token of each principal that has no other.

    ``revoked.json`` holds ``{"tokens": {jti: told at}, "only": {"kind/id": [jti, told at]}}``, in seconds
    since the epoch; after a restore also ``"listed_since"``: of tokens that were issued before, only those in
    ``only`` count, because what was revoked since the backup is not known.
    """

    path: Path
    _: KW_ONLY
    tokens: dict[str, float]
    only: dict[str, tuple[str, float]]
    listed_since: float = 0

    @classmethod
    def load(cls, path: Path) -> "Revocations":
        """Read the file; without one nothing is revoked.

        Raises:
            ConfigError: If the file is there and cannot be understood: to go on would revive tokens.
        """
        if not path.exists():
            return cls(path, tokens={}, only={})
        tokens, only, listed_since = _parse(path)
        return cls(path, tokens=tokens, only=only, listed_since=listed_since)

    def covers(self, claims: Claims) -> bool:
        """Return whether the token is revoked, or its principal has another one by now."""
        only = self.only.get(f"{claims.kind}/{claims.sub}")
        if only is None:
            # The hub makes itself a token at each login, and is on no list.
            is_unlisted = claims.kind != "hub" and claims.iat <= self.listed_since
            return claims.jti in self.tokens or is_unlisted
        return claims.jti in self.tokens or only[0] != claims.jti

    def restored(self, revoked: Iterable[str], *, replaced: "Revocations | None") -> None:
        """Go on after a restore: with these tokens revoked, and what the replaced broker knew besides."""
        self.listed_since = float(int(time.time()))
        if replaced is not None:
            self.tokens |= replaced.tokens
            self.only |= replaced.only
        self.tokens |= dict.fromkeys(revoked, self.listed_since)

    def add(self, revocation: Revocation) -> None:
        """Apply a revocation, and drop those that no token can use any more."""
        at = revocation.before.timestamp()
        tokens = self.tokens | dict.fromkeys(revocation.tokens, at)
        only = self.only | {name: (token, at) for name, token in revocation.only.items()}
        oldest = time.time() - REVOCATION_KEPT_S
        # New ones: a thread may be writing those of before to the file.
        self.tokens = {token: moment for token, moment in tokens.items() if moment >= oldest}
        self.only = {name: said for name, said in only.items() if said[1] >= oldest}

    def save(self) -> None:
        """Store them owner-only; on the disk when this returns."""
        content = {"tokens": self.tokens, "only": self.only, "listed_since": self.listed_since}
        write_private(self.path, json.dumps(content, indent=1).encode())


def _parse(path: Path) -> tuple[dict[str, float], dict[str, tuple[str, float]], float]:
    try:
        content = json.loads(path.read_bytes())
        tokens = {str(token): float(at) for token, at in content["tokens"].items()}
        # The first version's file has none.
        only = {str(name): (str(token), float(at)) for name, (token, at) in content.get("only", {}).items()}
        listed_since = float(content.get("listed_since", 0))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{path} cannot be read", hint="Restore it from a backup; it keeps revoked tokens out."
        ) from None
    return tokens, only, listed_since


_LOGIN: Final = "strawberry.login"
"""Where a session keeps its :class:`VerifiedLogin`."""


class CompiledRights:
    """The rights of one session in a form that answers in one step per message."""

    def __init__(self, rights: Iterable[Right]) -> None:
        self._rights = tuple(rights)
        self._publish = _pattern(self._rights, "publish")
        self._receive = _pattern(self._rights, "receive")

    def may_publish(self, topic: str) -> bool:
        return self._publish.fullmatch(topic) is not None

    def may_receive(self, topic: str) -> bool:
        return self._receive.fullmatch(topic) is not None

    def may_subscribe(self, filter_: str) -> bool:
        # The whole of the filter lies within one right.
        return access.allowed(self._rights, "subscribe", filter_)

    def may_receive_all(self, filter_: str) -> bool:
        # No message of it need be checked then.
        return access.allowed(self._rights, "receive", filter_)


def _pattern(rights: Iterable[Right], action: Action) -> re.Pattern[str]:
    """Return the pattern of the topics that ``access.allowed`` permits; it matches nothing for no right."""
    filters = [_filter_pattern(right.filter) for right in rights if right.action == action]
    return re.compile("|".join(filters) or r"(?!)")


def _filter_pattern(filter_: str) -> str:
    first, *rest = filter_.split("/")
    # A wildcard in the first place does not reach topics of the broker's own (MQTT 3.1.1, 4.7.2).
    pattern = {"#": r"(?!\$)[\s\S]*", "+": r"(?!\$)[^/]*"}.get(first, re.escape(first))
    for level in rest:
        pattern += {"#": r"(?:/[\s\S]*)?", "+": "/[^/]*"}.get(level, "/" + re.escape(level))
    return f"(?:{pattern})"


@dataclass(frozen=True)
class VerifiedLogin:
    """A principal that has logged in with a valid token."""

    principal: Principal
    claims: Claims

    @cached_property
    def rights(self) -> CompiledRights:
        return CompiledRights(access.rights(self.principal))

    @property
    def name(self) -> str:
        return f"{self.principal.kind} {self.principal.id}"

    @staticmethod
    def of(session: Session) -> "VerifiedLogin":
        """Return the login of a session that has logged in."""
        login: VerifiedLogin = session.attributes[_LOGIN]
        return login


class TokenLogin(BaseAuthPlugin):
    """Accepts logins with a token of the hub, and no others."""

    @dataclass
    class Config:
        """Settings of the plugin, as amqtt passes them."""

        check: LoginCheck

    def __init__(self, context: BaseContext) -> None:
        super().__init__(context)
        self._check = cast("TokenLogin.Config", context.config).check

    async def authenticate(self, *, session: Session) -> bool:
        """Check the session's username, client id and password; keep its login on it.

        Raises:
            Unauthorized: With the reason.
        """
        claims = self._check.admit(
            username=session.username, client_id=session.client_id, password=session.password
        )
        session.attributes[_LOGIN] = VerifiedLogin(Principal.of(claims), claims)
        session.password = None  # it is not needed again, and sessions appear in logs
        return True
