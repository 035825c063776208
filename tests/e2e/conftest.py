from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.house import House
from tests.journal import JOURNAL_BEGINNING
from tests.model_server import ScriptedModel
from tests.mosquitto import Mosquitto

JOURNAL_SKILL = (
    JOURNAL_BEGINNING
    + '''
    @skill_method()
    def slowly(self, text: str, seconds: float) -> str:
        """Write a line, wait, and write another."""
        _write(f"{text} begun")
        time.sleep(seconds)
        _write(f"{text} done")
        return f"wrote {text}"

    @skill_method()
    def held(self, text: str) -> str:
        """Write a line, wait to be let go, and write another."""
        _write(f"{text} begun")
        while not FILE.with_name("go").exists():
            time.sleep(0.02)
        _write(f"{text} done")
        return f"wrote {text}"

    @skill_method()
    def patiently(self, text: str, seconds: float) -> str:
        """Write a line, wait unless told to stop, and write another."""
        _write(f"{text} begun")
        try:
            self.check_cancelled(seconds)
        except BaseException:
            _write(f"{text} stopped")
            raise
        _write(f"{text} done")
        return f"wrote {text}"

    @skill_method(read_only=True)
    def look(self, seconds: float) -> list[str]:
        """Look into the journal for a while."""
        _write("looked")
        time.sleep(seconds)
        return FILE.read_text().splitlines()


class AnywhereSkill(Skill):
    """Does its work on any device."""

    device_agnostic = True

    @skill_method()
    def write(self, text: str) -> str:
        """Write a line wherever there is a journal."""
        _write(f"anywhere {text}")
        return f"wrote {text}"
'''
)


@pytest.fixture
def journal() -> dict[str, str]:
    """The files of a skills folder that writes down what ran."""
    return {"journal.py": JOURNAL_SKILL}


@pytest.fixture
def foreign_house(
    tmp_path: Path, sandbox_files: Path, model: ScriptedModel, mosquitto: Mosquitto
) -> Iterator[House]:
    """The hub on a plain Mosquitto: MQTT 5, no login, no rights; what is signed carries all the trust."""
    trust = ("--trust-broker",)
    with House(tmp_path / "house", sandbox=sandbox_files, broker_url=mosquitto.url, hub_flags=trust) as home:
        home.use_model(model.base_url)
        home.start_hub()
        yield home


@pytest.fixture(params=["embedded", "mosquitto"])
def any_house(request: pytest.FixtureRequest) -> House:
    """A house on a broker of each kind."""
    found: House = request.getfixturevalue({"embedded": "house", "mosquitto": "foreign_house"}[request.param])
    return found


@pytest.fixture
def house(tmp_path: Path, sandbox_files: Path, model: ScriptedModel) -> Iterator[House]:
    """Embedded broker and hub, each in a process of its own, with the scripted model."""
    with House(tmp_path / "house", sandbox=sandbox_files) as home:
        home.use_model(model.base_url)
        home.start_broker()
        home.start_hub()
        yield home
