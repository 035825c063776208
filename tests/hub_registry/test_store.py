import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlmodel import Session, select

import hub_server.service  # noqa: F401
from contracts.errors import ConfigError, StorageError
from hub_registry.access.accounts import Accounts
from hub_registry.access.hub_key import load_hub_key
from hub_registry.storage.sqlite import SQLite
from hub_registry.storage.store import Store, open_store
from hub_registry.storage.tables import Table, UserRow, now


@pytest.mark.sqlite
async def test_a_new_database_has_exactly_the_tables_of_the_models(database: Path):
    async with open_store(database):
        pass
    assert differences(database) == []


def differences(path: Path) -> list[object]:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        # The full-text index is no table of a model; it makes some of its own.
        opts = {"include_name": lambda name, kind, _: kind != "table" or not name.startswith("turn_words")}
        found = compare_metadata(MigrationContext.configure(connection, opts=opts), Table.metadata)
    engine.dispose()
    return found


@pytest.mark.sqlite
@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
async def test_only_the_owner_may_read_the_database_and_its_journal(database: Path):
    async with open_store(database) as store:
        await Accounts(store).first_admin()
        modes = {path.name: path.stat().st_mode & 0o777 for path in database.parent.iterdir()}
        assert database.parent.stat().st_mode & 0o777 == 0o700
    assert set(modes) == {"hub.db", "hub.db-wal", "hub.db-shm"}
    assert set(modes.values()) == {0o600}


@pytest.mark.sqlite
@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path):
    # A copy of the database may be written to any, such as /tmp.
    tmp_path.chmod(0o755)
    SQLite(tmp_path / "copy.db").close()
    assert tmp_path.stat().st_mode & 0o777 == 0o755


async def test_what_was_written_is_there_after_opening_again(database: Path):
    async with open_store(database) as store:
        first = await Accounts(store).hub_id()
    async with open_store(database) as store:
        assert await Accounts(store).hub_id() == first


async def test_a_failed_piece_of_work_stores_nothing(store):
    def work(session):
        session.add(UserRow(id="x", display_name="X", role="member", created_at=now()))
        session.flush()
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        await store.write(work)
    assert await store.read(lambda session: session.exec(select(UserRow)).all()) == []


async def test_two_processes_can_write_to_one_database(database: Path):
    async with open_store(database) as one, open_store(database) as two:
        admin = await Accounts(one).first_admin()
        assert await Accounts(two).first_admin() == admin
        await Accounts(two).add("Ada", role="member")
        assert [user.display_name for user in await Accounts(one).users()] == ["Admin", "Ada"]


@pytest.mark.sqlite
async def test_moments_are_stored_as_rfc3339_in_utc(database: Path):
    async with open_store(database) as store:
        await Accounts(store).first_admin()
    connection = sqlite3.connect(database)
    (text,) = connection.execute("SELECT created_at FROM user").fetchone()
    connection.close()
    assert text.endswith("Z")
    assert len(text) == len("2026-01-01T00:00:00.000Z")


@pytest.mark.sqlite
async def test_a_file_that_is_no_database_is_refused_with_its_name(database: Path):
    database.parent.mkdir(parents=True)
    database.write_bytes(b"not a database at all, but long enough to look at" * 100)
    with pytest.raises(ConfigError, match=r"hub\.db"):
        async with open_store(database):
            pass


@pytest.mark.sqlite
async def test_a_directory_that_is_a_file_is_refused_with_what_to_do(tmp_path: Path):
    (tmp_path / "hub").write_text("")
    with pytest.raises(ConfigError, match="cannot be used as a directory") as refused:
        async with open_store(tmp_path / "hub" / "hub.db"):
            pass
    assert "STRAWBERRY_HOME" in refused.value.hint


@pytest.mark.sqlite
async def test_a_full_disk_refuses_what_is_new_and_keeps_what_was_stored(store):
    def fill(session):
        pages = session.connection().exec_driver_sql("PRAGMA page_count").scalar_one()
        session.connection().exec_driver_sql(f"PRAGMA max_page_count={pages}")
        session.connection().exec_driver_sql("CREATE TABLE large AS SELECT randomblob(1000000)")

    admin = await Accounts(store).first_admin()
    with pytest.raises(StorageError, match=r"the disk is full: .*hub\.db") as full:
        await store.write(fill)
    assert "(" not in full.value.message
    assert await Accounts(store).users() == [admin]


@pytest.mark.parametrize("left", ["nothing", "an empty file", "no tables"])
def test_a_missing_database_beside_a_key_is_not_replaced(tmp_path: Path, left: str):
    key = load_hub_key(tmp_path)
    database = tmp_path / "hub.db"
    if left != "nothing":
        database.touch()
    with closing(sqlite3.connect(database if left == "no tables" else ":memory:")) as connection:
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(ConfigError, match="is missing or empty") as refused:
        load_hub_key(tmp_path)
    assert "strawberry restore" in refused.value.hint
    (tmp_path / "key.pem").unlink()
    database.unlink(missing_ok=True)
    assert load_hub_key(tmp_path).kid != key.kid, "moving the key away begins a new home"


def test_a_missing_key_beside_a_database_is_not_replaced(tmp_path: Path):
    key = load_hub_key(tmp_path)
    with closing(sqlite3.connect(tmp_path / "hub.db")) as connection:
        connection.execute("CREATE TABLE user (id)")
    assert load_hub_key(tmp_path).kid == key.kid
    (tmp_path / "key.pem").unlink()
    with pytest.raises(ConfigError, match=r"key\.pem is missing") as missing:
        load_hub_key(tmp_path)
    assert "backup" in missing.value.hint
    assert not (tmp_path / "key.pem").exists()


@pytest.mark.sqlite
async def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: Path):
    async with open_store(database):
        pass
    connection = sqlite3.connect(database)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigError, match="another version"):
        async with open_store(database):
            pass


@pytest.mark.sqlite
async def test_a_process_that_looks_in_and_leaves_takes_nothing_from_two_stores_on_one_file(database: Path):
    look = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "print(c.execute('SELECT count(*) FROM user').fetchone()[0]); c.close()"
    )

    def users_seen_by_another_process() -> int:
        command = [sys.executable, "-c", look, str(database)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    async with open_store(database) as store, open_store(database):
        assert users_seen_by_another_process() == 0
        await Accounts(store).first_admin()
        assert users_seen_by_another_process() == 1


async def test_who_asks_the_database_for_little_does_not_wait_for_all_that_another_asked_before(
    store: Store,
) -> None:
    done: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def first(_: Session) -> None:
        begun.set()
        go_on.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.write(first, asker="device"))
        await asyncio.to_thread(begun.wait)
        for asker, piece in (*(("device", f"device {n}") for n in range(4)), ("person", "person")):
            tasks.create_task(store.write(lambda _, piece=piece: done.append(piece), asker=asker))
        await asyncio.sleep(0)
        go_on.set()
    assert done == ["device 0", "person", "device 1", "device 2", "device 3"]
