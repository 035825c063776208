"""The state of the hub over HTTP: health, log, backup and restore; for admins."""

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal, cast

from pydantic import Field, SecretStr
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, NoBody, Uploaded, answer, read, read_query
from chat.http.streams import HEARTBEAT, HEARTBEAT_S, Connections, EventStream, Streams, event
from contracts.answers.devices import DeviceAnswer
from contracts.answers.system import McpServers
from contracts.errors import ConfigError, Conflict, InvalidMessage
from contracts.wire import Part, Strict, Timestamp
from hub_registry.access.bearer import Bearer, Gate, cannot_confirm
from hub_server import limits
from hub_server.system.host import BackupContents, CheckAnswer, Health, Host
from hub_server.system.logs import LogLine
from identity.files import make_private_directory
from sandbox_host.pool import PoolState

_log = logging.getLogger(__name__)

_PIECE: Final = 256 * 1024
Level = Literal["debug", "info", "warning", "error"]
_LEVELS: Final[dict[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_NAMES: Final = {number: name for name, number in _LEVELS.items()}


class DatabaseState(Part):
    """The size of the database, and the revision of its schema."""

    bytes: int
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


class ShownLine(Part):
    """A line of the log."""

    id: int
    at: Timestamp
    level: Level
    logger: str
    text: str


class RestorableBackup(BackupContents):
    """A backup that was uploaded, and whether this hub restores it while it runs."""

    can_restart: bool


class _Logs(Strict):
    """Query parameters of the log: the ``last`` lines of at least a level, and those that follow."""

    level: Level = "info"
    last: Annotated[int, Field(ge=0, le=2_000)] = 200
    follow: bool = False


class _Backup(Strict):
    """A backup that is wanted."""

    passphrase: Annotated[SecretStr, Field(max_length=1_000)]
    captures: bool = False


class _Piece(Strict):
    """Where in the file a piece of an upload belongs."""

    at: Annotated[int, Field(ge=0, le=limits.MAX_UPLOADED_BYTES)] = 0


class _Restore(Strict):
    """What was uploaded is checked, and with ``apply`` restored.

    Attributes:
        revoke: Ids of devices in the backup that do not come back.
    """

    passphrase: Annotated[SecretStr, Field(max_length=1_000)]
    apply: bool = False
    revoke: Annotated[list[str], Field(max_length=1_000)] = []


@dataclass(frozen=True)
class SystemRoutes:
    """The routes of the system.

    Attributes:
        home: The data directory.
        about: Gives what is known of the running hub.
        health: As ``/api/health`` shows it.
        devices: Gives all devices as ``/api/devices`` shows them.
        servers: Gives all servers as ``/api/mcp/servers`` shows them.
        may_confirm: Whether a person confirms calls through a caller: a backup holds all keys.
    """

    home: Path
    host: Host
    gate: Gate
    connections: Connections
    about: Callable[[], HubState]
    health: Callable[[], Health]
    devices: Callable[[Bearer], list[DeviceAnswer]]
    servers: Callable[[], McpServers]
    may_confirm: Callable[[Bearer], bool]

    def routes(self) -> list[BaseRoute]:
        """Make the routes."""
        streams = Streams(self.connections, most=limits.LOG_STREAMS)
        at_work = asyncio.Lock()

        async def person(request: Request, *, goes_on: bool = False) -> Bearer:
            bearer = await self.gate.require_admin(request)
            if not self.may_confirm(bearer):
                raise cannot_confirm()
            # An upload may take longer than a password counts.
            return bearer if goes_on else await self.gate.require_password(request)

        async def system(request: Request) -> Answer[SystemState]:
            await self.gate.require_admin(request)
            return answer(SystemState(**vars(self.about()), can_restart=self.host.can_restart))

        async def checks(request: Request) -> Answer[list[CheckAnswer]]:
            bearer = await self.gate.require_admin(request)
            found = await asyncio.to_thread(
                self.host.check,
                health=self.health(),
                devices=self.devices(bearer),
                servers=self.servers(),
            )
            return answer(found)

        async def logs(request: Request) -> Answer[list[ShownLine]] | EventStream:
            bearer, query = await self.gate.require_admin(request), read_query(request, _Logs)
            token, level = bearer.claims.jti, _LEVELS[query.level]
            after, lines = self.host.logs.latest, self.host.logs.lines(level=level)
            recent = lines[len(lines) - query.last :] if query.last < len(lines) else lines
            if not query.follow:
                return answer([_shown(line) for line in recent])

            async def chunks() -> AsyncGenerator[bytes, None]:
                yield b": log\n\n"
                for line in recent:
                    yield event(_shown(line))
                async for some in self.host.logs.follow(after, level=level, idle_s=HEARTBEAT_S):
                    if time.time() >= bearer.claims.exp:
                        return
                    for line in some:
                        yield event(_shown(line))
                    if not some:
                        yield HEARTBEAT

            return streams.answer(token, chunks())

        async def back_up(request: Request) -> Annotated[EventStream, "application/octet-stream"]:
            bearer = await person(request)
            body = await read(request, _Backup)
            async with _alone(at_work):
                # Without a name where the system can do that, so that nothing is ever left of it.
                file = cast("BinaryIO", tempfile.TemporaryFile(dir=self.home, prefix=".backup-"))  # noqa: SIM115
                try:
                    with _explained():
                        await asyncio.to_thread(
                            self.host.write_backup, file, body.passphrase, captures=body.captures
                        )
                except BaseException:
                    file.close()
                    raise
            _log.info("a backup was made by %s", bearer.user.id)
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            name = f"strawberry-{datetime.now(UTC):%Y-%m-%d}.age"
            return EventStream(
                _pieces(file),
                connections=self.connections,
                headers={
                    "content-length": str(size),
                    "content-disposition": f'attachment; filename="{name}"',
                },
                token=bearer.claims.jti,
                media_type="application/octet-stream",
            )

        async def upload(request: Request) -> Answer[Uploaded]:
            at = read_query(request, _Piece).at
            await person(request, goes_on=at > 0)
            piece = await request.body()
            async with _alone(at_work):
                size = await asyncio.to_thread(_append, self.host.upload, at, piece)
            return answer(Uploaded(bytes=size))

        async def restore(request: Request) -> Answer[RestorableBackup] | NoBody:
            bearer = await person(request)
            body = await read(request, _Restore)
            async with _alone(at_work):
                with _explained():
                    if not body.apply:
                        found = await asyncio.to_thread(self.host.read_backup, body.passphrase)
                        return answer(RestorableBackup(**vars(found), can_restart=self.host.can_restart))
                    found = await asyncio.to_thread(self.host.restore, body.passphrase, body.revoke)
            _log.warning("a backup of %s is restored, by %s", found.created_at, bearer.user.id)
            return NoBody(status=202, background=BackgroundTask(self.host.restart))

        return [
            Route("/api/system", system),
            Route("/api/system/checks", checks),
            Route("/api/system/logs", logs),
            Route("/api/system/backup", back_up, methods=["POST"]),
            Route("/api/system/restore", upload, methods=["PUT"]),
            Route("/api/system/restore", restore, methods=["POST"]),
        ]


def _shown(line: LogLine) -> ShownLine:
    level = _NAMES.get(line.level // 10 * 10, "error")
    return ShownLine(id=line.id, at=line.at, level=level, logger=line.logger, text=line.text)


@asynccontextmanager
async def _alone(lock: asyncio.Lock) -> AsyncIterator[None]:
    """Hold a lock, and refuse to wait for it: a person would start one more while the first still works."""
    if lock.locked():
        raise Conflict("a backup is written or read right now", hint="Wait until that is done.")
    async with lock:
        yield


@contextmanager
def _explained() -> Iterator[None]:
    """Answer with what is wrong with a passphrase or a file."""
    try:
        yield
    except ConfigError as error:
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
