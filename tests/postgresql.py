"""PostgreSQL for tests: a server of Debian's package in a folder of its own, and a database for each file.

With ``STRAWBERRY_TEST_DATABASE=postgresql`` each store that a test opens on a file is one of this server.
"""

import atexit
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from hub_registry.storage import store
from hub_registry.storage.postgresql import PostgreSQL
from hub_registry.storage.sqlite import SQLite

HINT: Final = "PostgreSQL is missing: apt-get install postgresql"
_EMPTY: Final = "empty"


def programs() -> Path | None:
    """Return where the programs of the server are, None where it is not installed."""
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), Path(shutil.which("initdb") or "/none").parent]
    return next((each for each in places if (each / "initdb").exists()), None)


@cache
def server() -> str:
    """Start the server of this test process; return the URL of its databases, without their names."""
    found = programs()
    assert found is not None, HINT
    folder = Path(tempfile.mkdtemp(prefix="strawberry-postgresql-"))
    # The server refuses to run as root; Debian's package makes this user.
    as_user: dict[str, Any] = {"cwd": folder}
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
        as_user |= {"user": "postgres", "group": "postgres", "extra_groups": []}
    data = folder / "data"
    initdb: list[str | Path] = [
        found / "initdb",
        "-D",
        data,
        "-U",
        "home",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "-N",
    ]
    subprocess.run(initdb, check=True, capture_output=True, **as_user)
    options = f"-k {folder} -c listen_addresses= -c fsync=off -c max_connections=300"
    control: list[str | Path] = [found / "pg_ctl", "-D", data, "-w", "-s"]
    log: list[str | Path] = ["-l", folder / "log"]
    subprocess.run([*control, *log, "-o", options, "start"], check=True, capture_output=True, **as_user)

    def stop() -> None:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, capture_output=True, **as_user)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return f"postgresql://home@/{{name}}?host={folder}"


def database(name: str) -> str:
    """Make an empty database unless there is one; return its URL."""
    url = server()
    if name not in _made:
        _create(name, template="template1")
    return url.format(name=name)


def use() -> None:
    """Open each store of this process on this server: the database of a file is named after its path."""
    opened = vars(store)["opened"]

    def open_there(place: store.Place) -> SQLite | PostgreSQL:
        if isinstance(place, str):
            return opened(place)
        name = f"h{hashlib.sha256(str(place.absolute()).encode()).hexdigest()[:30]}"
        if name not in _made:
            if _EMPTY not in _made:
                opened(database(_EMPTY)).engine.dispose()
            _create(name, template=_EMPTY)
        return opened(server().format(name=name))

    vars(store)["opened"] = open_there


_made: Final[set[str]] = set()


def _create(name: str, *, template: str) -> None:
    import psycopg

    with psycopg.connect(server().format(name="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    _made.add(name)
