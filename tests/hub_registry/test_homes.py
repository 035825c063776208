"""Several homes on one PostgreSQL database: each has a schema, and sees nothing of the others."""

import hashlib
import re
import sqlite3
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from broker.nats.config import Node
from broker.nats.keys import NatsKeys
from broker.nats.process import open_nats_server
from bus.link import open_link
from contracts.errors import ConfigError, LoginRefused
from deploy.cli.main import main
from deploy.directory import Home as Directory
from deploy.doctor.doctor import _databases
from deploy.settings.settings import read_database
from hub_registry.storage.postgresql import PostgreSQL, is_empty, of_home
from hub_registry.storage.sqlite import SQLite
from hub_registry.storage.store import open_store
from identity.keys import KeyPair
from tests import postgresql
from tests.hub_agent.home import open_home
from tests.hub_agent.skills import LampSkill
from tests.hub_registry.spokes import eventually
from tests.ports import free_port
from tests.requirements import require

SCALE = Path(__file__).parents[2] / "docs" / "scale.md"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty database."""
    require(postgresql.programs() is not None, postgresql.HINT)
    return postgresql.database(f"t{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:20]}")


def add_home(url: str, name: str) -> str:
    """Do as the document says; return the URL for the user of this home."""
    (sql,) = (
        block
        for block in re.findall(r"```sql\n(.*?)```", SCALE.read_text("utf-8"), re.DOTALL)
        if "SCHEMA" in block
    )
    with psycopg.connect(url) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {name}".encode())
        connection.execute(re.sub(r"\boak\b", name, sql).encode())
    return url.replace("//home@", f"//{name}@")


async def test_two_homes_in_one_database_see_nothing_of_each_other(url: str, tmp_path: Path) -> None:
    urls = {name: add_home(url, name) for name in ("oak", "elm")}
    places = {name: SecretStr(of_home(each, name)) for name, each in urls.items()}
    async with (
        open_home(tmp_path / "oak", kind="nats", database_url=places["oak"]) as oak,
        open_home(tmp_path / "elm", kind="nats", database_url=places["elm"]) as elm,
    ):
        assert oak.hub.registry.hub_id != elm.hub.registry.hub_id
        device = await oak.device("Bedroom PC", LampSkill())
        login = oak.device_login(device.id, device.key, device.bus_token)
        async with open_link(replace(login, urls=(elm.broker_url,)), wait_s=0) as link:
            await eventually(lambda: isinstance(link.last_error, LoginRefused))
            assert not link.connected
        await oak.hub.registry.accounts.add("Anna", role="member")
        async with oak.client() as http:
            assert len((await http.get("/api/devices")).json()) == 1
        async with elm.client() as http:
            assert (await http.get("/api/devices")).json() == []
            assert len((await http.get("/api/users")).json()) == 1
        async with elm.client(oak.admin_token) as http:
            assert (await http.get("/api/devices")).status_code == 401
        async with open_store(places["oak"].get_secret_value()) as second:
            with pytest.raises(ConfigError, match="another hub uses the database"):
                await second.claim()
    with (
        psycopg.connect(urls["oak"]) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="schema elm"),
    ):
        connection.execute('SELECT * FROM elm."user"')


async def test_a_node_of_one_home_does_not_join_the_cluster_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="broker.process")
    ports = {"oak": free_port(), "elm": free_port()}
    async with AsyncExitStack() as stack:
        for name, other in (("oak", "elm"), ("elm", "oak")):
            nodes = tuple(f"127.0.0.1:{ports[each]}" for each in (name, other))
            node = Node("127.0.0.1", mqtt=0, hub=0, cluster=ports[name], nodes=nodes)
            keys = NatsKeys(KeyPair.generate()).for_nodes()
            await stack.enter_async_context(open_nats_server(tmp_path / name, keys, node))
        await eventually(lambda: "uthentication error" in caplog.text)


def test_a_home_is_copied_into_its_schema_and_back(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = add_home(url, "fir")
    monkeypatch.setenv("STRAWBERRY_HOME", str(tmp_path))
    (tmp_path / "strawberry.toml").write_text(f'[database]\nurl = "{there}"\n[home]\nname = "fir"\n')
    first, back = tmp_path / "hub.db", tmp_path / "back.db"
    SQLite(first).engine.dispose()
    with closing(sqlite3.connect(first)) as database:
        anna = "INSERT INTO user (id, display_name, role, created_at) VALUES ('u', 'Anna', 'admin', '')"
        database.execute(anna)
        database.commit()
    assert main(["database", "copy", str(first), there]) == 0
    assert main(["database", "copy", there, str(back)]) == 0
    with closing(sqlite3.connect(back)) as database:
        assert database.execute("SELECT display_name FROM user").fetchall() == [("Anna",)]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('public.hub'), to_regclass('fir.hub')").fetchone() == (
            None,
            "fir.hub",
        )


def test_the_doctor_leaves_a_database_empty_in_which_a_home_is_to_begin(url: str, tmp_path: Path) -> None:
    (tmp_path / "strawberry.toml").write_text(f'[database]\nurl = "{url}"\n')
    assert [each.ok for each in _databases(Directory(tmp_path))] == [True]
    assert is_empty(url)


def test_a_home_whose_schema_is_missing_is_told_how_to_make_it(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        is_empty(of_home(url, "ash"))
    assert "CREATE SCHEMA" in refused.value.hint


def test_the_name_of_a_home_is_in_its_settings(url: str, tmp_path: Path) -> None:
    file = tmp_path / "strawberry.toml"

    def read(name: str) -> str:
        file.write_text(f'[database]\nurl = "{url}"\n[home]\nname = "{name}"\n')
        return str(read_database(Directory(tmp_path)))

    with pytest.raises(ConfigError, match="cannot be used: no schema") as refused:
        PostgreSQL(read("ash"))
    assert "CREATE SCHEMA" in str(refused.value.hint)
    for wrong in ("pg_x", "Oak", "a b", "a,public"):
        with pytest.raises(ConfigError, match="small letters"):
            read(wrong)
    with pytest.raises(ConfigError, match="exclude each other"):
        of_home(read("ash"), "ash")
