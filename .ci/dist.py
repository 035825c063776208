"""Builds the wheel and the source archive: ``python .ci/dist.py DIRECTORY``.

The same commit gives the same bytes.
"""

import base64
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from man import pages

ROOT = Path(__file__).parents[1]


def build(target: Path) -> list[Path]:
    """Build into a directory; return wheel and source archive."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _time_of_commit()
    target.mkdir(parents=True, exist_ok=True)
    # The target may have what was built of another version.
    with tempfile.TemporaryDirectory() as empty:
        # From the source archive, so that nothing of the checkout gets into the wheel that is not in it.
        subprocess.run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", empty, str(ROOT)],
            env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        (archive,) = Path(empty).glob("*.tar.gz")
        (wheel,) = Path(empty).glob("*.whl")
        _normalise(archive, int(epoch))
        _add_manual(wheel)
        return [Path(shutil.move(each, target / each.name)) for each in (wheel, archive)]


def _time_of_commit() -> str:
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "315619200"  # a zip file knows no time before 1980


def _add_manual(wheel: Path) -> None:
    """Add the man pages, which pip puts into share/man of the environment."""
    name = wheel.name.rpartition("-py3")[0]
    with zipfile.ZipFile(wheel) as old:
        entries = [(each, old.read(each)) for each in old.infolist()]
    when, record = entries[0][0].date_time, f"{name}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        for info, content in entries:
            if info.filename != record:
                new.writestr(info, content)
        for file, page in sorted(pages().items()):
            info = zipfile.ZipInfo(f"{name}.data/data/share/man/man1/{file}", when)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            digest = base64.urlsafe_b64encode(hashlib.sha256(page.encode()).digest()).decode().rstrip("=")
            lines.append(f"{info.filename},sha256={digest},{len(page.encode())}\n")
            new.writestr(info, page)
        (last,) = ((info, content) for info, content in entries if info.filename == record)
        new.writestr(last[0], last[1] + "".join(lines).encode())


def _normalise(archive: Path, epoch: int) -> None:
    """Write the archive again with one time and owner for everything, which setuptools does not do."""
    plain = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=plain, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            content = old.extractfile(member)
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.pax_headers = {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, content)
    archive.write_bytes(gzip.compress(plain.getvalue(), mtime=epoch))


if __name__ == "__main__":
    for file in build(Path(sys.argv[1]).absolute()):
        print(file)  # noqa: T201
