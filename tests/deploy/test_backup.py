"""Backups: what is in one, what is refused, and what restoring keeps out."""

import asyncio
import gzip
import io
import json
import logging
import os
import shutil
import sqlite3
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from pydantic import SecretStr
from pyrage import passphrase as other_program

from broker.embedded.authentication import Revocations
from contracts.claims import Claims, PrincipalKind
from contracts.errors import ConfigError, Unauthorized
from deploy.backup import writing
from deploy.backup.reading import staged_files, unpack
from deploy.backup.restoring import check_unused, complete, has_data, plan
from deploy.backup.writing import MANIFEST, write_backup
from deploy.cli.main import main
from deploy.directory import Home
from deploy.home.maintenance import Maintenance
from deploy.home.running import Restart
from deploy.service.notify import ServiceManager
from deploy.settings.settings import read_database
from hub_registry.access.hub_key import is_empty, load_hub_key
from hub_registry.access.token_rows import TokenRequest
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from hub_registry.storage.postgresql import PostgreSQL
from identity import age
from identity.age import AgeWriter
from identity.files import only_one
from identity.keys import KeyPair
from tests import postgresql
from tests.deploy.strawberry import environment_of, run
from tests.requirements import require

WORDS = "four words for you"
PASSPHRASE = SecretStr(WORDS)


@pytest.fixture(autouse=True)
def _cheap(monkeypatch):
    monkeypatch.setattr(age, "SCRYPT_WORK", 10)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The home of a hub that has run once, with some files of people."""
    home = Home(tmp_path / "home")
    in_registry(home, lambda _: asyncio.sleep(0))
    (home.directory / "strawberry.toml").write_text('[household]\nlanguage = "de"\n')
    (home.directory / ".env").write_text("HOUSE_API_KEY=very-secret-1\n")
    (home.hub / "SOUL.md").write_text("Be kind.\n")
    (home.hub / "cli.token").write_text("eyJ")
    (home.directory / "captures").mkdir()
    (home.directory / "captures" / "big.jsonl").write_text("{}\n")
    (home.directory / "sandbox").mkdir()
    (home.directory / "sandbox" / "snapshot").write_bytes(b"large")
    (home.spoke / "environments" / "vacuum").mkdir(parents=True)
    (home.spoke / "environments" / "vacuum" / "tiny.py").write_bytes(b"large")
    (home.directory / "elsewhere").symlink_to("/etc/hostname")
    return home


def in_registry(home: Home, work: Callable[[Registry], Any]) -> Any:
    """Do something with the registry of a hub that does not run."""

    async def do() -> Any:
        place = read_database(home)
        async with open_registry(
            RegistrySettings(database=place), key=load_hub_key(home.hub, place)
        ) as registry:
            return await work(registry)

    return asyncio.run(do())


def token_of(home: Home, kind: PrincipalKind = "user", name: str = "phone") -> str:
    async def issue(registry: Registry) -> str:
        subject = registry.admin.id if kind == "user" else name
        request = TokenRequest(
            kind=kind, subject=subject, owner=registry.admin.id, scopes=["chat"], lifetime_s=3600, name=name
        )
        return await registry.authority.issue(request)

    return str(in_registry(home, issue))


def joined(home: Home, name: str) -> str:
    async def join(registry: Registry) -> str:
        device = await registry.devices.add(name, owner=registry.admin.id)
        invitation = await registry.invite(device.id)
        return (await registry.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk())).token

    return str(in_registry(home, join))


def is_accepted(home: Home, token: str) -> bool:
    async def ask(registry: Registry) -> bool:
        try:
            await registry.authority.authenticate(token)
        except Unauthorized:
            return False
        return True

    return bool(in_registry(home, ask))


def hub_id_of(home: Home) -> str:
    async def ask(registry: Registry) -> str:
        return registry.hub_id

    return str(in_registry(home, ask))


def revoke(home: Home, token: str) -> None:
    in_registry(home, lambda registry: registry.authority.revoke([registry.authority.check(token).jti]))


def backup_of(home: Home, *, captures: bool = False) -> bytes:
    target = io.BytesIO()
    write_backup(home, target, PASSPHRASE, captures=captures)
    return target.getvalue()


def restored(home: Home, data: bytes, **options: Any) -> Path | None:
    home.directory.mkdir(exist_ok=True)
    unpack(home, io.BytesIO(data), PASSPHRASE)
    plan(home, **options)
    return complete(home)


def names_in(data: bytes) -> set[str]:
    """The files in a backup, as another program reads it."""
    plain = gzip.decompress(other_program.decrypt(data, WORDS))
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        return set(archive.getnames())


def packed(*entries: tuple[str, bytes] | tarfile.TarInfo, manifest: dict[str, Any] | None = None) -> bytes:
    """A backup that nobody but its passphrase vouches for."""
    return encrypted(gzip.compress(archived(*entries, manifest=manifest)))


def archived(*entries: tuple[str, bytes] | tarfile.TarInfo, manifest: dict[str, Any] | None = None) -> bytes:
    """An archive that begins with a description."""
    described = {"format": 1, "version": "1", "created_at": "now", **(manifest or {})}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for entry in ((MANIFEST, json.dumps(described).encode()), *entries):
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            archive.addfile(info, io.BytesIO(entry[1]))
    return plain.getvalue()


def everything(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_a_backup_holds_the_home_without_what_is_made_again(home):
    assert names_in(backup_of(home)) == {
        *(MANIFEST, "strawberry.toml", ".env", "hub/SOUL.md", "hub/hub.db", "hub/key.pem")
    }
    assert "captures/big.jsonl" in names_in(backup_of(home, captures=True))
    assert not list(home.directory.glob(".backup-*"))


def test_a_restored_home_is_as_it_was(home, tmp_path):
    other = Home(tmp_path / "other")
    assert restored(other, backup_of(home)) is None
    for name in ("strawberry.toml", ".env", "hub/SOUL.md", "hub/key.pem"):
        assert (other.directory / name).read_bytes() == (home.directory / name).read_bytes()
        assert (other.directory / name).stat().st_mode & 0o077 == 0
    assert hub_id_of(other) == hub_id_of(home)
    assert not (other.directory / "restore").exists()


def test_a_home_moves_to_postgresql_and_its_backup_keeps_out_what_was_revoked_since(home, tmp_path):
    require(postgresql.programs() is not None, postgresql.HINT)
    url, file = postgresql.database("moved_home"), home.hub / "hub.db"
    kept, ended = token_of(home, name="kept"), token_of(home, name="ended")
    environment = environment_of(home.directory)
    copied = run(environment, "database", "copy", str(file), url, "--json")
    assert (copied.returncode, json.loads(copied.stdout)["rows"]["token"]) == (0, 2), copied.stderr
    again = run(environment, "database", "copy", str(file), url)
    assert (again.returncode, "--replace overwrites it" in again.stderr) == (1, True)
    secret = run(environment, "database", "copy", str(file), "postgresql://home:s3cret@db/home")
    assert "~/.pgpass" in secret.stderr
    file.unlink()
    with (home.directory / "strawberry.toml").open("a") as settings:
        settings.write(f'[database]\nurl = "{url}"\n')
    assert is_accepted(home, kept)
    data = backup_of(home)
    assert "hub/hub.db" in names_in(data)
    revoke(home, ended)
    aside = restored(home, data)
    assert (is_accepted(home, kept), is_accepted(home, ended)) == (True, False)
    assert not file.exists()
    assert aside is not None
    assert (aside / "hub" / "hub.db").exists()


def test_what_is_written_meanwhile_does_not_tear_the_copy_of_the_database(home, tmp_path):
    with closing(sqlite3.connect(home.hub / "hub.db", isolation_level=None)) as writing:
        writing.execute("BEGIN IMMEDIATE")
        writing.execute("INSERT INTO retired_device VALUES ('half', '2026-01-01T00:00:00.000Z')")
        data = backup_of(home)
        writing.execute("COMMIT")
    other = Home(tmp_path / "other")
    restored(other, data)
    assert "half" not in in_registry(other, lambda registry: registry.devices.retired())


def test_two_backups_at_once_are_both_whole(home, tmp_path):
    data: list[bytes] = []

    def second(done: int, _: int) -> None:
        if not done:
            data.append(backup_of(home))

    target = io.BytesIO()
    write_backup(home, target, PASSPHRASE, progress=second)
    assert names_in(target.getvalue()) == names_in(data[0])


def test_a_directory_of_a_backup_is_removed_only_where_it_is_old(home):
    new, old = home.directory / ".backup-new", home.directory / ".backup-old"
    for each in (new, old):
        each.mkdir()
    os.utime(old, (0, 0))
    backup_of(home)
    assert (new.exists(), old.exists()) == (True, False)


def test_a_backup_whose_copy_of_the_database_goes_away_is_no_backup(home):
    def remove(done: int, _: int) -> None:
        if not done:
            (copy,) = home.directory.glob(".backup-*/hub__hub.db")
            copy.unlink()

    with pytest.raises(FileNotFoundError):
        write_backup(home, io.BytesIO(), PASSPHRASE, progress=remove)


@pytest.mark.parametrize("looks", [True, False])
def test_a_database_that_goes_away_meanwhile_is_left_out_and_not_made(looks, home, monkeypatch):
    gone = home.directory / "notes.db"
    gone.touch()

    def is_database(path: Path) -> bool:
        path.unlink()
        return is_there(path) if looks else True

    is_there = writing._is_database
    monkeypatch.setattr(writing, "_is_database", is_database)
    assert "notes.db" not in names_in(backup_of(home))
    assert not gone.exists()


def test_a_file_that_is_only_called_like_a_database_is_in_it_as_it_is(home):
    home.skills.mkdir()
    (home.skills / "Thumbs.db").write_bytes(b"of Windows")
    assert "skills/Thumbs.db" in names_in(backup_of(home))


def test_a_backup_needs_a_passphrase_and_a_hub(home, tmp_path):
    with pytest.raises(ConfigError, match="fewer than 8"):
        write_backup(home, io.BytesIO(), SecretStr("short"))
    with pytest.raises(ConfigError, match="no hub"):
        write_backup(Home(tmp_path / "nothing"), io.BytesIO(), PASSPHRASE)


# -- what is refused ------------------------------------------------------------------------------------


def refused(home: Home, data: bytes, match: str, passphrase: SecretStr = PASSPHRASE) -> None:
    """Check that a file is refused, and nothing of the home changed."""
    before = everything(home.directory)
    with pytest.raises(ConfigError, match=match):
        unpack(home, io.BytesIO(data), passphrase)
    assert everything(home.directory) == before


def test_a_file_that_was_changed_or_cut_off_changes_nothing(home):
    data = backup_of(home)
    refused(home, data[:-1], "not complete")
    refused(home, data[: len(data) // 2], "not complete")
    refused(home, data[:900] + bytes([data[900] ^ 1]) + data[901:], "changed")
    refused(home, data, "passphrase", SecretStr("five words for nobody"))
    refused(home, b"PK\x03\x04 something else", "not an encrypted backup")
    refused(home, encrypted(b"not compressed at all"), "not a backup")
    refused(home, encrypted(gzip.compress(b"no archive at all" * 100)), "not a backup")
    refused(home, encrypted(gzip.compress(b"")), "not a backup")


def link(kind: bytes, name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "entry",
    [
        ("../outside", b"x"),
        ("hub/../../outside", b"x"),
        ("/tmp/outside", b"x"),
        ("hub//key.pem", b"x"),
        ("./hub/key.pem", b"x"),
        ("a/" * 100 + "deep", b"x"),
        ("x" * 1_001, b"x"),
        ("hub/lock", b"x"),
        ("hub/run.json", b"x"),
        ("hub/cli.token", b"x"),
        ("sandbox/snapshot", b"x"),
        ("restore/plan.json", b"x"),
        ("replaced/x", b"x"),
        ("broker/retained.db", b"x"),
        ("hub/hub.db-wal", b"x"),
        link(tarfile.SYMTYPE, "skills", "/etc"),
        link(tarfile.LNKTYPE, "skills/passwd", "/etc/passwd"),
        link(tarfile.DIRTYPE, "skills", ""),
        link(tarfile.FIFOTYPE, "skills/pipe", ""),
        link(tarfile.CHRTYPE, "skills/null", ""),
    ],
    ids=lambda entry: entry.name + entry.type.decode() if isinstance(entry, tarfile.TarInfo) else entry[0],
)
def test_an_entry_that_leads_out_of_the_home_or_to_what_is_no_data_is_refused(entry, home, tmp_path):
    refused(home, packed(("skills/ok.py", b"x"), entry), "which is no")
    assert not list(tmp_path.rglob("outside"))


def header(kind: bytes, size: int) -> tarfile.TarInfo:
    """The head of an entry that describes the next one, and says that it has this size."""
    info = tarfile.TarInfo("head")
    info.type, info.size = kind, size
    return info


def encrypted(content: bytes) -> bytes:
    """Encrypt what may be anything."""
    target = io.BytesIO()
    writer = AgeWriter(target, PASSPHRASE)
    writer.write(content)
    writer.finish()
    return target.getvalue()


def sealed(plain: Iterable[bytes]) -> bytes:
    """Pack and encrypt the bytes of an archive."""
    target = io.BytesIO()
    writer = AgeWriter(target, PASSPHRASE)
    with gzip.GzipFile(fileobj=cast("BinaryIO", writer), mode="wb") as zipped:
        for piece in plain:
            zipped.write(piece)
    writer.finish()
    return target.getvalue()


SPARSE = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n25 GNU.sparse.name=skills/a\n"
MEGABYTES = 50


@pytest.mark.parametrize(
    "entries",
    [
        (header(tarfile.XHDTYPE, MEGABYTES << 20).tobuf(), *[bytes(1 << 20)] * MEGABYTES),
        (header(tarfile.GNUTYPE_LONGNAME, MEGABYTES << 20).tobuf(), *[bytes(1 << 20)] * MEGABYTES),
        (header(tarfile.XHDTYPE, 1).tobuf() + bytes(512),) * 5_000,
        (
            header(tarfile.XHDTYPE, len(SPARSE)).tobuf() + SPARSE.ljust(512, b"\0"),
            header(tarfile.REGTYPE, MEGABYTES << 20).tobuf() + b"999999999\n",
            *[b"1\n" * (1 << 19)] * MEGABYTES,
        ),
        (header(tarfile.REGTYPE, 0).tobuf(), bytes(1024), *[bytes(1 << 20)] * MEGABYTES),
    ],
    ids=["extended header", "long name", "many headers", "map of a sparse file", "after the end"],
)
def test_what_a_header_says_is_not_read_into_memory(entries, home):
    data = sealed((archived()[:1024], *entries))
    tracemalloc.start()
    try:
        refused(home, data, "too much between|not a backup")
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_files_that_are_read_whole_are_small_and_one_is_not_the_folder_of_another(home):
    refused(home, packed(("hub/key.pem", bytes((1 << 20) + 1))), "too large")
    refused(home, packed(("strawberry.toml", bytes((1 << 20) + 1))), "too large")
    refused(home, packed(("skills/a", b"1"), ("skills/a/b", b"2")), "cannot be written")
    refused(home, packed(("skills/" + "x" * 300, b"1")), "cannot be written")
    refused(home, packed(manifest={"format": [[]] * 100}), "a format that this version does not know")


STUCK = "CREATE TRIGGER stuck BEFORE UPDATE ON device BEGIN SELECT RAISE(ABORT, 'stuck'); END"
ENDLESS = """
    ALTER TABLE user RENAME TO person;
    CREATE VIEW user AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT i AS id, i AS display_name, i AS created_at FROM n;
"""


@pytest.mark.parametrize("program", [STUCK, ENDLESS])
def test_a_database_that_is_a_program_is_refused(program, home):
    with closing(sqlite3.connect(home.hub / "hub.db")) as database:
        database.executescript(program)
    files = [(f"hub/{name}", (home.hub / name).read_bytes()) for name in ("key.pem", "hub.db")]
    refused(home, packed(*files), "views or triggers")


def test_any_name_of_a_file_comes_back(home, tmp_path):
    names = ("at 10:30?.md", "a\\b", "line\nend", "ü" * 120, "\udcff")
    for name in names:
        (home.hub / name).write_text(name, errors="surrogateescape")
    fresh = Home(tmp_path / "fresh")
    restored(fresh, backup_of(home))
    assert set(names) <= {path.name for path in fresh.hub.iterdir()}


def test_two_entries_that_would_be_one_file_are_refused(home):
    refused(home, packed(("skills/a.py", b"1"), ("skills/A.py", b"2")), "twice")


def test_a_backup_of_a_newer_version_is_refused(home):
    with closing(sqlite3.connect(home.hub / "hub.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    files = [
        ("hub/key.pem", (home.hub / "key.pem").read_bytes()),
        ("hub/hub.db", (home.hub / "hub.db").read_bytes()),
    ]
    refused(home, packed(*files), "another version of Strawberry")
    refused(home, packed(*files, manifest={"format": 2}), "format")


def test_a_backup_without_a_hub_or_with_a_damaged_database_is_refused(home):
    key = (home.hub / "key.pem").read_bytes()
    database = (home.hub / "hub.db").read_bytes()
    refused(home, packed(("hub/hub.db", database)), "no hub")
    refused(home, packed(("hub/key.pem", key), ("hub/hub.db", b"SQLite no more" * 400)), "no database")
    torn = database[:8192] + os.urandom(4096) + database[12288:]
    refused(home, packed(("hub/key.pem", key), ("hub/hub.db", torn)), "damaged|no database")


# -- who may log in afterwards ----------------------------------------------------------------------------


def test_in_a_fresh_home_no_token_that_works_for_anybody_counts_again(home, tmp_path):
    phone, explorer, tv = token_of(home), token_of(home, "client", "explorer"), joined(home, "TV")
    data = backup_of(home)
    revoke(home, phone)
    later, radio = token_of(home), joined(home, "Radio")
    other = Home(tmp_path / "other")
    restored(other, data)
    assert [is_accepted(other, each) for each in (phone, explorer, later, radio)] == [False] * 4
    assert is_accepted(other, tv)
    broker = Revocations.load(other.broker / "revoked.json")
    assert [broker.covers(claims_in(each)) for each in (phone, explorer, radio)] == [True] * 3


def claims_in(token: str) -> Claims:
    import jwt

    return Claims.model_validate(jwt.decode(token, options={"verify_signature": False}))


def test_what_was_revoked_since_the_backup_stays_revoked_where_the_home_still_knows(home):
    lost, kept, tv, radio = (
        token_of(home),
        token_of(home, name="kept"),
        joined(home, "TV"),
        joined(home, "Radio"),
    )
    data = backup_of(home)
    revoke(home, lost)
    in_registry(home, lambda registry: registry.revoke_device("tv"))
    later, lamp = token_of(home, name="later"), joined(home, "Lamp")
    aside = restored(home, data)
    assert [is_accepted(home, each) for each in (lost, tv, lamp)] == [False] * 3
    assert [is_accepted(home, each) for each in (kept, later, radio)] == [True] * 3
    assert aside is not None
    assert (aside / "hub" / "hub.db").exists()
    assert in_registry(home, _revoked_devices) == {"tv"}
    # The id of a device that was added since is not given to another.
    assert "lamp" in in_registry(home, lambda registry: registry.devices.retired())


async def _revoked_devices(registry: Registry) -> set[str]:
    return {entry.id for entry in registry.directory.entries() if entry.device.revoked}


def test_a_device_that_was_removed_since_does_not_come_back(home):
    tv = joined(home, "TV")
    data = backup_of(home)
    in_registry(home, lambda registry: registry.revoke_device("tv"))
    in_registry(home, lambda registry: registry.devices.remove("tv"))
    restored(home, data)
    assert not is_accepted(home, tv)
    assert in_registry(home, _revoked_devices) == {"tv"}


def test_a_password_and_a_role_that_were_taken_away_since_stay_away(home):
    with closing(sqlite3.connect(home.hub / "hub.db")) as database, database:
        database.execute("UPDATE user SET password = 'old', role = 'admin'")
    data = backup_of(home)
    with closing(sqlite3.connect(home.hub / "hub.db")) as database, database:
        database.execute("UPDATE user SET password = 'new', role = 'member'")
    restored(home, data)
    with closing(sqlite3.connect(home.hub / "hub.db")) as database:
        assert database.execute("SELECT password, role FROM user").fetchall() == [("new", "member")]


def test_an_invitation_that_was_used_since_is_no_way_in(home, tmp_path):
    async def invite(registry: Registry) -> str:
        device = await registry.devices.add("TV", owner=registry.admin.id)
        return (await registry.invite(device.id)).token

    token = in_registry(home, invite)
    data = backup_of(home)
    key = KeyPair.generate().public.jwk()
    in_registry(home, lambda registry: registry.enrolment.enrol(token, key))
    fresh = Home(tmp_path / "other")
    for each in (home, fresh):
        restored(each, data)
        with pytest.raises(Unauthorized):
            in_registry(
                each, lambda registry: registry.enrolment.enrol(token, KeyPair.generate().public.jwk())
            )


def test_a_device_that_the_owner_leaves_out_does_not_come_back(home, tmp_path):
    tv, radio = joined(home, "TV"), joined(home, "Radio")
    other = Home(tmp_path / "other")
    restored(other, backup_of(home), revoke=["tv"])
    assert (is_accepted(other, tv), is_accepted(other, radio)) == (False, True)


def test_a_device_publishes_on_after_a_restore_of_an_older_status(home):
    joined(home, "TV")
    data = backup_of(home)
    with closing(sqlite3.connect(home.hub / "hub.db")) as database, database:
        database.execute("UPDATE device SET epoch = 5000, connection = 3, seq = 9")
    restored(home, data)
    with closing(sqlite3.connect(home.hub / "hub.db")) as database:
        assert database.execute("SELECT epoch, connection, seq FROM device").fetchall() == [(5000, 3, 9)]


# -- taking the place -------------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", range(0, 9, 2))
def test_a_restore_that_is_cut_short_goes_on_where_it_was(moves, home, monkeypatch):
    before = everything(home.directory)
    data = backup_of(home)
    (home.hub / "SOUL.md").write_text("Something else.\n")
    (home.directory / "new.txt").write_text("since then")
    unpack(home, io.BytesIO(data), PASSPHRASE)
    plan(home)
    from deploy.backup import restoring

    done: list[Path] = []
    settled: list[object] = []
    move, settle = restoring._move, restoring._settle
    monkeypatch.setattr(restoring, "_settle", lambda *given: settled.append(given) or settle(*given))

    def interrupted(source: Path, target: Path) -> None:
        if len(done) == moves:
            raise KeyboardInterrupt
        done.append(target)
        move(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_move", interrupted)
        with pytest.raises(KeyboardInterrupt):
            complete(home)
    assert home.restore_plan.exists()
    aside = complete(home)
    assert aside is not None
    assert len(settled) == 1, "later the replaced database may be aside, and with it what was revoked"
    assert (aside / "new.txt").read_text() == "since then"
    assert (aside / "hub" / "SOUL.md").read_text() == "Something else.\n"
    assert not (home.directory / "new.txt").exists()
    for name in (
        "strawberry.toml",
        ".env",
        "hub/SOUL.md",
        "hub/key.pem",
        "captures/big.jsonl",
        "sandbox/snapshot",
    ):
        assert (home.directory / name).read_bytes() == before[name]
    assert not home.restore_plan.exists()


def test_a_restore_that_is_cut_short_as_it_cleans_up_is_complete(home, monkeypatch):
    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    unpack(home, io.BytesIO(backup_of(home)), PASSPHRASE)
    plan(home)
    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        complete(home)
    assert not home.restore_plan.exists()


def test_what_was_decided_to_be_restored_is_not_replaced_by_another_upload(home):
    host = Maintenance(home, restart=Restart(ServiceManager()))
    logging.getLogger().removeHandler(host.logs)
    host.upload.parent.mkdir()
    host.upload.write_bytes(backup_of(home))
    host.restore(PASSPHRASE, [])
    for again in (host.read_backup, lambda words: host.restore(words, [])):
        with pytest.raises(ConfigError, match="decided already"):
            again(PASSPHRASE)
    assert complete(home) is not None


def test_a_restore_that_cannot_be_carried_out_gives_way_to_another(home, tmp_path, monkeypatch, capsys):
    file, secret = tmp_path / "home.age", tmp_path / "passphrase"
    joined(home, "TV")
    file.write_bytes(backup_of(home))
    secret.write_text(WORDS)
    unpack(home, io.BytesIO(file.read_bytes()), PASSPHRASE)
    with closing(sqlite3.connect(staged_files(home) / "hub" / "hub.db")) as database:
        database.execute(STUCK)
    plan(home)
    with pytest.raises(ConfigError, match="stuck"):
        complete(home)
    monkeypatch.setenv("STRAWBERRY_HOME", str(home.directory))
    words = ["restore", str(file), "--passphrase-file", str(secret), "--replace", "--yes"]
    assert main(words) == 0
    assert "is given up" in capsys.readouterr().err
    assert not home.restore_plan.exists()


def test_nothing_is_replaced_under_a_broker_that_runs(home):
    unpack(home, io.BytesIO(backup_of(home)), PASSPHRASE)
    plan(home)
    with only_one(home.broker, what="a broker", hint=""), pytest.raises(ConfigError, match="its broker runs"):
        complete(home)
    assert complete(home) is not None


def test_nothing_is_decided_while_another_hub_uses_the_database(home, monkeypatch, tmp_path, capsys):
    require(postgresql.programs() is not None, postgresql.HINT)
    file, secret = tmp_path / "home.age", tmp_path / "secret"
    file.write_bytes(backup_of(home))
    secret.write_text(WORDS)
    url = postgresql.database("used_home")
    with (home.directory / "strawberry.toml").open("a") as settings:
        settings.write(f'[database]\nurl = "{url}"\n')
    monkeypatch.setenv("STRAWBERRY_HOME", str(home.directory))
    with closing(PostgreSQL(url)) as used:
        used.claim(replica="two")
        assert main(["restore", str(file), "--replace", "--yes", "--passphrase-file", str(secret)]) == 1
    assert "another hub uses the database" in capsys.readouterr().err
    assert not home.restore_plan.exists()


def test_a_restore_that_was_not_begun_leaves_an_empty_database_empty(tmp_path):
    require(postgresql.programs() is not None, postgresql.HINT)
    url = postgresql.database("home_to_begin")
    (tmp_path / "strawberry.toml").write_text(f'[database]\nurl = "{url}"\n')
    check_unused(Home(tmp_path))
    assert is_empty(url)


def test_a_replica_restores_nothing_while_the_others_may_run(home):
    host = Maintenance(home, restart=Restart(ServiceManager()), is_replica=True)
    with pytest.raises(ConfigError, match="a replica of this hub"):
        host.restore(PASSPHRASE, ())
    assert not home.restore_plan.exists()


def test_a_node_of_nats_keeps_its_name_and_its_store_over_a_restore(home):
    node = home.broker / "nats"
    (node / "store").mkdir(parents=True)
    (node / "name").write_text("two.lan:6222")
    assert restored(home, backup_of(home)) is not None
    assert (node / "name").read_text() == "two.lan:6222"
    assert (node / "store").exists()


def test_the_summary_says_what_comes_back(home):
    joined(home, "TV")
    joined(home, "Radio")
    in_registry(home, lambda registry: registry.revoke_device("radio"))
    (home.directory / "strawberry.toml").write_text("[captures]\nfolders = 3\n")
    found = unpack(home, io.BytesIO(backup_of(home)), PASSPHRASE)
    assert [each.name for each in found.devices] == ["TV"]
    assert len(found.people) == 1
    assert "folders" in found.problems[0]


# -- the commands -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands_write_check_and_restore(home, tmp_path):
    environment, file = environment_of(home.directory), tmp_path / "home.age"
    assert run(environment, "backup", str(file), text="short\n").returncode == 1
    assert not file.exists()
    made = run(environment, "backup", str(file), "--json", text=f"{WORDS}\n")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o077 == 0
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["home.age"]
    again = run(environment, "backup", str(file), text=f"{WORDS}\n")
    assert "already" in again.stderr

    in_use = run(environment, "restore", str(file), "--yes", text=f"{WORDS}\n")
    assert (in_use.returncode, "--replace" in in_use.stderr) == (1, True)
    secret = tmp_path / "passphrase"
    secret.write_text(f"{WORDS}\n")
    words = ("restore", str(file), "--passphrase-file", str(secret))
    checked = run(environment, *words, "--check")
    assert "A backup of" in checked.stdout
    declined = run(environment, *words, "--replace", text="n\n")
    assert (declined.returncode, "Nothing was changed" in declined.stderr) == (1, True)
    unknown = run(environment, *words, "--replace", "--yes", "--revoke", "nothing")
    assert "no device 'nothing'" in unknown.stderr
    assert has_data(home)
    done = run(environment, *words, "--replace", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert Path(json.loads(done.stdout)["replaced"], "hub", "hub.db").exists()
    assert not (home.directory / "restore").exists()

    with only_one(home.hub, what="a hub", hint=""):
        running = run(environment, *words, "--replace", "--yes")
        assert "already runs" in running.stderr
        before = sorted(home.directory.rglob("*"))
        checked = run(environment, *words, "--check")
        assert "A backup of" in checked.stdout
        assert sorted(home.directory.rglob("*")) == before

    with only_one(home.broker, what="a broker", hint=""):
        running = run(environment, *words, "--replace", "--yes")
    assert "its broker runs" in running.stderr
    assert not home.restore_plan.exists(), "the next start of the hub would go on with it"
