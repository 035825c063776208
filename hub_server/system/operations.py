"""The state of the hub: ``/api/system``, its log, backup and restore; and their page."""

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final, cast

from pydantic import Field, SecretStr
from starlette.requests import Request

from chat.http.requests import Download, Uploaded
from chat.http.streams import HEARTBEAT_S, EventStream
from chat.operations import ADMIN, Needs, Resource
from contracts.errors import ConfigError, Conflict, InvalidMessage, LinkError
from contracts.wire import Part, Timestamp
from hub_agent.parts import HubParts
from hub_registry.access.bearer import Bearer
from hub_registry.http.devices import device_answer
from hub_server import limits
from hub_server.leading import Leader
from hub_server.system.host import BackupContents, CheckAnswer, Health, Host
from hub_server.system.logs import Level, ShownLine
from identity.files import make_private_directory
from sandbox_host.pool import PoolState

_log = logging.getLogger(__name__)

_PIECE: Final = 256 * 1024


class DatabaseState(Part):
    """The size of the database, None where it is on a server, and the revision of its schema."""

    bytes: int | None
    revision: str


class HubState(Health):
    """What is known of the running hub without looking closer.

    Attributes:
        sandbox: Processes and programs by state; None while no program ran yet.
    """

    python: str
    system: str
    home: str
    started_at: Timestamp
    memory_mb: int
    database: DatabaseState
    sandbox: PoolState | None


class SystemState(HubState):
    """The running hub, and whether it starts again by itself."""

    can_restart: bool


class RestorableBackup(BackupContents):
    """A backup that was uploaded, and whether this hub restores it while it runs."""

    can_restart: bool


_Passphrase = Annotated[SecretStr, Field(max_length=1_000)]


@dataclass(frozen=True)
class System:
    """The installation and what is known of it.

    Attributes:
        about: Gives what is known of the running hub.
        health: As ``/api/health`` shows it.
        fingerprint: Gives that of the present certificate; empty without TLS.
        at_work: Held while a backup is written or read.
    """

    parts: HubParts
    leader: Leader
    host: Host
    about: Callable[[], HubState]
    health: Callable[[], Health]
    fingerprint: Callable[[], str]
    at_work: asyncio.Lock = field(default_factory=asyncio.Lock)


_IN_PERSON: Final = Needs(("admin",), admin=True, confirms=True)
"""A backup holds all keys."""
_WITH_PASSWORD: Final = replace(_IN_PERSON, password=True)

system: Resource[System, Bearer] = Resource("system", "/api/system")


@system.get(ADMIN)
async def show_system(system: System, asking: Bearer) -> SystemState:
    """Return what `/api/health` says, and more of the running hub; `sandbox` is null until it is ready."""
    return SystemState(**vars(system.about()), can_restart=system.host.can_restart)


@system.get(ADMIN, "/checks")
async def list_checks(system: System, asking: Bearer) -> list[CheckAnswer]:
    """Look at this installation, as `strawberry doctor` does."""
    devices = [device_answer(each, asking) for each in system.parts.registry.directory.entries()]
    return await asyncio.to_thread(
        system.host.check, health=system.health(), devices=devices, servers=system.leader.servers()
    )


@system.get(ADMIN, "/logs")
async def list_lines(
    system: System,
    asking: Bearer,
    level: Level = "info",
    last: Annotated[int, Field(ge=0, le=2_000)] = 200,
) -> list[ShownLine]:
    """List the latest lines of the log, without secrets, at most 2,000 since the hub started.

    Args:
        level: The least.
    """
    return _recent(system, level, last)


@system.stream(ADMIN, "/logs", switch="follow", most=limits.LOG_STREAMS)
async def follow_lines(
    system: System,
    asking: Bearer,
    level: Level = "info",
    last: Annotated[int, Field(ge=0, le=2_000)] = 200,
) -> AsyncIterator[ShownLine | None]:
    """Yield the latest lines of the log, and each new one."""

    async def lines(after: int, recent: list[ShownLine]) -> AsyncIterator[ShownLine | None]:
        for line in recent:
            yield line
        async for some in system.host.logs.follow(after, level=level, idle_s=HEARTBEAT_S):
            if time.time() >= asking.claims.exp:
                return
            for each in some:
                yield each
            if not some:
                yield None

    return lines(system.host.logs.latest, _recent(system, level, last))


@system.post(_WITH_PASSWORD, "/backup")
async def back_up(
    system: System, asking: Bearer, passphrase: _Passphrase, captures: bool = False
) -> Download:
    """Return the [backup](backup.md), as a file."""
    async with _alone(system.at_work):
        # Without a name where the system can do that, so that nothing is ever left of it.
        file = cast("BinaryIO", tempfile.TemporaryFile(dir=system.parts.settings.home, prefix=".backup-"))  # noqa: SIM115
        try:
            with explained():
                await asyncio.to_thread(system.host.write_backup, file, passphrase, captures=captures)
        except BaseException:
            file.close()
            raise
    _log.info("a backup was made by %s", asking.user.id)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    name = f"strawberry-{datetime.now(UTC):%Y-%m-%d}.age"
    return EventStream(
        _pieces(file),
        connections=system.parts.connections,
        headers={"content-length": str(size), "content-disposition": f'attachment; filename="{name}"'},
        token=asking.claims.jti,
        media_type="application/octet-stream",
    )


@system.put(_IN_PERSON, "/restore")
async def upload(
    system: System,
    asking: Bearer,
    request: Request,
    at: Annotated[int, Field(ge=0, le=limits.MAX_UPLOADED_BYTES)] = 0,
) -> Uploaded:
    """Accept the bytes of a backup from `at` on, at most 1 MiB a request; `at=0` starts over.

    The first piece needs the password, too.
    """
    # An upload may take longer than a password counts.
    if at == 0:
        await asking.require_password()
    piece = await request.body()
    async with _alone(system.at_work):
        return Uploaded(bytes=await asyncio.to_thread(_append, system.host.upload, at, piece))


@system.post(_WITH_PASSWORD, "/restore")
async def restore(
    system: System,
    asking: Bearer,
    passphrase: _Passphrase,
    apply: bool = False,
    revoke: Annotated[list[str], Field(max_length=1_000)] = [],  # noqa: B006
) -> RestorableBackup:
    """Return what the uploaded backup holds.

    Args:
        apply: Whether the hub restarts with it, [keeping the old files](backup.md#restoring).
        revoke: Ids of devices in it that do not come back.
    """
    async with _alone(system.at_work):
        with explained():
            if apply:
                found = await asyncio.to_thread(system.host.restore, passphrase, revoke)
            else:
                found = await asyncio.to_thread(system.host.read_backup, passphrase)
    if apply:
        _log.warning("a backup of %s is restored, by %s", found.created_at, asking.user.id)
        asyncio.get_running_loop().call_later(limits.RESTART_S, system.host.restart)
    return RestorableBackup(**vars(found), can_restart=system.host.can_restart)


def _recent(system: System, level: Level, last: int) -> list[ShownLine]:
    lines = system.host.logs.lines(level=level)
    return lines[max(len(lines) - last, 0) :]


@asynccontextmanager
async def _alone(lock: asyncio.Lock) -> AsyncIterator[None]:
    """Hold a lock, and refuse to wait for it: a person would start one more while the first still works."""
    if lock.locked():
        raise Conflict("a backup is written or read right now", hint="Wait until that is done.")
    async with lock:
        yield


@contextmanager
def explained() -> Iterator[None]:
    """Answer with what is wrong with a passphrase, a file, an address or a login.

    Raises:
        InvalidMessage: In place of a `ConfigError` or a `LinkError`.
    """
    try:
        yield
    except (ConfigError, LinkError) as error:
        raise InvalidMessage(error.message, hint=error.hint) from None


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece


def _append(path: Path, at: int, piece: bytes) -> int:
    """Add a piece to an upload; the first one starts it over."""
    make_private_directory(path.parent)
    if at == 0:
        path.unlink(missing_ok=True)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(opened, "ab") as file:
        size = file.tell()
        if at != size:
            raise Conflict("the upload has {size} bytes, so the next piece is not at {at}", size=size, at=at)
        if size + len(piece) > limits.MAX_UPLOADED_BYTES:
            raise InvalidMessage("a backup may have {most:,} bytes over HTTP", most=limits.MAX_UPLOADED_BYTES)
        file.write(piece)
        return size + len(piece)
