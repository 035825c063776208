"""What may no longer log in: told by the hub, kept over a restart of the broker."""

import json
import time
from pathlib import Path
from typing import Final

from contracts.claims import Claims
from contracts.errors import ConfigError
from contracts.presence import Revocation
from identity.files import write_private

_KEEP_S: Final = 2 * 366 * 86_400
"""Seconds a revocation is kept: no token lives for two years, so an older entry stops nothing."""


class Revocations:
    """The tokens that are refused, and the one token of each principal that has no other.

    ``revoked.json`` holds ``{"tokens": {jti: told at}, "only": {"kind/id": [jti, told at]}}``, in seconds
    since the epoch.
    """

    def __init__(self, path: Path, *, tokens: dict[str, float], only: dict[str, tuple[str, float]]) -> None:
        self._path = path
        self._tokens = tokens
        self._only = only

    @classmethod
    def load(cls, path: Path) -> "Revocations":
        """Read the file; without one nothing is revoked.

        Raises:
            ConfigError: If the file is there and cannot be understood: to go on would revive tokens.
        """
        if not path.exists():
            return cls(path, tokens={}, only={})
        tokens, only = _parse(path)
        return cls(path, tokens=tokens, only=only)

    def covers(self, claims: Claims) -> bool:
        """Whether the token is revoked, or its principal has another one by now."""
        only = self._only.get(f"{claims.kind}/{claims.sub}")
        return claims.jti in self._tokens or (only is not None and only[0] != claims.jti)

    def add(self, revocation: Revocation) -> None:
        """Take a revocation in, drop those that nothing can use any more."""
        at = revocation.before.timestamp()
        for token in revocation.tokens:
            self._tokens[token] = at
        for principal, token in revocation.only.items():
            self._only[principal] = (token, at)
        oldest = time.time() - _KEEP_S
        self._tokens = {token: moment for token, moment in self._tokens.items() if moment >= oldest}
        self._only = {name: said for name, said in self._only.items() if said[1] >= oldest}

    def save(self) -> None:
        """Store them owner-only; on the disk when this returns."""
        content = {"tokens": self._tokens, "only": self._only}
        write_private(self._path, json.dumps(content, indent=1).encode())


def _parse(path: Path) -> tuple[dict[str, float], dict[str, tuple[str, float]]]:
    try:
        content = json.loads(path.read_bytes())
        tokens = {str(token): float(at) for token, at in content["tokens"].items()}
        # The first version's file has none.
        only = {str(name): (str(token), float(at)) for name, (token, at) in content.get("only", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{path} cannot be read", hint="Restore it from a backup; it keeps revoked tokens out."
        ) from None
    return tokens, only
