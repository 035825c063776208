"""What may no longer log in: told by the hub, kept over a restart of the broker."""

import json
import time
from pathlib import Path
from typing import Any, Final

from broker.files import write_private
from contracts.claims import Claims
from contracts.errors import ConfigError
from contracts.presence import Revocation

_KEEP_S: Final = 2 * 366 * 86_400
"""Seconds a revocation is kept: no token lives for two years, so an older entry stops nothing."""


class Revocations:
    """The tokens and principals that are refused.

    ``revoked.json`` holds ``{"tokens": {jti: revoked at}, "principals": {subject: before}}``, in seconds
    since the epoch.
    """

    def __init__(self, path: Path, *, tokens: dict[str, float], principals: dict[str, float]) -> None:
        self._path = path
        self._tokens = tokens
        self._principals = principals

    @classmethod
    def load(cls, path: Path) -> "Revocations":
        """Read the file; without one nothing is revoked.

        Raises:
            ConfigError: If the file is there and cannot be understood: to go on would revive tokens.
        """
        if not path.exists():
            return cls(path, tokens={}, principals={})
        return cls(path, **_parse(path))

    def covers(self, claims: Claims) -> bool:
        """Whether the token is revoked.

        A token of the very second of a principal's revocation counts as issued before it, because
        ``iat`` has whole seconds.
        """
        before = self._principals.get(claims.sub)
        return claims.jti in self._tokens or (before is not None and claims.iat < before)

    def add(self, revocation: Revocation) -> None:
        """Take a revocation in, drop those that nothing can use any more."""
        at = revocation.before.timestamp()
        for token in revocation.tokens:
            self._tokens[token] = at
        for principal in revocation.principals:
            self._principals[principal] = max(at, self._principals.get(principal, at))
        oldest = time.time() - _KEEP_S
        for table in (self._tokens, self._principals):
            for key in [key for key, moment in table.items() if moment < oldest]:
                del table[key]

    def save(self) -> None:
        """Store them owner-only; on the disk when this returns."""
        content = {"tokens": self._tokens, "principals": self._principals}
        write_private(self._path, json.dumps(content, indent=1).encode())


def _parse(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        return {
            name: {str(k): float(v) for k, v in content[name].items()} for name in ("tokens", "principals")
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{path} cannot be read", hint="Restore it from a backup; it keeps revoked tokens out."
        ) from None
