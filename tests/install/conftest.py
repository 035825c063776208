"""The wheel and the source archive of this checkout, built once for all workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]


def build(target: Path, *, tree: Path = ROOT, **environment: str) -> list[Path]:
    """Build a tree as ``make dist`` does; gives both wheels and the source archive."""
    command = [sys.executable, str(tree / ".ci" / "dist.py"), str(target)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheel, wheel for authors, and source archive."""
    base = tmp_path_factory.getbasetemp()
    # The workers of one run have their directories side by side.
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dist"
    with FileLock(shared.with_suffix(".lock")):
        if not (shared / "done").exists():
            build(shared)
            (shared / "done").touch()
    return [*sorted(shared.glob("*.whl")), *shared.glob("*.tar.gz")]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory outside of the checkout, where commands are run that know nothing of it."""
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRAWBERRY_HOME", str(tmp_path / "home"))
    return tmp_path
