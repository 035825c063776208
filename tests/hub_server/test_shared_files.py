"""Replicas have the same files: what is edited at one is at the others, and nothing is lost."""

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_core.models.entries import SETTINGS_LOCK
from agent_core.prompt import Household
from contracts.answers.system import HomeAssistantRules
from contracts.errors import InvalidMessage, StorageError
from deploy.directory import Home as Installation
from deploy.home.maintenance import Maintenance
from deploy.home.running import Restart
from deploy.service.notify import ServiceManager
from hub_registry.storage.store import Store, open_store
from hub_registry.storage.tables import SharedFileRow
from hub_server import limits
from hub_server.replicas.files import SharedFiles, _put
from tests.reused import put_database


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    await put_database(tmp_path / "hub.db")
    async with open_store(tmp_path / "hub.db") as opened:
        yield opened


class Copies:
    def __init__(self, store: Store, home: Path, *, leads: bool = True, place: int = 1) -> None:
        self.home = home
        (home / "hub").mkdir(parents=True, exist_ok=True)
        (home / "agents").mkdir(exist_ok=True)
        self.restart = Restart(ServiceManager())
        self.host = Maintenance(Installation(home), restart=self.restart)
        routing: Any = SimpleNamespace(leads=leads, restart_place=place)
        self.files = SharedFiles(store, self.host, routing, home=home, hub=home / "hub")
        self.settings = home / "strawberry.toml"
        self.soul, self.agent = home / "hub" / "SOUL.md", home / "agents" / "garden.yml"


async def test_what_is_edited_or_removed_at_one_replica_is_so_at_the_others(tmp_path, store):
    one, other = Copies(store, tmp_path / "one"), Copies(store, tmp_path / "other")
    one.soul.write_text("Be brief.")
    other.agent.write_text("prompt: You water.")
    (one.home / "agents" / "tool.py").write_text("import os")
    for each in (one, other, one):
        await each.files.sync()
    assert (other.soul.read_text(), one.agent.read_text()) == ("Be brief.", "prompt: You water.")
    assert not (other.home / "agents" / "tool.py").exists()

    other.soul.write_text("Be kind.")
    one.agent.unlink()
    for each in (one, other, one):
        await each.files.sync()
    assert (one.soul.read_text(), other.agent.exists()) == ("Be kind.", False)


async def test_what_was_edited_while_a_replica_was_stopped_counts(tmp_path, store):
    one, other = Copies(store, tmp_path / "one"), Copies(store, tmp_path / "other")
    one.soul.write_text("Be brief.")
    for each in (one, other):
        await each.files.sync()
    other.soul.write_text("Be kind.")
    for each in (Copies(store, other.home), one):
        await each.files.sync()
    assert one.soul.read_text() == "Be kind."


async def test_what_loses_against_another_edit_is_kept_beside_it(tmp_path, store):
    one, other = Copies(store, tmp_path / "one"), Copies(store, tmp_path / "other")
    one.soul.write_text("Be brief.")
    other.soul.write_text("Be kind.")
    for each in (one, other):
        await each.files.sync()
    assert other.soul.read_text() == "Be brief."
    [kept] = other.soul.parent.glob("SOUL.md.before-*")
    assert kept.read_text() == "Be kind."


async def test_a_file_that_cannot_be_written_keeps_no_other_from_being_shared(tmp_path, store):
    one, other = Copies(store, tmp_path / "one"), Copies(store, tmp_path / "other")
    one.agent.write_text("prompt: You water.")
    await one.files.sync()
    other.agent.parent.rmdir()
    other.agent.parent.write_text("no folder")
    for edit in ("first", "second"):
        other.soul.write_text(edit)
        with pytest.raises(OSError):
            await other.files.sync()
        await one.files.sync()
    assert (one.soul.read_text(), other.soul.read_text()) == ("second", "second")


OWN = """\
[home_assistant]
url = "http://other:8123"  # upstairs
hide = ["light.attic"]

[lan]
enabled = true
"""


async def test_settings_of_the_household_hold_at_a_replica_that_keeps_the_rest_of_its_file(
    tmp_path, store, monkeypatch
):
    monkeypatch.setattr(limits, "REPLICA_RESTART_S", 0)
    one, other = Copies(store, tmp_path / "one"), Copies(store, tmp_path / "other")
    one.settings.write_text('[home_assistant]\nurl = "http://one:8123"\nhide = []\nunasked = 2\n')
    other.settings.write_text(OWN)
    for each in (one, other):
        await each.files.sync()
    assert other.settings.read_text() == OWN.replace('["light.attic"]', "[]\nunasked = 2")

    one.host.write_settings(Household(language="de", latitude=52.5, longitude=13.4))
    for each in (one, other):
        await each.files.sync()
    await asyncio.wait_for(other.restart.requested(), 10)
    assert tomllib.loads(other.settings.read_text())["household"] == {
        "language": "de",
        "latitude": 52.5,
        "longitude": 13.4,
    }
    one.host.write_settings(Household(latitude=None, longitude=None))
    # It restarts in the same second.
    await one.files.leave()
    await other.files.sync()
    assert tomllib.loads(other.settings.read_text())["household"] == {"language": "de"}


async def test_a_table_that_was_never_stored_is_the_one_of_the_leader(tmp_path, store):
    follower, leader = Copies(store, tmp_path / "one", leads=False), Copies(store, tmp_path / "other")
    follower.settings.write_text('[household]\nlanguage = "fr"\n')
    leader.settings.write_text('[household]\nlanguage = "de"\n')
    for each in (follower, leader, follower):
        await each.files.sync()
    assert 'language = "de"' in follower.settings.read_text()


async def test_a_replica_that_starts_takes_over_what_a_page_wrote_meanwhile(tmp_path, store, caplog):
    one, other = Copies(store, tmp_path / "one"), Copies(store, tmp_path / "other")
    for each in (one, other):
        each.settings.write_text('[household]\nlanguage = "de"\n')
        await each.files.sync()
    one.host.write_settings(Household(units="imperial"))
    await one.files.sync()
    # As a container does: it starts with its old settings.
    one.settings.write_text('[household]\nlanguage = "de"\n')
    for started in (Copies(store, tmp_path / "other"), Copies(store, tmp_path / "one")):
        await started.files.sync()
        await asyncio.wait_for(started.restart.requested(), 10)
        assert 'units = "imperial"' in started.settings.read_text()
    assert not list(other.home.glob("*.before-*"))
    assert list(one.home.glob("strawberry.toml.before-*"))
    assert "what it held is in" in caplog.text
    assert "on two replicas" not in caplog.text


async def test_what_a_page_wrote_while_the_database_was_away_counts_after_the_restart(
    tmp_path, store, monkeypatch
):
    one, other = Copies(store, tmp_path / "one"), Copies(store, tmp_path / "other")
    for each in (one, other):
        each.settings.write_text('[household]\nlanguage = "de"\n')
        await each.files.sync()
    one.host.write_settings(Household(language="fr"))
    with monkeypatch.context() as away:
        away.setattr(store, "read", _away)
        await one.files.leave()
    for started in (Copies(store, tmp_path / "one"), other):
        await started.files.sync()
        assert started.host.read_table("household") == b'{"language": "fr"}'
    assert not list(one.home.glob("*.before-*"))


async def _away(*_: object) -> None:
    raise StorageError("no server")


async def test_replicas_restart_one_after_the_other_for_the_settings_of_the_household(
    tmp_path, store, monkeypatch
):
    leader, waits = Copies(store, tmp_path / "one"), list[float]()
    others = [
        Copies(store, tmp_path / name, leads=False, place=place) for name, place in (("b", 1), ("c", 2))
    ]
    for each in (leader, *others):
        await each.files.sync()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, _: waits.append(delay))
    leader.host.write_settings(Household(language="fr"))
    for each in (leader, *others):
        await each.files.sync()
    assert waits == [limits.REPLICA_RESTART_S, 2 * limits.REPLICA_RESTART_S]


def test_what_a_page_writes_meanwhile_is_not_overwritten(tmp_path):
    host = Maintenance(Installation(tmp_path), restart=None)
    host.write_settings(Household(language="de"))
    before = host.read_table("household")
    with ThreadPoolExecutor() as threads:
        with SETTINGS_LOCK:
            taken = threads.submit(host.replace_table, "household", b'{"language": "it"}', before)
            time.sleep(0.1)
            host.write_settings(Household(language="fr"))
        assert taken.result() is False
    assert host.read_table("household") == b'{"language": "fr"}'


async def test_what_no_page_may_write_is_not_taken_over_from_the_database(tmp_path, store):
    other = Copies(store, tmp_path / "other")
    other.settings.write_text(OWN)
    await other.files.sync()
    with pytest.raises(InvalidMessage, match="belong together"):
        other.host.replace_table("household", b'{"latitude": 52.5}', b"")
    for table, content in (
        ("[lan]", b'{"enabled": false}'),
        ("[home_assistant]", b'{"url": "http://elsewhere:8123"}'),
        ("[household]", b'{"language": "de", "rules": ["one line\\nand another"]}'),
    ):
        await store.write(partial(_put, table, content, instead_of=await _stored(store, table)))
    await store.write(partial(_put, "SOUL.md", b"Be brief.", instead_of=""))
    with pytest.raises(InvalidMessage, match="cannot be used"):
        await other.files.sync()
    assert (other.settings.read_text(), other.soul.read_text()) == (OWN, "Be brief.")
    assert not list(other.home.glob("*.before-*"))

    other.host.write_settings(Household(language="fr"))
    other.host.write_settings(HomeAssistantRules(hide=("light.cellar",)))
    await other.files.sync()
    third = Copies(store, tmp_path / "third")
    await third.files.sync()
    assert third.host.read_table("household") == b'{"language": "fr"}'

    # Also where the leader finds it at its start.
    stored = await _stored(store, "[household]")
    await store.write(partial(_put, "[household]", b'{"latitude": 52.5}', instead_of=stored))
    leader = Copies(store, tmp_path / "third")
    for _ in range(2):
        with pytest.raises(InvalidMessage, match="cannot be used"):
            await leader.files.sync()
    leader.host.write_settings(Household(language="it"))
    for each in (leader, other):
        await each.files.sync()
    assert other.host.read_table("household") == b'{"language": "it"}'


async def _stored(store: Store, name: str) -> str:
    row = await store.read(lambda session: session.get(SharedFileRow, name))
    return row.digest if row is not None else ""
