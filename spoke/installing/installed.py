"""What a skill of others is and may do, by its files, and which are installed."""

import ast
import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from agent_core.skills.skill import HOOKS
from contracts.errors import ConfigError
from identity.files import only_one, write_private
from strawberry_skills import API

_FILE: Final = "installed.json"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_TESTS: Final = ("tests", "conftest.py")
_OWN: Final = ("skill_method", "every", "at", "on_event", "on_value")
"""Decorators that are shown: what a method may do, and when it runs by itself."""


class Manifest(BaseModel):
    """A skill as its files declare it.

    Attributes:
        name: Of its folder.
        methods: By ``Skill.method``, what its decorators say; empty where they say nothing.
        packages: With their versions.
        source: Where it came from.
        digest: Hash of all its files.
    """

    name: str
    version: str = ""
    methods: dict[str, str] = {}
    packages: tuple[str, ...] = ()
    source: str = ""
    digest: str = ""


def describe(folder: Path, *, name: str) -> Manifest:
    """Read what a skill declares, without running it.

    Args:
        name: Used where it has no ``pyproject.toml`` with a name.

    Raises:
        ConfigError: It is no skill, or needs a newer version of Strawberry.
    """
    project, tool = _project(folder)
    name, api = str(project.get("name", name)), tool.get("api", API)
    if not _NAME.fullmatch(name):
        raise ConfigError("{name!r} cannot be the name of a skill", name=name[:100])
    if not isinstance(api, int) or api > API:
        raise ConfigError("{name} needs API {api}, and this is API {own}", name=name, api=api, own=API)
    methods = dict(_methods(folder))
    if not methods:
        raise ConfigError("{name} defines no skill", name=name)
    version = str(project.get("version", ""))[:100]
    return Manifest(name=name, version=version, methods=methods, digest=digest_of(folder))


def digest_of(folder: Path) -> str:
    """Return a hash of the names and contents of all files that belong to a skill."""
    hashed = hashlib.sha256()
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        if "__pycache__" not in file.parts:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            # A line feed, which a file system may allow, would end the name.
            name = file.relative_to(folder).as_posix().replace("\\", "\\\\").replace("\n", "\\n")
            hashed.update(f"{name}\n{content}\n".encode())
    return hashed.hexdigest()


def changes(before: Manifest | None, after: Manifest) -> Iterator[str]:
    """Yield what is different, a line each: everything for one that was not installed."""
    old: Mapping[str, str] = before.methods if before is not None else {}
    for name in sorted({*old, *after.methods}):
        now = after.methods.get(name)
        says = now or "says not what it may do"
        if now is None:
            yield f"- {name}"
        elif name not in old:
            yield f"+ {name}: {says}"
        elif now != old[name]:
            yield f"! {name}: {says} (was: {old[name] or 'nothing'})"
    packages = set(before.packages if before is not None else ())
    yield from (f"- package {each}" for each in sorted(packages - set(after.packages)))
    yield from (f"+ package {each}" for each in sorted(set(after.packages) - packages))


_RECORDS: Final = TypeAdapter(dict[str, Manifest])


class Installed:
    """The record of the skills that were installed on this machine."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._environments = directory / "environments"

    def alone(self) -> AbstractContextManager[None]:
        """Hold what is installed: of two processes that change it, the second one is refused.

        Raises:
            ConfigError: Another one holds it.
        """
        return only_one(
            self._environments, what="another installation", hint="Try again when it is complete."
        )

    def all(self) -> dict[str, Manifest]:
        """Return them by name.

        Raises:
            ConfigError: The record cannot be read.
        """
        try:
            return _RECORDS.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            raise ConfigError("{path} cannot be read: {reason}", path=self._path, reason=error) from None

    def put(self, name: str, manifest: Manifest | None) -> None:
        """Record a skill; None removes it. The caller holds what is installed."""
        records = {each: one for each, one in self.all().items() if each != name}
        if manifest is not None:
            records[name] = manifest
        write_private(self._path, _RECORDS.dump_json(records, indent=2))


def _project(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        read = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    except FileNotFoundError:
        return {}, {}
    except (OSError, ValueError) as error:
        raise ConfigError("its pyproject.toml cannot be read: {reason}", reason=error) from None
    project, tools = read.get("project", {}), read.get("tool", {})
    tool = tools.get("strawberry", {}) if isinstance(tools, dict) else {}
    return project if isinstance(project, dict) else {}, tool if isinstance(tool, dict) else {}


def _methods(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.rglob("*.py")):
        # As the loader leaves them out: what it takes is shown.
        if any(each.startswith("test_") or each in _TESTS for each in file.relative_to(folder).parts):
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ConfigError("{file} cannot be read: {reason}", file=file.name, reason=error) from None
        for owner in tree.body:
            if not isinstance(owner, ast.ClassDef):
                continue
            bases = [ast.unparse(base).rpartition(".")[2] for base in owner.bases]
            if "Skill" not in bases and not owner.name.endswith("Skill"):
                continue
            for member in owner.body:
                targets = (
                    member.targets if isinstance(member, ast.Assign) else [getattr(member, "target", None)]
                )
                if any(isinstance(each, ast.Name) and each.id == "uses" for each in targets):
                    yield f"{owner.name} calls other devices", ast.unparse(member)[:1_000]
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and _is_method(member.name):
                    yield f"{owner.name}.{member.name}", ", ".join(_declared(member))


def _is_method(name: str) -> bool:
    return not name.startswith("_") and name not in HOOKS


def _declared(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in method.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        name = ast.unparse(call.func if call is not None else decorator).rpartition(".")[2]
        if name == "skill_method" and call is not None:
            flags = [each.arg for each in call.keywords if ast.unparse(each.value) == "True" and each.arg]
            yield from flags or ["changes something"]
        elif name in _OWN:
            yield f"runs by itself: {ast.unparse(decorator)[:100]}"
