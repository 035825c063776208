"""``strawberry skills new``, ``test`` and ``lint``: skills made, and checked without a home."""

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from contracts.errors import ConfigError
from deploy.cli.terminal.output import Output, columns, note
from deploy.directory import Home

if TYPE_CHECKING:
    from agent_core.skills.loading.loader import LoadedSkills

_PLUGIN: Final = "strawberry_skills.testing"
_NEW: Final = "'strawberry skills new NAME' makes a skill with a test."
_NO_TESTS: Final = 5
"""With this code pytest ends where it finds none."""
_TEMPLATES: Final = Path(__file__).parent / "new_skill"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}\Z")


def test(options: argparse.Namespace) -> int:
    """Run the tests of skills with pytest.

    Runs the tests beside a skill, or those of all skills of this machine, with pytest and its fixture
    'host', which hosts a skill without a home. What stands after -- goes to pytest.
    """
    path = path_of(options.path)
    if importlib.util.find_spec("pytest") is None:
        raise ConfigError(
            "pytest is not installed",
            hint=f"Run '{sys.executable} -m pip install pytest', or 'pipx inject strawberry-home pytest'.",
        )
    folder = path if path.is_dir() else path.parent
    tests = folder if path.is_dir() else folder / f"test_{path.stem}.py"
    plugins = ["-p", _PLUGIN, "-p", "no:cacheprovider"]
    arguments = ["--rootdir", str(folder), "-q", str(tests), *options.pytest]
    if not tests.exists():
        raise ConfigError(f"there is no {tests}", hint=_NEW)
    command = [sys.executable, "-m", "pytest", *plugins, *arguments]
    done = subprocess.run(command, cwd=folder, check=False)
    if done.returncode == _NO_TESTS:
        raise ConfigError(f"{path} has no tests", hint=_NEW)
    return done.returncode


def lint(options: argparse.Namespace) -> int:
    """Show what a model or a person may stumble over.

    Shows what does not load of skills, and what loads and yet serves a model or a person badly: missing
    docstrings, types and flags, and names that say nothing. Ends with code 1 where there is something.
    """
    from agent_core.skills.loading.lint import Advice
    from agent_core.skills.loading.lint import lint as advice_for

    path = path_of(options.path)
    with loaded(path) as found:
        problems = [Advice(each.path, f"{each.what}: {each.message}", each.hint) for each in found.problems]
        advice = [*problems, *(each for skill in found.skills for each in advice_for(skill))]
        if not (advice or found.skills):
            raise ConfigError(f"{path} has no skill to look at", hint=_NEW)
    names = ", ".join(skill.name for skill in found.skills)
    Output(options.json).rows(
        advice, columns("where", "problem", "advice"), empty=f"Nothing to improve: {names}."
    )
    return 1 if advice else 0


def path_of(path: str | None) -> Path:
    """Return a skill's file or folder: as it is, or by its name among the skills of this machine.

    Raises:
        ConfigError: There is none.
    """
    skills = Home.named().skills
    if path is None:
        if not skills.is_dir():
            raise ConfigError(f"there is no folder {skills}", hint=_NEW)
        return skills
    for found in (Path(path).absolute(), skills / path, skills / f"{path}.py"):
        if found.exists():
            return found
    raise ConfigError(f"there is no {path}, and no skill {path} in {skills}", hint="Name a file or a folder.")


@contextmanager
def loaded(path: Path) -> Iterator["LoadedSkills"]:
    """Load the skills of a file or of a folder, with an empty folder for the data of each."""
    from agent_core.skills.loading.folders import folders_at
    from agent_core.skills.skill import SkillContext

    with tempfile.TemporaryDirectory() as data:
        folders = folders_at(path, make_context=lambda name: SkillContext(Path(data) / name, lambda _: None))
        folders.load()
        for each in folders.found.isolated:
            note(f"{each.name} runs in a process of its own, and is not looked at.")
        yield folders.found


def new(options: argparse.Namespace) -> None:
    """Make a skill that works, with a test and a README.

    Makes a folder with a skill that works, its test and a README, in the skills of this machine.
    """
    name = options.name.removesuffix("_skill")
    if not _NAME.match(name):
        raise ConfigError(
            "{name!r} cannot be the name of a skill",
            name=options.name,
            hint="Use small letters, digits and '_', a letter first: coffee, garden_pump.",
        )
    folder = (Path(options.folder) if options.folder else Home.named().skills).absolute() / name
    if folder.exists() or folder.with_suffix(".py").exists():
        raise ConfigError(f"{folder} is there already", hint="Choose another name.")
    words = name.replace("_", " ")
    made = {
        "name": name,
        "words": words,
        "title": words.capitalize(),
        "owner": "".join(map(str.capitalize, name.split("_"))) + "Skill",
    }
    folder.mkdir(parents=True)
    files = {"skill.py.txt": f"{name}.py", "test.py.txt": f"test_{name}.py", "README.md": "README.md"}
    for template, file in files.items():
        text = Template((_TEMPLATES / template).read_text("utf-8")).substitute(made)
        (folder / file).write_text(text, "utf-8")
    Output(options.json).result(
        {"folder": str(folder), "skill": made["owner"]},
        text=f"{made['owner']} is in {folder}. It is loaded as soon as it is saved.\n"
        f"Next: strawberry skills test {name}",
    )
