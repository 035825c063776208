"""A screen that nobody sees, with a window manager and a panel, and a home whose spoke the tray talks to."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

import pytest

from tests.e2e.house import House, wait_for
from tests.model_server import Says, ScriptedModel
from tests.requirements import require

_ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = Path(os.environ.get("STRAWBERRY_PICTURES", _ROOT / "build" / "pictures"))
_PROGRAMS: Final = ("Xvfb", "openbox", "xfce4-panel", "dbus-daemon", "xdotool", "xwininfo", "import")
_HINT: Final = "apt install xvfb openbox xfce4-panel xfconf dbus-x11 dbus-daemon xdotool x11-utils imagemagick"
_PANEL: Final = """<?xml version="1.0" encoding="UTF-8"?>
<channel name="xfce4-panel" version="1.0">
  <property name="configver" type="int" value="2"/>
  <property name="panels" type="array">
    <value type="int" value="1"/>
    <property name="dark-mode" type="bool" value="true"/>
    <property name="panel-1" type="empty">
      <property name="position" type="string" value="p=6;x=0;y=0"/>
      <property name="length" type="uint" value="100"/>
      <property name="position-locked" type="bool" value="true"/>
      <property name="size" type="uint" value="30"/>
      <property name="plugin-ids" type="array"><value type="int" value="1"/></property>
    </property>
  </property>
  <property name="plugins" type="empty">
    <property name="plugin-1" type="string" value="systray"/>
  </property>
</channel>
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is below this folder: it runs by `make test-tray` alone."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.tray)


@dataclass(frozen=True)
class Desktop:
    """A desktop session of its own.

    Attributes:
        environment: What its programs see beside the usual.
    """

    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """Run a program of the desktop to its end, and give what it prints."""
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        return done.stdout

    def windows(self, name: str) -> list[str]:
        """Ids of the windows of this title that can be seen."""
        return self.run("xdotool", "search", "--onlyvisible", "--name", name).split()

    def picture(self, name: str) -> Path:
        """Take a picture of the whole screen."""
        file = PICTURES / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        self.run("import", "-window", "root", str(file))
        return file


@pytest.fixture(scope="session")
def desktop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    """Xvfb with openbox and Xfce's panel, whose tray speaks StatusNotifierItem."""
    require(all(map(which, _PROGRAMS)), _HINT)
    home = tmp_path_factory.mktemp("desktop")
    config = home / "config"
    channel = config / "xfce4" / "xfconf" / "xfce-perchannel-xml" / "xfce4-panel.xml"
    channel.parent.mkdir(parents=True)
    channel.write_text(_PANEL)
    begun: list[subprocess.Popen[bytes]] = []
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": str(config), "XDG_RUNTIME_DIR": str(home)}

    def start(*command: str, reads: bool = False) -> str:
        """Start a program; with ``reads`` it says on a pipe, in a line, where it is."""
        ours, theirs = os.pipe()
        process = subprocess.Popen(
            [each.replace("{fd}", str(theirs)) for each in command],
            env={**os.environ, **environment},
            pass_fds=[theirs],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        begun.append(process)
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            return pipe.readline().strip() if reads else ""

    try:
        display = start("Xvfb", "-displayfd", "{fd}", "-screen", "0", "1024x768x24", "-nolisten", "tcp", reads=True)
        environment["DISPLAY"] = f":{display}"
        bus = start("dbus-daemon", "--session", "--nofork", "--print-address={fd}", reads=True)
        environment["DBUS_SESSION_BUS_ADDRESS"] = bus
        start("openbox")
        start("xfce4-panel", "--disable-wm-check")
        made = Desktop(environment)
        watcher = "org.kde.StatusNotifierWatcher"
        look = ("gdbus", "call", "--session", "--dest", watcher, "--object-path", "/StatusNotifierWatcher")
        ask = ("--method", "org.freedesktop.DBus.Properties.Get", watcher, "IsStatusNotifierHostRegistered")
        wait_for(lambda: "true" in made.run(*look, *ask), what="the tray of the panel")
        yield made
    finally:
        for process in reversed(begun):
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    """The model of the house; a test gives it its script."""
    with ScriptedModel(lambda _: Says(text="Hello.")) as server:
        yield server


@pytest.fixture(scope="session")
def house(
    tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path, model: ScriptedModel
) -> Iterator[House]:
    """A home in one ``strawberry up``, with the sample skills; all tests of a worker share it."""
    with House(tmp_path_factory.mktemp("tray") / "house", sandbox=sandbox_files, debug=False) as home:
        home.use_model(model.base_url)
        home.start_up()
        yield home


@pytest.fixture
def script(model: ScriptedModel) -> Iterator[Callable[[object], None]]:
    """Give the model another script for one test."""
    before = model.script

    def set_script(given: object) -> None:
        model.script = given

    yield set_script
    model.script = before
