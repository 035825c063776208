"""The files that all replicas of a hub share: what is edited at one is stored, and written at the others.

They are ``SOUL.md``, ``MEMORY.md`` and ``agents/*.yml``, and some tables of ``strawberry.toml``. Python files
of agents are not among them, nor tables with addresses or paths: who can write to the database could run
programs then, or have passwords sent elsewhere.
"""

import asyncio
import hashlib
import json
import logging
import re
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from pydantic import TypeAdapter
from sqlmodel import Session, select

from agent_core.files.edited_file import MAX_BYTES
from agent_core.models.entries import SETTINGS_FILE
from contracts.errors import ConfigError, InvalidMessage, StrawberryError
from hub_agent.agents.agent import DIRECTORY, SUFFIX
from hub_agent.prompt.soul import SOUL_FILE
from hub_live.memory.memory import FILE_NAME
from hub_registry.storage.store import Outage, Store
from hub_registry.storage.tables import SharedFileRow
from hub_server import limits
from hub_server.replicas.routing import Routing
from hub_server.system.host import Host
from identity.files import write_private

_log = logging.getLogger(__name__)

_KNOWN: Final = "shared.json"
_LEFT: Final = "left: "
"""Begins the name in it of what was edited and not stored when this replica stopped."""
_OF_HUB: Final = (SOUL_FILE, FILE_NAME)
_HOUSEHOLD: Final = "[household]"
_TABLES: Final = (_HOUSEHOLD, "[home_assistant]")
_EDITED_TWICE: Final = "%s was edited on two replicas; what it held here is in %s"
_REPLACED: Final = "%s held other settings than the database, which count; what it held is in %s"
_AGENT: Final = re.compile(rf"{DIRECTORY}/[A-Za-z0-9][A-Za-z0-9_-]{{0,63}}{re.escape(SUFFIX)}")


class SharedFiles:
    """The copies of this replica. A file or table that is missing counts as an empty one.

    Args:
        host: Reads and writes the tables.
        routing: Knows who leads, whose tables are stored first, and in which order replicas restart.
        home: ``STRAWBERRY_HOME``.
        hub: The directory of the hub in it.
    """

    def __init__(self, store: Store, host: Host, routing: Routing, *, home: Path, hub: Path) -> None:
        self._store = store
        self._host = host
        self._home = home
        self._hub = hub
        self._routing = routing
        # Digests of what was the same here and in the database; what differs from it was edited.
        try:
            noted = TypeAdapter(dict[str, str]).validate_json((hub / _KNOWN).read_bytes())
        except (OSError, ValueError):
            noted = {}
        self._left = {name.removeprefix(_LEFT): own for name, own in noted.items() if name.startswith(_LEFT)}
        self._known = {name: own for name, own in noted.items() if not name.startswith(_LEFT)}
        # A pod has the settings of its ConfigMap at each start: what is stored counts there.
        self._not_compared = set(_TABLES)

    async def run(self) -> NoReturn:
        """Keep them the same everywhere, until cancelled."""
        outage = Outage("files are shared later: %s")
        while True:
            try:
                await self.sync()
                outage.over()
            except (StrawberryError, OSError) as error:
                outage.note(error)
            await asyncio.sleep(limits.REPLICA_LOOK_S)

    async def leave(self) -> None:
        """Store what was edited in the last moment; where the database is away, the next start does so."""
        try:
            async with asyncio.timeout(limits.REPLICA_CONNECT_S):
                await self.sync()
        except (StrawberryError, OSError) as error:
            _log.warning("what was changed in the last moment is shared after the next start: %r", error)
            here = await asyncio.to_thread(self._read)
            left = {f"{_LEFT}{name}": _digest(here[name] or b"") for name in _TABLES}
            await asyncio.to_thread(self._note, self._known | left)

    async def sync(self) -> None:
        """Store what was edited here, and take over what was edited elsewhere.

        Raises:
            StorageError: If the database cannot be used.
            OSError: If a file cannot be written.
        """
        here = await asyncio.to_thread(self._read)
        there = await self._store.read(_digests)
        known, failure = dict(self._known), None
        for name in sorted(here.keys() | there.keys()):
            if (content := here.get(name, b"")) is not None:
                try:
                    known[name] = await self._shared(name, content, there.get(name))
                    self._not_compared.discard(name)
                except (StrawberryError, OSError) as error:
                    failure = error  # the others are shared all the same
                    if (
                        isinstance(error, InvalidMessage)
                        and self._routing.leads
                        and name in self._not_compared
                    ):
                        # What is saved here from now on replaces what cannot be used.
                        self._not_compared.discard(name)
                        known[name] = _digest(content)
        if known != self._known:
            self._known = known
            await asyncio.to_thread(self._note, known)
        if failure is not None:
            raise failure

    def _note(self, known: dict[str, str]) -> None:
        write_private(self._hub / _KNOWN, json.dumps(known, indent=1).encode())

    async def _shared(self, name: str, content: bytes, row: str | None) -> str:
        """Make a file the same here and in the database; return the digest of what they have in common.

        Args:
            row: The digest in the database; None of what was never stored.
        """
        stored = row or ""
        own, known = _digest(content), self._known.get(name, "")
        is_first = name in self._not_compared and self._left.get(name) != own
        if own == stored:
            return own
        put = partial(_put, name, content, instead_of=stored)
        if row is None and name in _TABLES and not self._routing.leads:
            return known
        if row is None or (stored == known and not (is_first and stored)):
            return own if await self._store.write(put) else known
        taken = await self._store.read(partial(_content, name))
        if _digest(taken) != stored:
            return known  # stored again just now, or a row that was altered
        is_edited = own not in ("", known)
        keep = (_REPLACED if is_first else _EDITED_TWICE) if is_edited else ""
        try:
            is_taken = await asyncio.to_thread(self._take, name, taken, content, keep)
        except InvalidMessage:
            if is_first or not is_edited or not self._routing.leads:
                raise
            return own if await self._store.write(put) else known
        if is_taken and name == _HOUSEHOLD:
            delay = 0 if is_first else limits.REPLICA_RESTART_S * self._routing.restart_place
            asyncio.get_running_loop().call_later(delay, self._host.restart)
        return stored if is_taken else known

    def _path(self, name: str) -> Path:
        if name in _TABLES:
            return self._home / SETTINGS_FILE
        return (self._hub if name in _OF_HUB else self._home) / name

    def _read(self) -> dict[str, bytes | None]:
        """Return the content of each file, None where it cannot be read or is too long."""
        agents = [f"{DIRECTORY}/{path.name}" for path in (self._home / DIRECTORY).glob(f"*{SUFFIX}")]
        found: dict[str, bytes | None] = {}
        for name in (*_OF_HUB, *_TABLES, *filter(_AGENT.fullmatch, agents), *self._known):
            try:
                if name in _TABLES:
                    content = self._host.read_table(name.strip("[]"))
                else:
                    content = self._path(name).read_bytes()
                found[name] = content if len(content) <= MAX_BYTES else None
            except FileNotFoundError:
                found[name] = b""
            except (OSError, ConfigError):
                found[name] = None
        return found

    def _take(self, name: str, content: bytes, before: bytes, keep: str) -> bool:
        """Write a file; return False if it was edited meanwhile.

        Args:
            keep: What is logged when the file is kept beside it; empty where it is not kept.
        """
        path, is_table = self._path(name), name in _TABLES
        # Before anything is kept: what cannot be used is tried again each second.
        if is_table and not self._host.replace_table(name.strip("[]"), content, before):
            return False
        if keep:
            aside = path.with_name(f"{path.name}.before-{_digest(before)[:8]}")
            write_private(aside, before)
            _log.warning(keep, path, aside)
        if is_table:
            return True
        if content:
            return write_private(path, content, instead_of=before)
        if path.exists() and path.read_bytes() != before:
            return False
        path.unlink(missing_ok=True)
        return True


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if content else ""


def _digests(session: Session) -> dict[str, str]:
    rows = session.exec(select(SharedFileRow.name, SharedFileRow.digest)).all()
    return {name: digest for name, digest in rows if name in (*_OF_HUB, *_TABLES) or _AGENT.fullmatch(name)}


def _content(name: str, session: Session) -> bytes:
    return row.content if (row := session.get(SharedFileRow, name)) is not None else b""


def _put(name: str, content: bytes, session: Session, *, instead_of: str) -> bool:
    row = session.get(SharedFileRow, name, with_for_update=True) or SharedFileRow(name=name)
    if row.digest != instead_of:
        return False
    row.content, row.digest = content, _digest(content)
    session.add(row)
    return True
