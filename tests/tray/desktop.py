"""A desktop session of its own, which nobody sees."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.e2e.house import wait_for

_ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = Path(os.environ.get("STRAWBERRY_PICTURES", _ROOT / "build" / "pictures"))
WATCHER: Final = "org.kde.StatusNotifierWatcher"
PROGRAMS: Final = ("Xvfb", "openbox", "xfce4-panel", "dbus-daemon", "gdbus", "xdotool", "xprop")
HINT: Final = "apt install xvfb openbox xfce4-panel trayer dbus libglib2.0-bin xdotool x11-utils"
_GRAB: Final = """
import sys
from PySide6.QtGui import QGuiApplication
app = QGuiApplication([])
app.primaryScreen().grabWindow(0).save(sys.argv[1])
"""
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


@dataclass
class Desktop:
    """A desktop session of its own; a context manager.

    Attributes:
        home: Of the person.
        environment: What its programs see beside the usual.
    """

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    begun: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        config = self.home / "config"
        config.mkdir(parents=True)
        home = str(self.home)
        opener = self.home / "bin" / "xdg-open"
        opener.parent.mkdir()
        opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {self.opened}\n')
        opener.chmod(0o755)
        self.environment = {
            "PATH": f"{opener.parent}:{os.environ['PATH']}",
            "HOME": home,
            "XDG_CONFIG_HOME": str(config),
            "XDG_RUNTIME_DIR": home,
            "LC_ALL": "C.UTF-8",
            "QT_QPA_PLATFORMTHEME": "gtk3",  # which can be light and dark
        }
        # Without -noreset, a server whose last client leaves starts anew, and refuses who just connects.
        screen = ("-screen", "0", "1024x768x24", "-nolisten", "tcp", "-noreset")
        self.environment["DISPLAY"] = f":{self.start('Xvfb', '-displayfd', '{fd}', *screen, says=True)}"
        bus = self.start("dbus-daemon", "--session", "--nofork", "--print-address={fd}", says=True)
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = bus
        self.start("openbox")
        check = ("xprop", "-root", "_NET_SUPPORTING_WM_CHECK")
        self.wait_for(lambda: "# 0x" in self.run(*check), what="openbox")

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.begun):
            process.kill()
            process.wait()

    def start_panel(self) -> None:
        """Start Xfce's panel, and wait for its tray, which speaks StatusNotifierItem."""
        channel = self.home / "config" / "xfce4" / "xfconf" / "xfce-perchannel-xml" / "xfce4-panel.xml"
        channel.parent.mkdir(parents=True)
        channel.write_text(_PANEL)
        self.start("xfce4-panel", "--disable-wm-check")
        self.wait_for(
            lambda: "true" in self.ask(WATCHER, "/StatusNotifierWatcher", "IsStatusNotifierHostRegistered"),
            what="the tray of the panel",
        )

    def start(self, *command: str, says: bool = False) -> str:
        """Start a program; with ``says``, wait for the line that it writes to a pipe once it is ready."""
        ours, theirs = os.pipe()
        with self._output.open("ab") as output:
            process = subprocess.Popen(
                [each.replace("{fd}", str(theirs)) for each in command],
                env={**os.environ, **self.environment},
                pass_fds=[theirs],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.begun.append(process)
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            line = pipe.readline().strip() if says else ""
        assert line or not says, f"{command[0]} did not start:\n{self._output.read_text(errors='replace')}"
        return line

    def wait_for(self, look: Callable[[], object], *, what: str) -> None:
        """Look until there is something to see; fail with their output if one of its programs has ended."""

        def seen() -> object:
            ended = [process.args for process in self.begun if process.poll() is not None]
            assert not ended, f"{ended} ended:\n{self._output.read_text(errors='replace')[-4000:]}"
            return look()

        wait_for(seen, what=what)

    @property
    def opened(self) -> Path:
        """The file with the address that was opened last, in place of a browser."""
        return self.home / "opened"

    @property
    def _output(self) -> Path:
        return self.home / "programs.log"

    def run(self, *command: str) -> str:
        """Run a program of the desktop to its end, and give what it prints."""
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        return done.stdout

    def call(self, owner: str, path: str, method: str, *arguments: str) -> str:
        """Call a method over D-Bus; empty where that fails."""
        place = ("--session", "--dest", owner, "--object-path", path)
        return self.run("gdbus", "call", *place, "--method", method, *arguments)

    def ask(self, interface: str, path: str, member: str, owner: str = "") -> str:
        """Give a property, as ``gdbus`` writes it."""
        return self.call(owner or interface, path, "org.freedesktop.DBus.Properties.Get", interface, member)

    def windows(self, name: str = "^Strawberry$") -> list[str]:
        """Ids of the windows of this title that can be seen."""
        return self.run("xdotool", "search", "--onlyvisible", "--name", name).split()

    def picture(self, name: str) -> Path:
        """Take a picture of the whole screen."""
        file = PICTURES / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        self.run(sys.executable, "-c", _GRAB, str(file))
        return file
