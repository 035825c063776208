"""Address and token that a running hub leaves for the command line of its owner."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from contracts.claims import SCOPES, Claims
from contracts.errors import Unauthorized
from contracts.wire import rfc3339
from hub_agent import limits
from hub_registry.access.token_rows import TokenRequest
from hub_registry.limits import USER_TOKEN_S
from hub_registry.registry import Registry
from hub_registry.storage.tables import now
from identity.files import write_private

COMMAND_LINE: Final = "command line"


@contextmanager
def announced(directory: Path, url: str) -> Iterator[None]:
    """Write the hub's address to ``run.json`` for as long as the block lasts."""
    file = directory / "run.json"
    content = {"url": url, "pid": os.getpid(), "started_at": rfc3339(now())}
    write_private(file, json.dumps(content).encode())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


async def provide_token(directory: Path, registry: Registry) -> None:
    """Write a token of the first admin with all scopes to ``cli.token`` unless there is a valid one."""
    file = directory / "cli.token"
    stored = _stored(file, registry)
    if stored is not None and _is_good(stored, registry):
        return
    token = await registry.authority.issue(
        TokenRequest(
            kind="user",
            subject=registry.admin.id,
            owner=registry.admin.id,
            scopes=SCOPES,
            lifetime_s=USER_TOKEN_S,
            name=COMMAND_LINE,
        )
    )
    write_private(file, token.encode())
    if stored is not None:
        await registry.authority.revoke([stored.jti])


def _stored(file: Path, registry: Registry) -> Claims | None:
    try:
        return registry.authority.check(file.read_text("ascii").strip())
    except (OSError, ValueError, Unauthorized):
        return None


def _is_good(claims: Claims, registry: Registry) -> bool:
    is_all = claims.sub == registry.admin.id and claims.scopes == frozenset(SCOPES)
    return is_all and claims.exp > time.time() + limits.TOKEN_RENEWAL_S
