"""An agent reads and writes below its own directory, and nowhere else."""

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from contracts.errors import FileProblem, Forbidden
from hub_agent.agents.files import AgentFiles, ListedFile
from hub_agent.agents.profile import AgentProfile, Quota

SECRET = "the key of the hub"
POSIX = pytest.mark.skipif(os.name != "posix", reason="links and special files of POSIX")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data directory with something that no agent may see."""
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "key.pem").write_text(SECRET)
    (tmp_path / "data" / "finance" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "finance" / "plain.txt").write_text("mine\n")
    (tmp_path / "data" / "finances").mkdir()
    (tmp_path / "data" / "finances" / "other.txt").write_text(SECRET)
    return tmp_path


def files_of(home: Path, **profile: object) -> AgentFiles:
    return AgentFiles.of(home, "finance", AgentProfile.model_validate({"prompt": "Count.", **profile}))


PATHS = [
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "//etc/passwd",
    "../finances/other.txt",
    "../../hub/key.pem",
    "sub/../../finances/other.txt",
    "sub/./x",
    "sub//x",
    "./plain.txt",
    "plain.txt/",
    "plain.txt/..",
    "..\\finances\\other.txt",
    "C:\\Windows\\win.ini",
    "C:x",
    "~/x",
    "sub/..%2f..",
    "plain.txt\0.png",
    "plain.txt\n",
    "plain.txt:stream",
    ".hidden",
    "sub/.env",
    "CON",
    "nul.txt",
    "plain.txt.",
    "plain.txt ",
    "．．／finances",
    "a" * 200,
    "/".join(["a"] * 40),
]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_leads_elsewhere_is_refused(home: Path, path: str) -> None:
    files = files_of(home)
    before = sorted(home.rglob("*"))
    if path in ("~/x", "sub/..%2f..", "．．／finances"):
        # Names like others: nothing in them is expanded.
        with pytest.raises((Forbidden, FileNotFoundError)):
            files.read(path, 1)
        return
    with pytest.raises(Forbidden):
        files.read(path, 1)
    with pytest.raises(Forbidden):
        files.write(path, "gone", append=False)
    if path not in ("", "."):
        with pytest.raises(Forbidden):
            files.list(path)
    assert sorted(home.rglob("*")) == before


@POSIX
@pytest.mark.parametrize(
    "kind", ["link", "link to a folder", "hard link", "FIFO", "socket", "dangling link", "loop", "folder"]
)
def test_what_is_no_plain_file_is_refused(home: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files, mine, secret = files_of(home), home / "data" / "finance", home / "hub" / "key.pem"
    path = mine / "x"
    name = "x"
    match kind:
        case "link":
            path.symlink_to(secret)
        case "link to a folder":
            path.symlink_to(secret.parent, target_is_directory=True)
            name = "x/key.pem"
        case "hard link":
            path.hardlink_to(secret)
        case "FIFO":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                # The path would be too long for one.
                monkeypatch.chdir(mine)
                bound.bind("x")
        case "dangling link":
            path.symlink_to(home / "hub" / "new")
        case "loop":
            path.symlink_to("x")
        case "folder":
            path.mkdir()
    for attempt in (
        lambda: files.read(name, 1),
        lambda: files.write(name, "gone", append=False),
        lambda: files.write(name, "gone", append=True),
    ):
        with pytest.raises((Forbidden, IsADirectoryError)):
            attempt()
    assert [each.path for each in files.list("")] == ["plain.txt"]
    assert secret.read_text() == SECRET
    assert not (home / "hub" / "new").exists()


@POSIX
def test_a_link_in_place_of_the_directory_itself_is_refused(home: Path) -> None:
    (home / "data").rename(home / "moved")
    (home / "data").symlink_to(home / "hub")
    for directory in (None, "data/finance"):
        files = files_of(home, data_dir=directory)
        with pytest.raises(Forbidden):
            files.read("key.pem", 1)
        with pytest.raises(Forbidden):
            files.list("")


@pytest.mark.parametrize("path", ["", "data", "data/finance", "hub", "agents/x", "../.."])
def test_a_directory_that_holds_files_of_strawberry_is_refused(home: Path, path: str) -> None:
    with pytest.raises(FileProblem, match="Strawberry's own files"):
        files_of(home, data_dir=str(home / path))


def test_a_directory_elsewhere_is_the_owners_choice(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("documents")
    files = files_of(home, data_dir=str(elsewhere))
    assert files.write("2026/june.txt", "tea", append=False) == 3
    assert (elsewhere / "2026" / "june.txt").read_text() == "tea"


def test_files_are_written_read_in_pages_and_listed(home: Path) -> None:
    files = files_of(home)
    assert files.write("reports/june.txt", "one\n", append=False) == 4
    assert files.write("reports/june.txt", "two\n", append=True) == 8
    assert files.read("reports/june.txt", 2) == "two\n"
    with suppress(OSError, ValueError):  # systems that have only names which are text
        Path(os.fsdecode(os.fsencode(home / "data" / "finance" / "reports") + b"/caf\xe9")).touch()
    assert files.list("reports") == [ListedFile(path="reports/june.txt", bytes=8)]
    assert [each.path for each in files.list("")] == ["plain.txt", "reports/june.txt"]
    files.write("long.txt", "".join(f"line {number}\n" for number in range(2_000)), append=False)
    page = files.read("long.txt", 1)
    assert page.startswith("line 0\n")
    assert len(page) < 7_200
    onward = int(page.rpartition("line=")[2].rstrip(".]"))
    assert files.read("long.txt", onward).startswith(f"line {onward - 1}\n")
    (home / "data" / "finance" / "image.png").write_bytes(b"\x89PNG\0\0")
    with pytest.raises(ValueError, match="not a text file"):
        files.read("image.png", 1)
    assert not list((home / "data").rglob(".*"))


def test_the_quota_holds(home: Path) -> None:
    files = files_of(home, quota=Quota(files=3, bytes=100))
    files.write("a.txt", "x" * 60, append=False)
    with pytest.raises(Forbidden, match="100 bytes"):
        files.write("b.txt", "x" * 60, append=False)
    with pytest.raises(Forbidden, match="100 bytes"):
        files.write("a.txt", "x" * 60, append=True)
    files.write("a.txt", "x", append=False)
    files.write("b/b.txt", "x", append=False)
    with pytest.raises(Forbidden, match="3 files"):
        files.write("c.txt", "x", append=False)
    files.write("b/b.txt", "y", append=True)


SWAPPER = """
import os, shutil, sys
mine, secret = sys.argv[1:]
os.chdir(mine)
folder = os.path.dirname(secret)

def plain(): open("x", "w").write("mine"); os.remove("x")
def link(): os.symlink(secret, "x"); os.remove("x")
def hard(): os.link(secret, "h"); os.remove("h")
def own(): open("h", "w").write("mine"); os.remove("h")
def inner(): os.mkdir("d"); open("d/key.pem", "w").write("mine"); shutil.rmtree("d")
def outer(): os.symlink(folder, "d"); os.remove("d")

print("ready", flush=True)
while True:
    for swap in (plain, link, hard, own, inner, outer):
        try:
            swap()
        except OSError:
            # The agent wrote there at this moment.
            for left in ("x", "h"):
                if os.path.lexists(left):
                    os.remove(left)
            if os.path.islink("d"):
                os.remove("d")
            shutil.rmtree("d", ignore_errors=True)
"""


@POSIX
@pytest.mark.slow
def test_no_moment_leads_out_while_another_process_swaps_links(home: Path) -> None:
    files, secret = files_of(home), home / "hub" / "key.pem"
    script = [sys.executable, "-c", SWAPPER, str(home / "data" / "finance"), str(secret)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as swapper:
        try:
            assert swapper.stdout.readline() == "ready\n"
            begun, read, refused = time.monotonic(), 0, 0
            while (took := time.monotonic() - begun) < 5 or (took < 120 and not (read and refused)):
                for name in ("x", "d/key.pem", "h"):
                    try:
                        assert SECRET not in files.read(name, 1)
                        read += 1
                    except (Forbidden, OSError):
                        refused += 1
                    try:
                        files.write(name, "changed", append=False)
                    except (Forbidden, OSError):
                        refused += 1
                try:
                    for each in files.list("d"):
                        assert each.bytes != len(SECRET)
                except (Forbidden, OSError):
                    refused += 1
                assert secret.read_text() == SECRET
                assert [path.name for path in secret.parent.iterdir()] == ["key.pem"]
            assert swapper.poll() is None
        finally:
            swapper.kill()
    # Both happened, so the links were there at some moments and not at others.
    assert read > 0
    assert refused > 0
