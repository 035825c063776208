"""Skills for a home that are off until the owner of a device turns them on.

Each module is one integration; one whose name begins with ``_`` is a helper. `strawberry skills enable NAME`
writes its name to ``integrations.json`` in the directory of the device's spoke.
"""

import ast
import importlib
import json
import logging
from pathlib import Path
from typing import Final

from agent_core.skills.skill import Skill
from contracts.errors import NotFound
from contracts.validation import did_you_mean
from identity.files import write_private

_log = logging.getLogger(__name__)

_FILE: Final = "integrations.json"
_complained: dict[Path, str] = {}
"""What was logged last of a file: a spoke reads it several times a second."""


def available() -> dict[str, Path]:
    """Return the file of each integration by its name."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    return {path.stem: path for path in files}


def summary(name: str) -> str:
    """Return what an integration is for, without importing it."""
    return (ast.get_docstring(ast.parse(find(name).read_text("utf-8"))) or "").partition("\n")[0]


def skill_name(name: str) -> str:
    """Return the name of an integration's skill, without importing it."""
    body = ast.parse(find(name).read_text("utf-8")).body
    return next(each.name for each in body if isinstance(each, ast.ClassDef) and each.name.endswith("Skill"))


def find(name: str) -> Path:
    """Return the file of an integration.

    Raises:
        NotFound: If there is none of this name.
    """
    files, hint = available(), "'strawberry skills available' lists them."
    if name not in files:
        near = did_you_mean(name, files)
        raise NotFound("there is no integration {name!r}{near}", name=name, near=near, hint=hint)
    return files[name]


def enabled(directory: Path) -> list[str]:
    """Return the names of the integrations that are on, by the directory of the spoke."""
    file = directory / _FILE
    try:
        names = json.loads(file.read_bytes())
        found = [name for name in available() if name in names]
    except FileNotFoundError:
        found = []
    except (OSError, ValueError, TypeError) as error:
        if _complained.get(file) != str(error):
            _log.warning("%s cannot be read, so no integration is on: %s", file, error)
            _complained[file] = str(error)
        return []
    _complained.pop(file, None)
    return found


def skill_of(name: str) -> type[Skill]:
    """Import an integration and return its skill.

    Raises:
        NotFound: If there is none of this name.
    """
    find(name)
    module = importlib.import_module(f"{__name__}.{name}")
    classes = [each for each in vars(module).values() if isinstance(each, type)]
    return next(each for each in classes if issubclass(each, Skill) and each.__module__ == module.__name__)


def switch(directory: Path, name: str, *, on: bool) -> None:
    """Turn an integration on or off; a spoke that runs takes it over.

    Raises:
        NotFound: If there is none of this name.
    """
    find(name)
    names = {*enabled(directory), name} if on else {*enabled(directory)} - {name}
    write_private(directory / _FILE, json.dumps(sorted(names)).encode())
