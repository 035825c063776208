"""A place for skills to live in, and a bus that remembers."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_core.skills.loading.exposure import LoadedSkill, expose
from agent_core.skills.loading.loader import LoadedSkills
from agent_core.skills.results import Publication
from agent_core.skills.skill import Skill, SkillContext, attach
from tests.agent_core.house import load_skills


class RecordingSink:
    """Keeps what skills publish."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str, Any, str | None, str | None]] = []
        self.events: list[tuple[str, str, Any]] = []

    def __call__(self, publication: Publication) -> None:
        skill, name, value = publication.skill, publication.name, publication.value
        if publication.kind == "event":
            self.events.append((skill, name, value))
        else:
            self.states.append((skill, name, value, publication.unit, publication.device_class))


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


@pytest.fixture
def make_context(tmp_path: Path, sink: RecordingSink) -> Callable[[str], SkillContext]:
    return lambda name: SkillContext(data_dir=tmp_path / "data" / name, sink=sink)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skills = tmp_path / "skills"
    skills.mkdir()
    return skills


@pytest.fixture
def write(folder: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def load(folder: Path, make_context: Callable[[str], SkillContext]) -> Callable[[], LoadedSkills]:
    return lambda: load_skills([folder], make_context=make_context)


@pytest.fixture
def host(make_context: Callable[[str], SkillContext]) -> Callable[[object], LoadedSkill]:
    """Make an instance ready, and insist that all of it is."""

    def host(instance: object) -> LoadedSkill:
        if isinstance(instance, Skill):
            attach(instance, make_context(type(instance).__name__))
        skill, problems = expose(instance)
        assert problems == []
        return skill

    return host
