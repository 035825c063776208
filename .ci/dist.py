"""Builds the wheels and the source archive: ``python .ci/dist.py DIRECTORY``.

The same commit gives the same bytes. The second wheel is for authors of skills, to test on a machine without
Strawberry: it has ``strawberry_skills`` and the modules of this repository that it imports.
"""

import ast
import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from man import pages

ROOT = Path(__file__).parents[1]


def build(target: Path) -> list[Path]:
    """Build into a directory; return the wheel, the wheel for authors and the source archive."""
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
        authors = _wheel_for_authors(wheel)
        return [Path(shutil.move(each, target / each.name)) for each in (wheel, authors, archive)]


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
            lines.append(f"{info.filename},{_digest(page.encode())}\n")
            new.writestr(info, page)
        (last,) = ((info, content) for info, content in entries if info.filename == record)
        new.writestr(last[0], last[1] + "".join(lines).encode())


def _digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"sha256={digest},{len(content)}"


def _wheel_for_authors(wheel: Path) -> Path:
    """Make the wheel ``strawberry-skills`` of files of the whole wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    modules, others = _imports("strawberry_skills")
    needed = [
        each for each in project["dependencies"] if re.split("[^\\w-]", each)[0].replace("-", "_") in others
    ]
    version, tag = project["version"], wheel.name.partition("-py3")[2]
    about = f"strawberry_skills-{version}.dist-info"
    metadata = "".join(
        (
            f"Metadata-Version: 2.1\nName: strawberry-skills\nVersion: {version}\n",
            "Summary: Write and test skills for Strawberry. A machine with strawberry-home has it already.\n",
            f"Requires-Python: {project['requires-python']}\n",
            *(f"Requires-Dist: {each}\n" for each in needed),
        )
    )
    with zipfile.ZipFile(wheel) as whole:
        entries = {each: whole.read(each) for each in whole.namelist() if each in modules}
        when = whole.infolist()[0].date_time
        (kind,) = (whole.read(each) for each in whole.namelist() if each.endswith(".dist-info/WHEEL"))
    plugins = project["entry-points"]["pytest11"]
    points = "[pytest11]\n" + "".join(f"{name} = {module}\n" for name, module in plugins.items())
    entries |= {
        f"{about}/METADATA": metadata.encode(),
        f"{about}/WHEEL": kind,
        f"{about}/entry_points.txt": points.encode(),
    }
    record = (
        "".join(f"{name},{_digest(content)}\n" for name, content in entries.items()) + f"{about}/RECORD,,\n"
    )
    made = wheel.with_name(f"strawberry_skills-{version}-py3{tag}")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in {**entries, f"{about}/RECORD": record.encode()}.items():
            info = zipfile.ZipInfo(name, when)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            new.writestr(info, content)
    return made


def _imports(package: str) -> tuple[set[str], set[str]]:
    """Return the files of a package with those that it imports, and the names of packages of others."""
    todo = [each.relative_to(ROOT) for each in (ROOT / package).rglob("*") if each.is_file()]
    files: set[str] = set()
    others: set[str] = set()
    while todo:
        file = todo.pop()
        if file.as_posix() in files or file.suffix == ".pyc":
            continue
        files.add(file.as_posix())
        todo += [each / "__init__.py" for each in file.parents[:-1]]
        todo += [each.relative_to(ROOT) for each in (ROOT / file.parts[0]).glob("py.typed")]
        for module in _imported(ROOT / file) if file.suffix == ".py" else ():
            path = Path(*module.split("."))
            found = [
                each for each in (path.with_suffix(".py"), path / "__init__.py") if (ROOT / each).is_file()
            ]
            todo += found
            if not found:
                others.add(path.parts[0])
    return files, others


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


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
