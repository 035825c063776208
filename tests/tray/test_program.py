"""``strawberry tray`` as a program: icon and menu in a real panel, one instance, a spoke that returns."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.cli.client import find_spoke
from deploy.home.directory import Home
from tests.e2e.house import PATIENCE_S, House, Spoke, wait_for
from tests.tray.conftest import WATCHER, Desktop

ITEM = "org.kde.StatusNotifierItem"
MENU = "com.canonical.dbusmenu"


@dataclass
class Program:
    """A running ``strawberry tray``."""

    house: House
    home: Path
    desktop: Desktop
    process: "subprocess.Popen[bytes]"

    @property
    def owner(self) -> str:
        """Who has its icon on D-Bus; empty while there is none."""
        items = self.desktop.ask(WATCHER, "/StatusNotifierWatcher", "RegisteredStatusNotifierItems")
        found = re.search(r"'([^'/]+)/StatusNotifierItem'", items)
        return found[1] if found else ""

    def entries(self) -> dict[str, int]:
        """The entries of its menu, as the panel gets them, with their ids."""
        layout = self.desktop.call(self.owner, "/MenuBar", f"{MENU}.GetLayout", "0", "--", "-1", "[]")
        found = re.finditer(r"\((?:int32 )?(\d+), \{([^}]*)\}", layout)
        named = ((re.search(r"'label': <['\"](.*?)['\"]>", each[2]), int(each[1])) for each in found)
        return {label[1].replace("_", ""): number for label, number in named if label}

    def click(self, label: str) -> None:
        """Click on an entry of the menu."""
        number = wait_for(lambda: self.entries().get(label), what=f"the entry {label}")
        event = (f"{MENU}.Event", str(number), "clicked", "<''>", "0")
        self.desktop.call(self.owner, "/MenuBar", *event)

    def tells(self, words: str) -> bool:
        """Whether the first entry says this."""
        return any(words in label for label in self.entries())

    def start_again(self, *flags: str) -> int:
        """Start the program once more, to its end."""
        return start(self.house, self.home, self.desktop, *flags).wait(PATIENCE_S)


def start(house: House, home: Path, desktop: Desktop, *flags: str) -> "subprocess.Popen[bytes]":
    """Start the program."""
    return subprocess.Popen(
        [*house.program, "tray", *flags],
        env={**house.environment(home), **desktop.environment},
        stdin=subprocess.DEVNULL,
        cwd=house.directory,
    )


@pytest.fixture
def program(house: House, spoke: Spoke, desktop: Desktop) -> Iterator[Program]:
    """The program with its icon in the panel."""
    process = start(house, spoke.home, desktop)
    try:
        running = Program(house, spoke.home, desktop, process)
        wait_for(lambda: running.owner and running.tells("Living room PC"), what="the icon")
        yield running
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_the_icon_in_the_panel_opens_the_window(program: Program, spoke: Spoke, desktop: Desktop) -> None:
    assert next(iter(program.entries())) == "Living room PC: Connected to the hub"
    assert "Connected to the hub" in desktop.ask(ITEM, "/StatusNotifierItem", "ToolTip", program.owner)
    assert desktop.windows() == []
    program.click("Quick chat")
    wait_for(desktop.windows, what="the window")
    desktop.picture("tray-panel")
    wait_for(
        lambda: desktop.run("xdotool", "key", "Escape") or not desktop.windows(), what="the window to go"
    )
    assert program.start_again("--chat") == 0
    wait_for(desktop.windows, what="the window of the one that runs")
    program.click("Quit")
    assert program.process.wait(PATIENCE_S) == 0
    # Closing it leaves the spoke serving.
    assert find_spoke(Home(spoke.home)).request("GET", "/api/spoke")["connected"]


def test_keys_open_the_window_from_anywhere(program: Program, desktop: Desktop) -> None:
    def pressed() -> list[str]:
        desktop.run("xdotool", "key", "ctrl+alt+space")
        return desktop.windows()

    wait_for(pressed, what="the window")


def test_it_starts_with_the_session_if_wished(program: Program, desktop: Desktop) -> None:
    file = desktop.home / "config" / "autostart" / "strawberry-tray.desktop"
    program.click("Start with the session")
    wait_for(file.exists, what="the autostart file")
    command = next(line for line in file.read_text().splitlines() if line.startswith("Exec="))
    assert f'"STRAWBERRY_HOME={program.home}"' in command
    assert '"tray"' in command
    program.click("Start with the session")
    wait_for(lambda: not file.exists(), what="the autostart file to go")


def test_a_hub_that_is_away_and_a_spoke_that_restarts_are_noticed(program: Program, spoke: Spoke) -> None:
    house = program.house
    house.kill("hub")
    wait_for(lambda: program.tells("Alone: the hub is away"), what="the state without a hub")
    house.begin_hub()
    wait_for(lambda: program.tells("Connected to the hub"), what="the state with the hub")
    house.kill(spoke.id)
    wait_for(lambda: program.tells("The spoke is not running"), what="the state without a spoke")
    house.start_spoke(spoke)
    wait_for(lambda: program.tells("Living room PC: Connected to the hub"), what="the spoke again")


@pytest.mark.parametrize("flags", [("--no-tray",), ()], ids=["by choice", "no tray there"])
def test_without_a_tray_it_is_a_window(
    house: House, spoke: Spoke, bare: Desktop, flags: tuple[str, ...]
) -> None:
    process = start(house, spoke.home, bare, *flags)
    try:
        wait_for(bare.windows, what="the window")
        wait_for(
            lambda: bare.run("xdotool", "key", "alt+F4") or process.poll() is not None, what="the end of it"
        )
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_without_a_desktop_it_says_so(house: House, spoke: Spoke) -> None:
    environment = house.environment(spoke.home)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        environment.pop(name, None)
    done = subprocess.run(
        [*house.program, "tray"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "there is no desktop" in done.stderr) == (1, True)
