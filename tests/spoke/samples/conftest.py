"""The sample skills, loaded as a spoke loads them."""

from pathlib import Path
from typing import Any

import pytest

import spoke.samples
from agent_core.skills.results import Publication
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.skill import SkillContext
from tests.agent_core.house import load_skills

SAMPLES = Path(spoke.samples.__file__).parent


class RecordingSink:
    """Keeps the last value of each state, and all events."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.events: list[tuple[str, Any]] = []

    def __call__(self, publication: Publication) -> None:
        match publication.kind:
            case "state":
                self.states[f"{publication.skill}/{publication.name}"] = publication.value
            case "clear":
                self.states.pop(f"{publication.skill}/{publication.name}", None)
            case "event":
                self.events.append((publication.name, publication.value))


@pytest.fixture
def sink() -> RecordingSink:
    return RecordingSink()


@pytest.fixture
async def runner(tmp_path, sink):
    def make_context(name: str) -> SkillContext:
        return SkillContext(data_dir=tmp_path / name, sink=sink)

    loaded = load_skills([SAMPLES], make_context=make_context)
    assert loaded.problems == []
    async with SkillRunner(loaded.skills) as runner:
        assert runner.problems == []
        yield runner


@pytest.fixture
def call(runner):
    """Call ``Skill.method`` with arguments by name."""

    async def call(path: str, /, *, confirmed: bool = False, **kwargs: Any) -> Any:
        skill, _, method = path.partition(".")
        return await runner.run(skill, method, [], kwargs, confirmed=confirmed)

    return call


@pytest.fixture
def samples_folder() -> Path:
    return SAMPLES
