"""PostgreSQL as the database: what differs from SQLite, and the way from one to the other."""

import asyncio
import hashlib
import re
import threading
import time
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlmodel import Session, select

import hub_server.service  # noqa: F401  all tables
from contracts.errors import ConfigError, StorageError
from deploy.cli.main import main
from hub_agent.tables import EventRow, TurnRow
from hub_registry.access.accounts import Accounts
from hub_registry.access.hub_key import load_hub_key
from hub_registry.storage.copying import copy_rows
from hub_registry.storage.postgresql import PostgreSQL, _unusable, parsed
from hub_registry.storage.schema import tables_of_postgresql
from hub_registry.storage.sqlite import SQLite
from hub_registry.storage.store import open_store
from hub_registry.storage.tables import now
from tests import postgresql
from tests.requirements import require


@pytest.fixture
def url(tmp_path: Path) -> str:
    require(postgresql.programs() is not None, postgresql.HINT)
    return postgresql.database(f"t{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:20]}")


def fill(session: Session) -> None:
    for number in range(3):
        at = now() + timedelta(seconds=number)
        question = f"Is the garden.light {number} on\0 \u00e4?"
        row = TurnRow(user="ann", turn=f"t{number}", question=question, state="done", instance="main", at=at)
        row.conversation, row.did, row.answer = "c", ["LampSkill.turn_on"], "Yes."
        session.add(row)
        session.add(EventRow(user="ann", kind="timer", subject="tea", data={"text": "a\0\u20ac"}, at=at))


@pytest.mark.sqlite
async def test_a_home_moves_to_postgresql_and_back_row_by_row(url: str, tmp_path: Path) -> None:
    first, back = tmp_path / "one" / "hub.db", tmp_path / "two" / "hub.db"
    async with open_store(first) as store:
        admin = await Accounts(store).first_admin()
        await store.write(fill)
    counted: dict[str, int] = {}
    copy_rows(first, url, progress=counted.__setitem__)
    assert (counted["turn"], counted["event"], counted["user"], counted["timer"]) == (3, 3, 1, 0)
    async with open_store(url) as store:
        assert await Accounts(store).users() == [admin]
        # Ids go on after those that were copied.
        await store.write(
            lambda session: session.add(EventRow(user="a", kind="k", subject="", data={}, at=now()))
        )
        ids = await store.read(lambda session: list(session.exec(select(EventRow.id))))
        assert sorted(map(str, ids)) == ["1", "2", "3", "4"]
        turns = await store.read(lambda session: session.exec(select(TurnRow)).all())
        assert min(turn.question for turn in turns) == "Is the garden.light 0 on\ufffd \u00e4?"
    copy_rows(url, back)
    copy_rows(url, back)  # again, in place of what is there
    async with open_store(back) as store:
        assert await Accounts(store).users() == [admin]
        events = await store.read(lambda session: session.exec(select(EventRow)).all())
        assert [event.data.get("text") for event in events] == ["a\0\u20ac"] * 3 + [None]


async def test_only_one_hub_uses_a_database(url: str) -> None:
    async with open_store(url) as store, open_store(url) as other:
        await store.claim()
        with pytest.raises(ConfigError, match="another hub uses the database"):
            await other.claim()


async def test_the_database_that_a_hub_uses_is_not_overwritten(url: str, tmp_path: Path) -> None:
    async with open_store(tmp_path / "hub.db"), open_store(url) as store:
        await store.claim()
        admin = await Accounts(store).first_admin()
        with pytest.raises(ConfigError, match="another hub uses the database"):
            copy_rows(tmp_path / "hub.db", url)
        with pytest.raises(ConfigError, match="another hub uses the database"):
            copy_rows(url, tmp_path / "moved.db", is_move=True)
        copy_rows(url, tmp_path / "backup.db")  # of a hub that runs
        assert await Accounts(store).users() == [admin]


async def test_a_turn_of_a_megabyte_is_kept(url: str) -> None:
    answer = " ".join(f"w{number:x}" for number in range(160_000))
    row = TurnRow(
        user="ann", turn="t", question="Why?", state="done", instance="main", at=now(), answer=answer
    )
    async with open_store(url) as store:
        await store.write(lambda session: session.add(row))


async def test_another_program_s_database_is_refused(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE theirs (id int)")
    with pytest.raises(ConfigError, match="by another program"):
        PostgreSQL(url)


def test_a_server_that_is_not_there_and_a_url_that_is_none_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used: connection") as refused:
        PostgreSQL(f"postgresql://home:s3cret@/none?host={tmp_path}")
    assert "s3cret" not in f"{refused.value.message}{refused.value.hint}"
    for wrong in ("mysql://home@/x", "postgresql", "postgresql+asyncpg://home@/x"):
        with pytest.raises(ConfigError, match="none of PostgreSQL"):
            parsed(wrong)


def test_a_copy_to_a_server_that_refuses_says_why(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRAWBERRY_HOME", str(tmp_path / "home"))
    file = tmp_path / "hub.db"
    assert main(["database", "copy", str(file), url]) != 0
    assert str(file) in capsys.readouterr().err
    SQLite(file).engine.dispose()
    assert main(["database", "copy", str(file), re.sub(r"//(\w+@)?", "//nobody@", url)]) != 0
    told = capsys.readouterr().err
    assert "nobody" in told
    assert "in use" not in told


async def test_a_database_of_an_earlier_version_is_no_reason_to_update(url: str) -> None:
    import psycopg

    async with open_store(url):
        pass
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(ConfigError) as refused:
        PostgreSQL(url)
    assert "This version is newer" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("needs_password", "used_password", "hint"),
    [
        (True, False, "Write the user's password to ~/.pgpass"),
        # With a good password, too, the database may be missing.
        (False, True, "Look at the URL"),
        (False, False, "whether the server runs"),
    ],
)
def test_a_password_is_asked_for_only_where_there_is_none(
    needs_password: bool, used_password: bool, hint: str
) -> None:
    import psycopg

    login: Any = SimpleNamespace(needs_password=needs_password, used_password=used_password)
    refused = psycopg.OperationalError('database "home" does not exist', pgconn=login)
    assert hint in _unusable(parsed("postgresql://home@db.lan/home"), refused).hint


async def test_key_and_database_belong_together(url: str, tmp_path: Path) -> None:
    key = load_hub_key(tmp_path, url)
    with pytest.raises(ConfigError, match="missing or empty"):
        load_hub_key(tmp_path, url)
    async with open_store(url):
        assert load_hub_key(tmp_path, url).kid == key.kid
        (tmp_path / "key.pem").unlink()
        with pytest.raises(ConfigError, match=r"key\.pem is missing"):
            load_hub_key(tmp_path, url)


def test_no_word_of_sqlite_is_left_in_the_tables() -> None:
    text = "\n".join(tables_of_postgresql())
    assert not {"INTEGER", "BLOB", "fts5", "FLOAT"} & set(text.replace("(", " ").replace(",", " ").split())


@pytest.mark.sqlite
@pytest.mark.parametrize(("trusted_s", "errors"), [(0.0, 0), (60.0, 1)])
async def test_work_goes_on_after_a_restart_of_the_server(
    trusted_s: float, errors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(postgresql.programs() is not None, postgresql.HINT)
    monkeypatch.setattr("hub_registry.limits.DATABASE_TRUSTED_S", trusted_s)
    with postgresql.Server() as server:
        async with open_store(server.create("home")) as store:
            hub = await Accounts(store).hub_id()
            server.stop()
            server.start()
            for _ in range(errors):
                with pytest.raises(StorageError):
                    await store.read(lambda session: session.get(TurnRow, ("ann", "t")))
            assert await Accounts(store).hub_id() == hub


@pytest.mark.sqlite
async def test_a_process_that_stops_while_it_writes_does_not_stop_the_others_and_one_that_is_slow_goes_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_registry.limits.DATABASE_STOPPED_MS", 100)
    monkeypatch.setattr("hub_registry.limits.DATABASE_WAIT_MS", 100)
    begun, goes_on = threading.Event(), threading.Event()

    def stopped(session: Session) -> None:
        session.connection()
        begun.set()
        goes_on.wait(60)
        fill(session)

    def slow(session: Session) -> None:
        session.connection()
        time.sleep(0.3)
        fill(session)

    async with open_store(url) as one, open_store(url) as other, asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(_refused(one.write(stopped)))
        await asyncio.to_thread(begun.wait)
        await other.write(slow)
        goes_on.set()
        await writing
        assert await one.read(lambda session: session.get(TurnRow, ("ann", "t0")))


async def _refused(work: Awaitable[None]) -> None:
    with pytest.raises(StorageError):
        await work
