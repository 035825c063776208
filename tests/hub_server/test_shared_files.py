"""Replicas have the same files: what is edited at one is at the others, and nothing is lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub_registry.storage.store import Store, open_store
from hub_server.replicas.files import SharedFiles
from tests.reused import put_database


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    await put_database(tmp_path / "hub.db")
    async with open_store(tmp_path / "hub.db") as opened:
        yield opened


class Copies:
    def __init__(self, store: Store, home: Path) -> None:
        self.home = home
        (home / "hub").mkdir(parents=True, exist_ok=True)
        (home / "agents").mkdir(exist_ok=True)
        self.files = SharedFiles(store, home=home, hub=home / "hub")
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
