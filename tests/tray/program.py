"""The program, as a test starts it and reads its menu over D-Bus."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.house import PATIENCE_S, House, wait_for
from tests.tray.desktop import WATCHER, Desktop

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
    """Start the program; its output goes to ``tray.log``."""
    with house.log_file("tray").open("ab") as log:
        return subprocess.Popen(
            [*house.program, "tray", *flags],
            env={**house.environment(home), **desktop.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=house.directory,
        )
