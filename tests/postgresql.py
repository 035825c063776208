"""PostgreSQL for tests: a server of Debian's package in a folder of its own, and a database for each file.

With ``STRAWBERRY_TEST_DATABASE=postgresql`` each store that a test opens on a file is one of this server.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from hub_registry.storage import store
from hub_registry.storage.postgresql import PostgreSQL
from hub_registry.storage.schema import VERSION_TABLE
from hub_registry.storage.sqlite import SQLite

HINT: Final = "PostgreSQL is missing: apt-get install postgresql"
_EMPTY: Final = "empty"


def programs() -> Path | None:
    """Return where the programs of the server are, None where it is not installed."""
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), Path(shutil.which("initdb") or "/none").parent]
    return next((each for each in places if (each / "initdb").exists()), None)


class Server:
    """One server in a folder of its own, which can be killed and started again; a context manager.

    Args:
        port: Of loopback; 0 for a socket in the folder alone.
        options: More settings, as ``postgres`` takes them.
    """

    def __init__(self, *, port: int = 0, options: str = "-c fsync=off") -> None:
        found = programs()
        assert found is not None, HINT
        # A folder of a test is closed to other users.
        self._folder, self._port = Path(tempfile.mkdtemp(prefix="strawberry-postgresql-")), port
        # The server refuses to run as root; Debian's package makes this user.
        self._as_user: dict[str, Any] = {"cwd": self._folder}
        if os.getuid() == 0:
            shutil.chown(self._folder, "postgres")
            self._as_user |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        self._data = self._folder / "data"
        made = ("-U", "home", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self._run(found / "initdb", "-D", self._data, *made)
        self._control = (found / "pg_ctl", "-D", self._data, "-w", "-s")
        listens = f"-p {port} -c listen_addresses=127.0.0.1" if port else "-c listen_addresses="
        self._options = f"-k {self._folder} {listens} -c max_connections=300 {options}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """URL of its databases, without their names."""
        where = f"127.0.0.1:{self._port}/{{name}}" if self._port else f"/{{name}}?host={self._folder}"
        return f"postgresql://home@{where}"

    @property
    def pid(self) -> int:
        """Of its first process."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._run(*self._control, "-l", self._folder / "log", "-o", self._options, "start")

    def stop(self) -> None:
        """End it at once, as a crash does."""
        self._run(*self._control, "-m", "immediate", "stop", check=False)

    def create(self, name: str, *, template: str = "template1") -> str:
        """Make a database; return its URL."""
        import psycopg

        with psycopg.connect(self.url.format(name="postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return self.url.format(name=name)

    def _run(self, *words: str | Path, check: bool = True) -> None:
        subprocess.run(words, check=check, capture_output=True, **self._as_user)


@cache
def server() -> Server:
    """Start the server of this test process."""
    made = Server().__enter__()
    atexit.register(made.__exit__)
    return made


def database(name: str) -> str:
    """Make an empty database unless there is one; return its URL."""
    if name not in _made:
        _create(name, template="template1")
    return server().url.format(name=name)


def use() -> None:
    """Open each store of this process on this server, which keeps a database for each file."""
    opened = vars(store)["opened"]

    def open_there(place: store.Place) -> SQLite | PostgreSQL:
        if isinstance(place, str):
            return opened(place)
        file = place.absolute()
        if file not in _of_file:
            if _EMPTY not in _made:
                opened(database(_EMPTY)).engine.dispose()
            _of_file[file] = _emptied() or _create(f"of_file_{len(_made)}", template=_EMPTY)
        return opened(server().url.format(name=_of_file[file]))

    vars(store)["opened"] = open_there


def give_back(directory: Path) -> None:
    """Let other files have the databases of the files of a test that has ended.

    A test that changes tables, and not only their rows, makes a database of its own.
    """
    for file in [each for each in _of_file if each.is_relative_to(directory)]:
        _left.append(_of_file.pop(file))


_made: Final[set[str]] = set()
_of_file: Final[dict[Path, str]] = {}
_left: Final[list[str]] = []

_OTHERS: Final = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_DELETE_ALL: Final = f"""
    DO $$ DECLARE each record; BEGIN
        SET LOCAL session_replication_role = replica;
        FOR each IN SELECT tablename FROM pg_tables
            WHERE schemaname = current_schema() AND tablename <> '{VERSION_TABLE}' LOOP
            EXECUTE format('DELETE FROM %I', each.tablename);
        END LOOP;
        FOR each IN SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL LOOP
            EXECUTE format('ALTER SEQUENCE %I RESTART', each.sequencename);
        END LOOP;
    END $$
"""
"""Takes a twentieth of the time in which a database is made."""


def _emptied() -> str | None:
    """Empty a database that a test has left; return its name, None where there is none."""
    import psycopg

    while _left:
        name = _left.pop(0)
        with psycopg.connect(server().url.format(name=name), autocommit=True) as connection:
            # One that a test has left open keeps it.
            if connection.execute(_OTHERS).fetchone() == (0,):
                connection.execute(_DELETE_ALL.encode())
                return name
    return None


def _create(name: str, *, template: str) -> str:
    server().create(name, template=template)
    _made.add(name)
    return name
