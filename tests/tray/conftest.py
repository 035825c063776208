"""A screen that nobody sees, with a window manager and a panel, and a home whose spoke the tray talks to."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Final

import pytest
from PySide6.QtWidgets import QApplication

from tests.e2e.house import PATIENCE_S, House, Spoke
from tests.model_server import Says, Script, ScriptedModel
from tests.requirements import require
from tests.tray.desktop import HINT, PROGRAMS, Desktop
from tests.tray.program import Program, start

DOOR: Final = '''
from pathlib import Path

from spoke import Skill, skill_method


class DoorSkill(Skill):
    """A door."""

    @skill_method(confirm=True, sentences={"en": ["open the door for {minutes} minutes"]})
    def open(self, minutes: str, reason: str = "said so") -> str:
        """Open the door for some minutes."""
        with Path(__file__).with_name("journal.txt").open("a") as file:
            file.write(f"open {minutes}\\n")
        return f"open for {minutes} minutes"
'''


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    """A desktop without a tray."""
    require(all(map(which, PROGRAMS)), HINT)
    with Desktop(tmp_path_factory.mktemp("bare") / "home") as desktop:
        yield desktop


@pytest.fixture(scope="session")
def desktop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    """A desktop with a panel."""
    require(all(map(which, PROGRAMS)), HINT)
    with Desktop(tmp_path_factory.mktemp("desktop") / "home") as desktop:
        desktop.start_panel()
        yield desktop


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    """The model of the house; a test gives it its script."""
    with ScriptedModel(lambda _: Says(text="Hello.")) as server:
        yield server


@pytest.fixture(scope="session")
def house(
    tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path, model: ScriptedModel
) -> Iterator[House]:
    """A broker and a hub."""
    with House(tmp_path_factory.mktemp("tray") / "house", sandbox=sandbox_files, debug=False) as home:
        home.use_model(model.base_url)
        home.start_broker()
        home.start_hub()
        yield home


@pytest.fixture(scope="session")
def spoke(house: House) -> Spoke:
    """A spoke of the house, in a process of its own."""
    spoke = house.add_spoke("Living room PC", {"door.py": DOOR})
    house.json("devices", "set", spoke.name, "--confirm", "on")
    return spoke


@pytest.fixture
def script(model: ScriptedModel) -> Iterator[Callable[[Script], None]]:
    """Give the model another script for one test."""
    before = model.script

    def set_script(given: Script) -> None:
        model.script = given

    yield set_script
    model.script = before


@pytest.fixture(scope="session")
def app(bare: Desktop) -> Iterator[QApplication]:
    """Qt on a screen that nobody sees."""
    before = dict(os.environ)
    os.environ.update(bare.environment)
    os.environ.pop("WAYLAND_DISPLAY", None)
    app = QApplication([])
    app.setStyle("Fusion")
    app.setQuitOnLastWindowClosed(False)
    yield app
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def program(house: House, spoke: Spoke, desktop: Desktop) -> Iterator[Program]:
    """The program with its icon in the panel."""
    process = start(house, spoke.home, desktop)
    try:
        running = Program(house, spoke.home, desktop, process)

        def is_there() -> bool:
            assert process.poll() is None, house.log("tray")
            return bool(running.owner) and running.tells("Living room PC")

        desktop.wait_for(is_there, what="the icon")
        yield running
    finally:
        process.kill()
        process.wait(PATIENCE_S)
