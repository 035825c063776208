"""Environments of skills: packages resolved, locked by their hashes and installed by uv."""

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from contracts.errors import ConfigError
from identity.files import make_private_directory, write_private
from spoke import limits

_FRAMEWORK: Final = ("pydantic", "pydantic-core", "typing-extensions", "typing-inspection", "annotated-types")
"""What a skill's process takes from this installation: a skill may need the same versions, but no others."""
_LOCK: Final = "requirements.lock"
_LINE: Final = re.compile(r"[^$\x00-\x1f\x7f]+")
"""Of one requirement: uv fills in variables, which may be keys, and reads what follows on the next line."""


@dataclass(frozen=True)
class Lock:
    """Packages that were resolved, with the hashes of their files.

    Attributes:
        packages: As ``name==1.2`` or ``name @ address``.
        text: What uv installs.
        builds: Whether packages may be built from source, which runs their code.
    """

    packages: tuple[str, ...]
    text: str
    builds: bool


class Environment:
    """The environment of one skill, in a folder that is named for all that it depends on.

    Args:
        entry: File or folder of the skill.
        directory: Holds the environments of all skills.
    """

    def __init__(self, entry: Path, directory: Path) -> None:
        self.entry = entry
        self._directory = directory

    @property
    def requirements(self) -> str:
        """The packages that the skill asks for, a line each; empty where it needs none.

        Raises:
            ConfigError: They cannot be read, or hold what is no package.
        """
        try:
            return "\n".join(_requirements(self.entry))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(
                "the packages of {name} cannot be read: {reason}", name=self.entry.name, reason=error
            ) from None

    @property
    def folder(self) -> Path:
        given = "\n".join((self.requirements, sys.version, *_constraints()))
        digest = hashlib.sha256(given.encode()).hexdigest()[:12]
        return self._directory / f"{self.entry.name}-{digest}"

    @property
    def lock_file(self) -> Path:
        # It exists once the packages are installed.
        return self.folder / _LOCK

    @property
    def python(self) -> list[str]:
        """The command of its Python.

        Raises:
            ConfigError: Its packages are not installed.
        """
        if not self.requirements:
            return [sys.executable, "-I", "-S", "-u"]
        if not self.lock_file.is_file():
            raise ConfigError(
                "its packages are not installed",
                hint=f"'strawberry skills packages {self.entry.name}' shows and installs them",
            )
        return [str(_python_in(self.folder)), "-I", "-u"]

    def resolve(self, *, builds: bool = False) -> Lock:
        """Choose the versions of all packages that the skill needs. Nothing of them runs.

        Args:
            builds: Whether packages without a wheel are allowed.

        Raises:
            ConfigError: There is no uv, or no versions that fit.
        """
        make_private_directory(self._directory)
        constraints = self._directory / "framework.txt"
        constraints.write_text("\n".join(_constraints()))
        text = self._uv(
            *("pip", "compile", "--no-header", "--no-annotate", "--generate-hashes"),
            *("--python", sys.executable, "--constraints", str(constraints), *_sources(builds), "-"),
            given=self.requirements,
            builds=builds,
        )
        packages = (line for line in text.splitlines() if line and not line[0].isspace())
        return Lock(tuple(line.removesuffix("\\").strip() for line in packages), text, builds)

    def install(self, lock: Lock) -> None:
        """Install packages by their hashes, and remove earlier environments of this skill.

        Raises:
            ConfigError: It does not work.
        """
        folder = self.folder
        if self.lock_file.is_file() and self.lock_file.read_text("utf-8") == lock.text:
            return
        shutil.rmtree(folder, ignore_errors=True)
        self._uv("venv", "--python", sys.executable, str(folder))
        resolved = folder / "resolved.txt"
        resolved.write_text(lock.text)
        self._uv(
            *("pip", "install", "--python", str(_python_in(folder)), "--no-deps"),
            *("--require-hashes", *_sources(lock.builds), "-r", str(resolved)),
            builds=lock.builds,
        )
        # The last step: what has no lock is not complete.
        write_private(folder / _LOCK, lock.text.encode())
        self.remove(but=folder)

    def remove(self, *, but: Path | None = None) -> None:
        """Remove the environments of this skill."""
        for each in self._directory.glob(f"{self.entry.name}-" + "[0-9a-f]" * 12):
            if each != but:
                shutil.rmtree(each, ignore_errors=True)

    def _uv(self, *arguments: str, given: str = "", builds: bool = False) -> str:
        program = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
        if program is None:
            raise ConfigError(
                "uv installs the packages of skills, and it is not installed",
                hint="Install it with 'pipx install uv', or as https://docs.astral.sh/uv/ says.",
            )
        try:
            done = subprocess.run(
                [program, "--quiet", *arguments],
                input=given,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=limits.PACKAGES_S,
                check=False,
                # Not the folder of a skill, whose settings of uv would count.
                cwd=self._directory,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError("uv failed: {reason}", reason=error) from None
        if done.returncode != 0:
            raise ConfigError(
                "uv failed: {reason}",
                reason=" ".join(done.stderr.split())[-limits.PACKAGES_REASON :],
                hint="UV_FIND_LINKS names a folder of wheels, UV_DEFAULT_INDEX another index."
                + ("" if builds else " --build allows packages without a wheel; building one runs its code."),
            )
        return done.stdout


def _requirements(entry: Path) -> list[str]:
    listed = entry / "requirements.txt"
    if listed.is_file():
        lines = [line.partition(" #")[0].strip() for line in listed.read_text().splitlines()]
        needed = [line for line in lines if line and not line.startswith("#")]
    elif (entry / "pyproject.toml").is_file():
        project = tomllib.loads((entry / "pyproject.toml").read_text()).get("project")
        needed = project.get("dependencies", []) if isinstance(project, dict) else []
    else:
        needed = []
    for each in needed:
        if not isinstance(each, str) or not each[:1].isalnum() or not _LINE.fullmatch(each):
            raise ConfigError(
                "{name} asks for {line!r}, which is no package",
                name=entry.name,
                line=str(each)[:100],
                hint="Options, folders and variables are not allowed; set an index with UV_DEFAULT_INDEX.",
            )
    return needed


def _constraints() -> list[str]:
    return [f"{name}=={version(name)}" for name in _FRAMEWORK]


def _sources(builds: bool) -> Sequence[str]:
    return () if builds else ("--no-build",)


def _python_in(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
