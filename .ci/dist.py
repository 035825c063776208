"""Builds the wheel and the source archive: ``python .ci/dist.py DIRECTORY``.

The same commit gives the same bytes.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

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
        return [Path(shutil.move(each, target / each.name)) for each in (wheel, archive)]


def _time_of_commit() -> str:
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "315619200"  # a zip file knows no time before 1980


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
