"""The program: it puts icon, menu and window together, and runs until the person quits."""

import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PySide6.QtCore import QSocketNotifier, QTimer
from PySide6.QtDBus import QDBusConnection
from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from contracts.errors import StrawberryError
from tray import limits
from tray.autostart import Autostart
from tray.background import Background
from tray.chat.window import ChatWindow
from tray.icon import icon
from tray.instance import only_tray, show_running
from tray.menu import TrayMenu, Uploads
from tray.spoke import Find, Seen, SpokeWatch, state_line
from tray.texts import Translator

_WATCHER: Final = "org.kde.StatusNotifierWatcher"


@dataclass(frozen=True)
class TraySettings:
    """What the program is started with.

    Attributes:
        directory: Held by the one tray of a data directory.
        find: Returns the spoke that runs now.
        command: How the program is started at each login.
        uploads: Of skills, to this machine.
        shortcut: Global keys for the quick chat, for example ``Ctrl+Alt+Space``; empty for none.
        has_tray: Whether there may be an icon in a tray; there is only a window otherwise.
        shows_chat: Whether the window is shown at once.
    """

    directory: Path
    find: Find
    command: Sequence[str]
    uploads: Uploads
    shortcut: str = ""
    has_tray: bool = True
    shows_chat: bool = False


def run_tray(settings: TraySettings) -> int:
    """Run until the person quits; where a tray runs already, show its window and return.

    Raises:
        ConfigError: If the tray that runs already does not answer.
    """
    app = QApplication.instance() or QApplication([sys.argv[0]])
    assert isinstance(app, QApplication)
    app.setApplicationName("strawberry-tray")
    app.setApplicationDisplayName("Strawberry")
    app.setDesktopFileName("strawberry-tray")
    app.setStyle("Fusion")
    app.setQuitOnLastWindowClosed(False)
    if show_running(settings.directory):
        return 0
    tray = Tray(settings)
    with only_tray(settings.directory, tray.window.bring), _stopped_by_signals(app):
        tray.start()
        try:
            return app.exec()
        finally:
            tray.stop()


class Tray:
    """All parts of the running program."""

    def __init__(self, settings: TraySettings) -> None:
        self._settings = settings
        self._text = Translator()
        background, find = Background(), settings.find
        self._background = background
        self.watch = SpokeWatch(find, background)
        self.menu = TrayMenu(
            find,
            background,
            self._text,
            watch=self.watch,
            autostart=Autostart(settings.command),
            uploads=settings.uploads,
        )
        self.window = ChatWindow(find, background, self._text, menu=self.menu)
        self.icon: QSystemTrayIcon | None = None
        self.watch.changed.connect(self._show_state)
        self.menu.chat.connect(self.window.bring)
        self.menu.conversation.connect(self.window.open_conversation)
        self.menu.leave.connect(QApplication.quit)
        self.menu.failed.connect(self._say)
        self.window.shown.connect(self._set_shown)
        self.window.escaped.connect(self._escape)
        self.window.left.connect(self._leave)
        self.window.asked.connect(self._notify)

    def start(self) -> None:
        """Look for the spoke, and show the icon, or the window where there is no tray."""
        self.watch.start()
        if self._settings.shortcut and sys.platform == "linux":
            from tray.desktop import listen_for_keys  # D-Bus, which only Linux has

            listen_for_keys(self._settings.shortcut, lambda: self._background.post(self.window.bring))
        if self._settings.shows_chat or not self._settings.has_tray:
            self.window.bring()
        if self._settings.has_tray:
            self._wait_for_tray(limits.PANEL_TRIES)

    def stop(self) -> None:
        """End what runs beside the window."""
        self.watch.stop()
        if self.icon is not None:
            self.icon.hide()

    def _wait_for_tray(self, tries: int) -> None:
        bus = QDBusConnection.sessionBus().interface() if sys.platform == "linux" else None
        is_there = bus is None or bus.isServiceRegistered(_WATCHER).value()
        if not is_there and tries > 0:
            QTimer.singleShot(limits.PANEL_TRY_MS, self.window, lambda: self._wait_for_tray(tries - 1))
            return
        if not QSystemTrayIcon.isSystemTrayAvailable():
            self.window.bring()
            return
        self.icon = QSystemTrayIcon(self.window)
        self.icon.setContextMenu(self.menu)
        self.icon.activated.connect(self._activate)
        self.icon.messageClicked.connect(self.window.bring)
        self._show_state(self.watch.seen)
        self.icon.show()

    def _show_state(self, seen: Seen) -> None:
        self.menu.show_state(seen)
        self.window.show_state(seen)
        if self.icon is not None:
            self.icon.setIcon(icon(seen.state))
            self.icon.setToolTip(f"Strawberry\n{state_line(seen, self._text)}")

    def _activate(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason == QSystemTrayIcon.ActivationReason.Trigger:
            if self.window.isActiveWindow():
                self.window.hide()
            else:
                self.window.bring()

    def _set_shown(self, is_shown: bool) -> None:
        self.watch.is_shown = is_shown
        if is_shown:
            self.watch.look()

    def _escape(self) -> None:
        if self.icon is None:
            self.window.showMinimized()
        else:
            self.window.hide()

    def _leave(self) -> None:
        if self.icon is None:
            QApplication.quit()

    def _notify(self, call: str) -> None:
        if self.window.isActiveWindow():
            return
        if self.icon is None:
            QApplication.alert(self.window)
        self._message(self._text("Do this?"), call)

    def _say(self, error: StrawberryError) -> None:
        if self.icon is None:
            self.window.say(error)
        else:
            self._message(error.message, error.hint)

    def _message(self, title: str, text: str) -> None:
        """Show a notification, which brings the window where it is clicked."""
        if sys.platform != "linux":
            self._balloon(title, text)
            return
        from tray.desktop import notify

        def follow(is_clicked: bool | None) -> None:
            if is_clicked is None:
                self._balloon(title, text)
            elif is_clicked:
                self.window.bring()

        # Qt would hand on a name that a device has chosen as markup.
        self._background.run(
            lambda: notify(title, text, shown_ms=limits.MESSAGE_MS), then=follow, name="notification"
        )

    def _balloon(self, title: str, text: str) -> None:
        if self.icon is not None:
            self.icon.showMessage(title, text, icon(self.watch.seen.state), limits.MESSAGE_MS)


@contextmanager
def _stopped_by_signals(app: QApplication) -> Iterator[None]:
    """Quit at SIGINT and SIGTERM, which Python would handle only after Qt's loop."""
    wakes, woken = socket.socketpair()
    with wakes, woken:
        wakes.setblocking(False)
        notifier = QSocketNotifier(woken.fileno(), QSocketNotifier.Type.Read)
        notifier.activated.connect(lambda *_: woken.recv(64))
        before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        handlers = {
            each: signal.signal(each, lambda *_: app.quit()) for each in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            notifier.setEnabled(False)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
