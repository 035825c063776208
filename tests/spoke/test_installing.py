"""Skills of others: fetched, shown, installed, updated and removed, as a person does it."""

import io
import lzma
import os
import subprocess
import tarfile
import tracemalloc
import zipfile
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from contracts.errors import ConfigError, Conflict, InvalidMessage, NotFound
from deploy.cli.main import main
from spoke import limits
from spoke.installing.installation import Fetched, Installation
from spoke.installing.installed import Installed, Manifest, digest_of
from spoke.installing.skill import InstallationSkill
from spoke.installing.sources import fetch
from spoke.isolation.environment import Environment, Lock

CODE = """
import os
from strawberry_skills import Skill, every, skill_method

open(os.environ["STRAWBERRY_HOME"] + "/ran", "w")


class VacuumSkill(Skill):
    uses = ("hall.LampSkill.turn_on",)

    async def setup(self) -> None: ...

    @skill_method(destructive=True, confirm=True)
    def empty_bag(self) -> None: ...

    @skill_method(read_only=True)
    def status(self) -> str:
        return "docked"

    def clean(self) -> None: ...
"""
LATER = (
    CODE.replace(", confirm=True", "")
    + """
    @every("5m")
    def report(self) -> None: ...
"""
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STRAWBERRY_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "strawberry-vacuum"
    folder.mkdir()
    (folder / "vacuum.py").write_text(CODE)
    (folder / ".env").write_text("VACUUM_KEY=secret")
    (folder / "pyproject.toml").write_text('[project]\nname = "vacuum"\nversion = "1.0"\n')
    _git(folder, "init", "--quiet")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message", "Begin")
    return folder


def _git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_commit_is_shown_installed_updated_and_removed(
    home: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = _git(repository, "rev-parse", "HEAD")
    assert main(["skills", "install", f"git+{repository.as_uri()}@{commit}", "--yes"]) == 0
    shown = capsys.readouterr().err
    for line in (
        "vacuum 1.0 from git+",
        "+ VacuumSkill.empty_bag: destructive, confirm",
        "+ VacuumSkill.status: read_only",
        "+ VacuumSkill.clean: says not what it may do",
        "+ VacuumSkill calls other devices: uses = ('hall.LampSkill.turn_on',)",
    ):
        assert line in shown
    assert "setup" not in shown
    assert sorted(each.name for each in (home / "skills" / "vacuum").iterdir()) == [
        "pyproject.toml",
        "vacuum.py",
    ]

    (repository / "vacuum.py").write_text(LATER)
    _git(repository, "commit", "--quiet", "--all", "--message", "Go on")
    assert main(["skills", "update", "vacuum", "--yes"]) == 0
    shown = capsys.readouterr().err
    assert "! VacuumSkill.empty_bag: destructive (was: destructive, confirm)" in shown
    assert "+ VacuumSkill.report: runs by itself: every('5m')" in shown
    assert "status" not in shown
    assert not (home / "ran").exists()

    (home / "skills" / "vacuum" / "more.py").touch()
    assert main(["skills", "list", "--installed"]) == 0
    assert "changed" in capsys.readouterr().out
    assert main(["skills", "update", "vacuum", "--yes"]) == 0
    assert "that is lost" in capsys.readouterr().err
    (home / "skills" / "vacuum").rename(home / "elsewhere")
    assert main(["skills", "update", "vacuum", "--yes"]) == 0
    assert (home / "skills" / "vacuum" / "vacuum.py").is_file()
    assert main(["skills", "remove", "vacuum", "--yes"]) == 0
    assert not list((home / "skills").iterdir())
    assert main(["skills", "remove", "vacuum", "--yes"]) == 1


def test_no_filter_of_ones_own_git_runs_and_no_password_is_kept(
    home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / ".gitattributes").write_text("*.py filter=own export-subst\n")
    _git(repository, "add", ".")
    _git(repository, "commit", "--quiet", "--message", "Filter")
    own = home.parent / "gitconfig"
    own.write_text(f'[filter "own"]\n\tsmudge = touch {home / "filtered"}; cat\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    commit = _git(repository, "rev-parse", "HEAD")
    assert main(["skills", "install", f"git+{repository.as_uri()}@{commit}", "--yes"]) == 0
    assert (home / "skills" / "vacuum" / "vacuum.py").read_text() == CODE
    assert not (home / "filtered").exists()
    assert main(["skills", "install", f"git+https://me:secret@example.org/x@{commit}", "--yes"]) == 1
    assert "has a password" in capsys.readouterr().err


def test_nothing_is_installed_without_a_yes_or_over_a_skill_of_ones_own(
    home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    main(["skills", "install", str(repository)])
    assert not list((home / "skills").iterdir())
    (home / "skills" / "vacuum").mkdir()
    assert main(["skills", "install", str(repository), "--yes"]) == 1
    assert not list((home / "skills" / "vacuum").iterdir())


def _zip(path: Path, name: str, content: bytes = b"", mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        archive.writestr(member, content)
    return path


def _tar(path: Path, name: str, kind: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return path


def test_archives_that_reach_outside_link_or_burst_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INSTALLED_BYTES", 1_000_000)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "skill.py").symlink_to("/etc/passwd")
    target = tmp_path / "target"
    target.mkdir()
    for source in (
        _zip(tmp_path / "1.zip", "../out.py"),
        _zip(tmp_path / "2.zip", "/tmp/out.py"),
        _zip(tmp_path / "3.zip", "link.py", b"/etc/passwd", 0o120777),
        _zip(tmp_path / "4.zip", "large.py", bytes(2_000_000)),
        _tar(tmp_path / "5.tar.gz", "link.py", tarfile.SYMTYPE),
        _tar(tmp_path / "6.tar.gz", "link.py", tarfile.LNKTYPE),
        _tar(tmp_path / "7.tar.gz", "pipe", tarfile.FIFOTYPE),
        _tar(tmp_path / "8.tar.gz", "../out.py", tarfile.REGTYPE),
        _tar(tmp_path / "9.tar.gz", "a.py\nb.py", tarfile.REGTYPE),
        linked,
    ):
        with pytest.raises(ConfigError, match="cannot be read"):
            fetch(str(source), target)
    assert not list(target.iterdir())
    (tmp_path / "oven.py").write_text(CODE)
    nothing = "git+ext::sh@" + "a" * 40, "git+https://example.org/x@main", str(tmp_path / "none")
    for address in (*nothing, str(tmp_path / "oven.py")):
        with pytest.raises(ConfigError, match="no folder, archive or commit"):
            fetch(address, target)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_unpacks_to_very_much_is_refused_before_it_is_read(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "small.tar.xz"
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, 32 << 20
    with lzma.open(path, "wb", preset=1) as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT))
        file.write(bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="more than"):
            fetch(str(path), tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_what_is_confirmed_covers_the_files_of_the_packages(tmp_path: Path) -> None:
    manifest = Manifest(name="oven", packages=("heat==1.0",))
    locks = [Lock(manifest.packages, f"heat==1.0 --hash=sha256:{each}", builds=False) for each in "ab"]
    environment, record = Environment(tmp_path, tmp_path), Installed(tmp_path)
    one, other = [
        Fetched(manifest, None, tmp_path, lock, environment, tmp_path, record).digest for lock in locks
    ]
    assert one != other


def test_of_two_installations_at_once_the_second_is_refused(
    home: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installation = Installation(home)
    with installation.fetched(str(repository)) as one, installation.fetched(str(repository)) as other:
        one.install()
        with pytest.raises(Conflict, match="changed since"):
            other.install()
    with Installed(home / "spoke").alone():
        for action in (["remove", "vacuum"], ["update", "vacuum"]):
            assert main(["skills", *action, "--yes"]) == 1
            assert "another installation" in capsys.readouterr().err
    assert [each.state for each in installation.list()] == [""]


def test_names_with_line_feeds_have_a_digest_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    nothing = sha256(b"").hexdigest()
    (tmp_path / "one" / f"a.py\n{nothing}\nb.py").touch()
    for name in ("a.py", "b.py"):
        (tmp_path / "two" / name).touch()
    assert digest_of(tmp_path / "one") != digest_of(tmp_path / "two")


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_whose_files_unpack_without_a_bound_is_refused(tmp_path: Path, way: int) -> None:
    with zipfile.ZipFile(tmp_path / "small.zip", "w", way) as archive:
        archive.writestr("skill.py", bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="packed in a way"):
            fetch(str(tmp_path / "small.zip"), tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(os.name == "nt", reason="no limits of a process")
@pytest.mark.parametrize(
    ("limit", "most", "reason"),
    [("GIT_BYTES", 1 << 17, "more than"), ("GIT_MEMORY_BYTES", 1 << 20, "failed")],
)
def test_git_is_ended_when_it_takes_more_than_a_skill_may(
    home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, reason: str
) -> None:
    (repository / "large.bin").write_bytes(os.urandom(1_000_000))
    _git(repository, "add", ".")
    _git(repository, "commit", "--quiet", "--message", "Add much")
    source = f"git+{repository.as_uri()}@{_git(repository, 'rev-parse', 'HEAD')}"
    monkeypatch.setattr(limits, limit, most)
    with pytest.raises(ConfigError, match=reason):
        fetch(source, home / "new")
    assert not (home / "new.git").exists()


@pytest.mark.parametrize("name", ["files", "new", "old", "before"])
def test_any_name_is_installed_and_updated_with_all_that_it_loads(
    home: Path, repository: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (repository / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    (repository / "testing.py").write_text("class HiddenSkill:\n    def wipe(self) -> None: ...\n")
    (repository / "test_it.py").write_text("class FakeSkill:\n    def fake(self) -> None: ...\n")
    for action in (["install", str(repository)], ["update", name]):
        assert main(["skills", *action, "--yes"]) == 0
        assert (home / "skills" / name / "vacuum.py").is_file()
        assert [each.name for each in (home / "skills").iterdir()] == [name]
    shown = capsys.readouterr().err
    assert "HiddenSkill.wipe" in shown
    assert "FakeSkill" not in shown


def test_an_archive_of_hidden_files_without_end_and_a_broken_one_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INSTALLED_FILES", 10)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(20):
            archive.writestr(f".hidden/{number}", "")
    with tarfile.open(tmp_path / "folders.tar.gz", "w:gz") as archive:
        for number in range(20):
            member = tarfile.TarInfo(str(number))
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
    with tarfile.open(tmp_path / "broken.tar.xz", "w:xz") as archive:
        member = tarfile.TarInfo("skill.py")
        member.size = 1_000_000
        archive.addfile(member, io.BytesIO(os.urandom(1_000_000)))
    content = bytearray((tmp_path / "broken.tar.xz").read_bytes())
    content[500_000:500_100] = bytes(100)
    (tmp_path / "broken.tar.xz").write_bytes(content)
    for name in ("many.zip", "folders.tar.gz", "broken.tar.xz"):
        with pytest.raises(ConfigError, match="cannot be read"):
            fetch(str(tmp_path / name), tmp_path / f"{name} target")


def test_a_device_takes_an_archive_only_when_it_allows_it_and_installs_what_was_shown(
    home: Path, tmp_path: Path
) -> None:
    skill = InstallationSkill(home)
    archive = _zip(tmp_path / "vacuum.zip", "vacuum.py", CODE.encode()).read_bytes()
    piece = b64encode(archive).decode()
    with pytest.raises(Conflict, match="takes no uploads"):
        skill.upload_skill("vacuum.zip", 0, piece)
    main(["skills", "uploads", "on"])
    for name in ("../vacuum.zip", ".vacuum.zip", "a/b.zip"):
        with pytest.raises(InvalidMessage, match="name of an archive"):
            skill.upload_skill(name, 0, piece)
        with pytest.raises(InvalidMessage, match="name of an archive"):
            skill.show_version(f"upload:{name}")
    name = skill.upload_skill("vacuum.zip", 0, piece).uploaded
    with pytest.raises(NotFound, match="no installed skill"):
        skill.show_version(str(tmp_path / "vacuum.zip"))
    shown = skill.show_version(name)
    later = _zip(tmp_path / "later.zip", "vacuum.py", LATER.encode()).read_bytes()
    skill.upload_skill("vacuum.zip", 0, b64encode(later).decode())
    with pytest.raises(Conflict, match="changed since it was shown"):
        skill.install_version(name, shown.digest)
    assert skill.install_version(name, skill.show_version(name).digest).installed[0].name == "vacuum"
    main(["skills", "uploads", "off"])
    assert not (home / "ran").exists()
    with pytest.raises(Conflict, match="takes no uploads"):
        skill.show_version(name)
