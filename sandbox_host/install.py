"""Puts the sandbox's files in place: Pyodide, our two programs, and the memory image.

Layout under the given directory; ``<version>`` is a hash of everything that goes in, so that another
version never meets the files of this one::

    <version>/host.ts, guest.py, mksnap.ts, import_map.json
    <version>/pyodide/…        as published, checked by Deno against the frozen lock file
    <version>/image.bin        the memory image
    <version>/sums.json        SHA-256 of each of these files
    <version>/cache/           compiled JavaScript; every process gets a copy of its own
    processes/<pid>-<random>/  these copies
"""

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from bus.processes import open_process
from contracts.errors import SandboxError, SandboxMissing
from sandbox_host import limits

Progress = Callable[[str], None]
"""Called with the present step of the installation, in a few words."""

PYODIDE: Final = "314.0.7"
WASM_PAGES: Final = 4096
"""256 MB: pages of 64 KB that the interpreter's memory may have."""

_SOURCES: Final = Path(__file__).parent / "deno"
_PROGRAMS: Final = ("host.ts", "guest.py", "mksnap.ts")
_LOCKED: Final = ("deno.json", "deno.lock")
_PYODIDE_FILES: Final = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
_IMAGE: Final = "image.bin"
_SUMS: Final = "sums.json"
_CACHE: Final = "cache"
_CHUNK: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Installed:
    """The sandbox's files, in place and checked.

    Attributes:
        home: The directory of this version.
        processes: Where processes have their private caches.
    """

    home: Path
    processes: Path

    def command(self) -> list[str]:
        """Return the command line of a sandbox process."""
        flags = f"--v8-flags=--disallow-code-generation-from-strings,--wasm-max-mem-pages={WASM_PAGES}"
        command = _run(self.home, "--deny-import", f"--allow-read={self.home}", flags)
        return [*command, str(self.home / "host.ts"), str(self.home / _IMAGE)]


async def install(directory: Path, *, progress: Progress | None = None) -> Installed:
    """Put the sandbox's files in place; does nothing where they are and are intact.

    Several processes may do it at the same time. Nothing incomplete is ever seen under a final name.

    Args:
        directory: Owner-only home of the sandbox.
        progress: Called at each step.

    Returns:
        The files.

    Raises:
        SandboxError: If they cannot be fetched or built.
    """
    tell = progress or (lambda _: None)
    _version()  # without Deno there is nothing to build
    try:
        try:
            installed = await find(directory)
        except SandboxError:
            await _build(directory, tell)
            installed = await find(directory)
        if not (installed.home / _CACHE).is_dir():
            tell("Compiling the sandbox")
            await _compile(installed)
    except OSError as error:
        raise SandboxError(
            f"the sandbox cannot be installed: {error}",
            hint=f"Check the permissions of {directory} and its free disk space.",
        ) from None
    return installed


async def _call(
    command: list[str], *, environment: dict[str, str], seconds: float, failure: str, hint: str
) -> None:
    """Run a program to its end; it is killed where that is not waited for.

    Raises:
        SandboxError: With ``failure`` if it cannot be run, fails or takes longer.
    """
    try:
        running = open_process(command, env=environment, stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(seconds), running as process:
            _, errors = await process.communicate()
    except TimeoutError:
        raise SandboxError(f"{failure}: it takes longer than {seconds:g} s", hint=hint) from None
    except OSError as error:
        raise SandboxError(f"{failure}: {error}", hint=hint) from None
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        reason = lines[0][:300] if lines else f"exit code {process.returncode}"
        raise SandboxError(f"{failure}: {reason}", hint=hint)


async def find(directory: Path) -> Installed:
    """Return the files that ``install`` put in place, after a check of their hashes.

    Raises:
        SandboxError: If they are not there, or not as they were.
    """
    return await asyncio.to_thread(_find, directory)


@asynccontextmanager
async def private_cache(installed: Installed) -> AsyncIterator[Path]:
    """Return a cache directory that one process has for itself; it is deleted afterwards.

    What a process leaves in its cache is run by the next one that uses the same, so none may share.
    """
    cache = installed.processes / f"{os.getpid()}-{secrets.token_hex(6)}"
    try:
        await asyncio.to_thread(_copy_cache, installed.home / _CACHE, cache)
        yield cache
    finally:
        await asyncio.to_thread(shutil.rmtree, cache, ignore_errors=True)


def _copy_cache(original: Path, cache: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # it makes a start faster, and is not needed for one
        # Deno also puts a link to its own binary there, which would be copied as 96 MB.
        shutil.copytree(original, cache, ignore=shutil.ignore_patterns("node_compat_bin"))
    cache.mkdir(parents=True, mode=0o700, exist_ok=True)


def sweep(installed: Installed) -> None:
    """Delete the caches of processes whose owner was killed before it could."""
    import psutil

    if not installed.processes.is_dir():
        return
    for left in installed.processes.iterdir():
        owner = left.name.partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def _version() -> str:
    try:
        deno = version("deno")
    except PackageNotFoundError:
        raise SandboxMissing(
            "the sandbox needs Deno, which is not installed",
            hint="Install it: pip install 'strawberry-home[sandbox]'.",
        ) from None
    whole = hashlib.sha256(f"{PYODIDE} {WASM_PAGES} {deno}".encode())
    for name in (*_PROGRAMS, *_LOCKED):
        whole.update((_SOURCES / name).read_bytes())
    return whole.hexdigest()[:16]


def _find(directory: Path) -> Installed:
    home = directory.absolute() / _version()
    try:
        sums: dict[str, str] = json.loads((home / _SUMS).read_text())
        changed = [name for name, sum_ in sums.items() if _sha256(home / name) != sum_]
    except FileNotFoundError:
        raise SandboxMissing(
            "the sandbox is not installed",
            hint="'strawberry up' installs it; its first start takes a minute or two.",
        ) from None
    except (OSError, ValueError) as error:
        raise SandboxError(f"the sandbox cannot be read: {error}", hint=f"delete {home}") from None
    if changed:
        raise SandboxError(f"the sandbox was changed: {', '.join(changed)}", hint=f"delete {home}")
    return Installed(home, home.parent / "processes")


async def _build(directory: Path, progress: Progress) -> None:
    """Make the files under a name of their own, then give them the final name in one step."""
    with _staging(directory) as staging:
        for name in (*_PROGRAMS, *_LOCKED):
            shutil.copyfile(_SOURCES / name, staging / name)
        progress(f"Fetching Pyodide {PYODIDE} (14 MB)")
        await _fetch(staging)
        progress("Building the sandbox's memory image (a few seconds, once)")
        await _make_image(staging)
        placing = asyncio.get_running_loop().run_in_executor(None, _put_in_place, staging)
        try:
            await asyncio.shield(placing)
        finally:
            # Its thread cannot be stopped, and works on what is deleted next.
            await asyncio.wait([placing])


@contextmanager
def _staging(directory: Path) -> Iterator[Path]:
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    staging = directory.absolute() / f".new-{secrets.token_hex(6)}"
    staging.mkdir(mode=0o700)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _put_in_place(staging: Path) -> None:
    """Note the sums of a finished directory and rename it; where an intact one stands already, it stays."""
    names = [*_PROGRAMS, "import_map.json", _IMAGE, *(f"pyodide/{name}" for name in _PYODIDE_FILES)]
    (staging / _SUMS).write_text(json.dumps({name: _sha256(staging / name) for name in names}, indent=2))
    home = staging.parent / _version()
    with contextlib.suppress(SandboxError):
        _find(home.parent)
        return
    # A damaged one is moved away first: a directory cannot be renamed over one that is not empty.
    damaged = staging.with_name(f"{staging.name}-damaged")
    with contextlib.suppress(FileNotFoundError):
        home.rename(damaged)
    shutil.rmtree(damaged, ignore_errors=True)
    try:
        staging.rename(home)
    except OSError:
        _find(home.parent)  # another process was faster; what it made has to be right


async def _fetch(staging: Path) -> None:
    deno_dir = staging / "deno"
    registry = await asyncio.to_thread(_registry, os.environ)
    environment = {**os.environ, **registry, "DENO_DIR": str(deno_dir), "NO_COLOR": "1"}
    environment.setdefault("DENO_TLS_CA_STORE", "mozilla,system")
    command = [_deno(), "cache", "--quiet", "--frozen", "--config", str(staging / "deno.json")]
    await _call(
        [*command, str(staging / "host.ts")],
        environment=environment,
        seconds=limits.DOWNLOAD_SECONDS,
        failure="Pyodide could not be fetched",
        hint="check the network and the npm registry settings (npm config get registry)",
    )
    found = next(deno_dir.glob(f"npm/**/pyodide/{PYODIDE}/pyodide.mjs"), None)
    if found is None:
        raise SandboxError(
            "Pyodide is missing from the download", hint="report this: Deno's cache has changed"
        )
    (staging / "pyodide").mkdir()
    for name in (*_PYODIDE_FILES, "pyodide-lock.json"):
        shutil.copyfile(found.with_name(name), staging / "pyodide" / name)
    imports = {"imports": {"pyodide": "./pyodide/pyodide.mjs"}}
    (staging / "import_map.json").write_text(json.dumps(imports))
    # With these gone, nothing is left that would make Deno look for npm packages.
    shutil.rmtree(deno_dir)
    for name in _LOCKED:
        (staging / name).unlink()


def _registry(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Deno the npm registry that npm itself would use.

    Deno reads the variable in capitals and the user's ``.npmrc``; npm also reads the variable in
    small letters and the machine's configuration.
    """
    if environment.get("NPM_CONFIG_REGISTRY"):
        return {}
    registry = environment.get("npm_config_registry", "")
    npm = shutil.which("npm")
    if not registry and npm:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            asked = subprocess.run(
                [npm, "config", "get", "registry"], capture_output=True, text=True, timeout=30, check=True
            )
            registry = asked.stdout.strip()
    return {"NPM_CONFIG_REGISTRY": registry} if registry.startswith(("http://", "https://")) else {}


async def _make_image(staging: Path) -> None:
    cache = staging / "build-cache"
    command = _run(staging, f"--allow-read={staging}", f"--allow-write={staging}")
    await _call(
        [*command, str(staging / "mksnap.ts"), str(staging / "guest.py"), str(staging / _IMAGE)],
        environment=bare_environment(cache),
        seconds=limits.BUILD_SECONDS,
        failure="the sandbox's memory image could not be built",
        hint="it needs about 500 MB of memory and 100 MB of disk",
    )
    shutil.rmtree(cache, ignore_errors=True)


async def _compile(installed: Installed) -> None:
    """Start once and keep the compiled JavaScript, which takes a third off every later start."""
    with _staging(installed.home.parent) as staging:
        # The first start compiles, and only the second one stores the result.
        for _ in range(2):
            await _call(
                installed.command(),
                environment=bare_environment(staging),
                seconds=limits.BUILD_SECONDS,
                failure="the sandbox does not start",
                hint="run `strawberry doctor`",
            )
        with contextlib.suppress(OSError):  # another process was faster
            staging.rename(installed.home / _CACHE)


def _run(home: Path, *flags: str) -> list[str]:
    offline = ["--quiet", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--cached-only"]
    return [_deno(), "run", *offline, f"--import-map={home / 'import_map.json'}", *flags]


def _deno() -> str:
    from deno import find_deno_bin  # an extra: a spoke does without it

    return str(find_deno_bin())


def bare_environment(cache: Path) -> dict[str, str]:
    """Return the whole environment of a sandbox process; nothing of ours gets into it."""
    environment = {"DENO_DIR": str(cache), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    if "SYSTEMROOT" in os.environ:
        environment["SYSTEMROOT"] = os.environ["SYSTEMROOT"]  # no Windows program starts without it
    return environment


def _sha256(file: Path) -> str:
    # In few steps: after each one, a busy main thread keeps this one waiting for the interpreter's lock.
    hashed = hashlib.sha256()
    with file.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()
