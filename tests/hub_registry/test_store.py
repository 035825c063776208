import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlmodel import select

from contracts.errors import ConfigError
from hub_registry.access.accounts import Accounts
from hub_registry.storage.store import Schema, open_store
from hub_registry.storage.tables import Table, UserRow, now


async def test_the_migrations_make_exactly_the_tables_of_the_models(database: Path):
    async with open_store(database):
        pass
    engine = create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), Table.metadata)
    engine.dispose()
    assert differences == []


async def test_tokens_of_the_first_version_get_the_key_of_their_device(database: Path):
    database.parent.mkdir(parents=True)
    config = Config()
    config.set_main_option("script_location", str(Schema().scripts))
    config.attributes["version_table"] = Schema().version_table
    engine = create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.exec_driver_sql(
            "INSERT INTO user (id, display_name, role, created_at) VALUES ('admin', 'Admin', 'admin', '2026')"
        )
        connection.exec_driver_sql(
            "INSERT INTO device (id, owner, display_name, key, aliases, key_id, epoch, connection, seq,"
            " ended, created_at) VALUES ('tv', 'admin', 'TV', 'tv', '[]', 'thumbprint', 0, 0, 0, 0, '2026')"
        )
        for jti, kind, subject in (("1", "device", "tv"), ("2", "device", "gone"), ("3", "user", "tv")):
            connection.exec_driver_sql(
                "INSERT INTO token (jti, kind, subject, owner, name, scope, issued_at, expires_at)"
                f" VALUES ('{jti}', '{kind}', '{subject}', 'admin', '', '', '2026', '2027')"
            )
    engine.dispose()
    async with open_store(database):
        pass
    with sqlite3.connect(database) as connection:
        assert dict(connection.execute("SELECT jti, key_id FROM token")) == {
            "1": "thumbprint",
            "2": None,
            "3": None,
        }
    connection.close()


async def test_the_skill_table_has_the_columns_of_the_data_contract(database: Path):
    async with open_store(database):
        pass
    with sqlite3.connect(database) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(skill)")}
    connection.close()
    assert columns >= {
        "device_id",
        "class_name",
        "function_name",
        "signature",
        "docstring",
        "device_agnostic",
        "last_heartbeat",
    }


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
async def test_only_the_owner_may_read_the_database_and_its_journal(database: Path):
    async with open_store(database) as store:
        await Accounts(store).first_admin()
        modes = {path.name: path.stat().st_mode & 0o777 for path in database.parent.iterdir()}
        assert database.parent.stat().st_mode & 0o777 == 0o700
    assert set(modes) == {"hub.db", "hub.db-wal", "hub.db-shm"}
    assert set(modes.values()) == {0o600}


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


async def test_moments_are_stored_as_rfc3339_in_utc(database: Path):
    async with open_store(database) as store:
        await Accounts(store).first_admin()
    connection = sqlite3.connect(database)
    (text,) = connection.execute("SELECT created_at FROM user").fetchone()
    connection.close()
    assert text.endswith("Z")
    assert len(text) == len("2026-01-01T00:00:00.000Z")


async def test_a_file_that_is_no_database_is_refused_with_its_name(database: Path):
    database.parent.mkdir(parents=True)
    database.write_bytes(b"not a database at all, but long enough to look at" * 100)
    with pytest.raises(ConfigError, match=r"hub\.db"):
        async with open_store(database):
            pass


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
