"""Putting the sandbox's files in place."""

import asyncio
import json
import shutil
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import sandbox_host
from contracts.errors import SandboxError
from sandbox_host import PoolSettings, find, install
from sandbox_host.install import PYODIDE
from tests.sandbox_host.house import House, run_alone
from tests.sandbox_host.processes import sandbox_processes

SOURCES = Path(sandbox_host.__file__).parent / "deno"


@pytest.fixture
def copy(sandbox_files: Path, tmp_path: Path) -> Path:
    """A copy of an installed sandbox that a test may damage."""
    home = asyncio.run(find(sandbox_files)).home
    shutil.copytree(home, tmp_path / "sandbox" / home.name)
    return tmp_path / "sandbox"


async def test_installing_again_does_nothing(sandbox_files: Path) -> None:
    steps: list[str] = []
    before = (await find(sandbox_files)).home.stat().st_mtime_ns
    installed = await install(sandbox_files, progress=steps.append)
    assert steps == []
    assert installed.home.stat().st_mtime_ns == before


async def test_a_damaged_image_is_not_used(copy: Path, house: House) -> None:
    image = next(copy.glob("*/image.bin"))
    content = bytearray(image.read_bytes())
    content[len(content) // 2] ^= 1
    image.write_bytes(content)
    with pytest.raises(SandboxError, match=r"the sandbox was changed: image\.bin"):
        await run_alone(PoolSettings(copy), house, "1")


@pytest.mark.slow
async def test_installing_repairs_what_is_damaged_and_tells_each_step(copy: Path, house: House) -> None:
    next(copy.glob("*/pyodide/pyodide.mjs")).write_text("throw 'planted'")
    steps: list[str] = []
    await install(copy, progress=steps.append)
    assert [step.split()[0] for step in steps] == ["Fetching", "Building", "Compiling"]
    assert (await run_alone(PoolSettings(copy, spares=0), house, "1 + 1")).value == 2
    assert [path for path in copy.iterdir() if path.name.startswith(".new")] == []


@pytest.mark.slow
async def test_two_that_install_at_once_both_end_with_a_working_sandbox(tmp_path: Path, house: House) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from sandbox_host import install;"
        "asyncio.run(install(Path(sys.argv[1])))"
    )
    root = Path(sandbox_host.__file__).parents[1]
    installers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(tmp_path), cwd=root)
        for _ in range(2)
    ]
    assert [await installer.wait() for installer in installers] == [0, 0]
    assert (await run_alone(PoolSettings(tmp_path, spares=0), house, "1 + 1")).value == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".new")] == []


class _NoSuchPackage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_error(404)

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.parametrize("variable", ["NPM_CONFIG_REGISTRY", "npm_config_registry"])
async def test_pyodide_comes_from_the_registry_that_npm_is_set_to(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NPM_CONFIG_REGISTRY", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), _NoSuchPackage) as registry:
        registry.asked = []  # type: ignore[attr-defined]
        thread = Thread(target=registry.serve_forever)
        thread.start()
        monkeypatch.setenv(variable, f"http://127.0.0.1:{registry.server_port}/npm/")
        try:
            with pytest.raises(SandboxError, match="Pyodide could not be fetched") as caught:
                await install(tmp_path)
        finally:
            registry.shutdown()
            thread.join()
        # Deno asks for the package and for its archive at once, and gives up at the first refusal.
        assert any(path.startswith("/npm/pyodide") for path in registry.asked)  # type: ignore[attr-defined]
    assert "registry" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


async def test_where_it_cannot_be_put_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "sandbox").write_text("in the way")
    with pytest.raises(SandboxError, match="cannot be installed") as caught:
        await install(tmp_path / "sandbox")
    assert "permissions" in caught.value.hint


async def test_a_sandbox_of_another_version_is_not_used(copy: Path) -> None:
    (installed,) = copy.iterdir()
    installed.rename(copy / "0123456789abcdef")
    with pytest.raises(SandboxError, match="the sandbox is not installed"):
        await find(copy)


def test_the_lock_file_names_versions_and_hashes_and_no_place_to_fetch_from() -> None:
    text = (SOURCES / "deno.lock").read_text()
    packages = json.loads(text)["npm"]
    assert "http" not in text
    assert f"pyodide@{PYODIDE}" in packages
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert json.loads((SOURCES / "deno.json").read_text())["lock"]["frozen"] is True


async def test_an_installation_that_is_stopped_kills_what_it_started_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin(_step: str) -> None:
        loop.call_soon_threadsafe(began.set)

    async with asyncio.TaskGroup() as tasks:
        installing = tasks.create_task(install(tmp_path, progress=begin))
        await began.wait()
        installing.cancel()
    # Its thread ends by itself, and cleans up after what was killed.
    await loop.shutdown_default_executor()
    assert sandbox_processes() == []
    assert list(tmp_path.iterdir()) == []
