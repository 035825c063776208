"""Results that a test worker computes once, not again for each home that a test opens.

A hub makes its tables, compiles its SQL, describes its own skills, checks and compiles what they declare,
reads the sentences of a language and the authorities of TLS, checks the sandbox's files and looks for a
library that is not installed once in its life. The tests open a thousand hubs, and spent a third of their
processor time on this.
"""

import functools
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from starlette import routing

from agent_core.search import directory
from agent_core.search.ranking import Stemmer
from agent_core.sentences import understanding
from agent_core.sentences.index import SentenceIndex
from agent_core.skills.loading import exposure
from agent_core.skills.schema import MethodSchema
from agent_core.skills.skill import MethodOptions
from hub_registry.storage import sqlite
from identity.files import write_private
from sandbox_host.install import Installed


def install() -> None:
    """Reuse them in this process."""
    # httpcore tries to import it a dozen times for each request.
    sys.modules.setdefault("sniffio", None)
    _share_statements()
    _spare_the_disk()
    _spare_the_optimizer()
    offered = vars(exposure)
    offered["method_schema"] = _remembering(offered["method_schema"])
    _once(vars(understanding), "load_phrasebook", lambda language: language)
    _once(vars(directory), "_check_schemas", lambda method: (method.parameters_json, method.result_json))
    _once(vars(routing), "compile_path", lambda path: path)
    clients = vars(importlib.import_module("httpx._transports.default"))
    _once(clients, "create_ssl_context", lambda verify, cert, trust_env: (verify, cert, trust_env))
    compiled: dict[Any, Any] = {"compile": SentenceIndex._compile, "stem": Stemmer.stems_in}
    _once(compiled, "compile", lambda _, text, schema, target: (text, schema, target.method.signature))
    _once(compiled, "stem", lambda _, text: text)
    SentenceIndex._compile, Stemmer.stems_in = compiled.values()  # type: ignore[method-assign]
    # The package has a function of this name.
    files = vars(importlib.import_module("sandbox_host.install"))
    files["_sha256"] = _hashing_once(files["_sha256"])


def _share_statements() -> None:
    """Let all databases use the statements that were compiled for one of them: they are of one kind."""
    dialect: Any = SQLiteDialect_pysqlite
    dialect.__eq__ = lambda self, other: type(self) is type(other)
    dialect.__hash__ = lambda self: hash(type(self))
    compiled: dict[Any, Any] = {}

    @event.listens_for(Engine, "engine_connect")
    def share(connection: Connection) -> None:
        connection.execution_options(compiled_cache=compiled)


def _spare_the_disk() -> None:
    """Write without waiting for the disk: what a killed process wrote is there all the same."""
    vars(os)["fsync"] = lambda _: None
    prepare = vars(sqlite)["_prepare"]

    def prepare_without(connection: Any, record: object) -> None:
        prepare(connection, record)
        connection.execute("PRAGMA synchronous=OFF")

    vars(sqlite)["_prepare"] = prepare_without


def _spare_the_optimizer() -> None:
    """Let V8 keep the code that it compiles first: a program of a test ends before better code is ready.

    `sandbox_command` is that of the product, for the tests of the sandbox itself.
    """

    def command(installed: Installed) -> list[str]:
        words = sandbox_command(installed)
        return [f"{word},--liftoff-only" if word.startswith("--v8-flags=") else word for word in words]

    product: Any = Installed
    product.command = command


sandbox_command: Final = Installed.command


async def put_database(path: Path | str) -> None:
    """Make the empty database of a new hub, unless there is one."""
    if isinstance(path, str) or path.exists():
        return
    if _empty_database:
        write_private(path, _empty_database[0])
        return
    sqlite.SQLite(path).engine.dispose()
    _empty_database.append(path.read_bytes())


_empty_database: Final[list[bytes]] = []


def _once(names: dict[str, Any], name: str, key: Callable[..., Any]) -> None:
    """Let a function return again what it returned for arguments with an equal key."""
    work, known = names[name], {}

    @functools.wraps(work)
    def remembered(*args: Any, **named: Any) -> Any:
        at = key(*args, **named)
        if at not in known:
            known[at] = work(*args, **named)
        return known[at]

    names[name] = remembered


def _hashing_once(hashed: Callable[[Path], str]) -> Callable[[Path], str]:
    """Read a file again only if it was written since; the memory image has 31 MB."""
    known: dict[tuple[int, ...], str] = {}

    @functools.wraps(hashed)
    def hashed_once(file: Path) -> str:
        state = file.stat()
        if time.time() - state.st_mtime < _SETTLED_S:
            return hashed(file)
        key = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if key not in known:
            known[key] = hashed(file)
        return known[key]

    return hashed_once


_SETTLED_S: Final = 5.0
"""A file that was just written may be written again without another time of its change."""


def _remembering(describe: Callable[..., MethodSchema]) -> Callable[..., MethodSchema]:
    """Describe each method of a class once, whatever instance it is bound to."""
    known: WeakKeyDictionary[Any, tuple[tuple[str, MethodOptions], MethodSchema]] = WeakKeyDictionary()

    @functools.wraps(describe)
    def remembered(function: Callable[..., Any], name: str, options: MethodOptions) -> MethodSchema:
        plain = getattr(function, "__func__", None)
        if plain is None:
            return describe(function, name, options)
        if plain not in known or known[plain][0] != (name, options):
            known[plain] = (name, options), describe(function, name, options)
        return known[plain][1]

    return remembered
