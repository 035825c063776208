"""The menu of the icon, which the window has, too."""

from collections.abc import Callable
from typing import Any, Protocol

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QAction, QDesktopServices
from PySide6.QtWidgets import QMenu

from contracts.errors import StrawberryError
from contracts.text import escaped, shortened
from tray import limits
from tray.autostart import Autostart
from tray.background import Background
from tray.spoke import Find, Seen, SpokeWatch, state_line
from tray.texts import Translator


class Uploads(Protocol):
    """Whether archives of skills can be uploaded to this machine in the web."""

    @property
    def takes_uploads(self) -> bool: ...

    def allow_uploads(self, allowed: bool) -> None: ...


class TrayMenu(QMenu):
    """The menu; ``failed`` is what went wrong with something that was chosen in it."""

    chat = Signal()
    conversation = Signal(str)
    leave = Signal()
    failed = Signal(object)

    def __init__(
        self,
        find: Find,
        background: Background,
        text: Translator,
        *,
        watch: SpokeWatch,
        autostart: Autostart,
        uploads: Uploads,
    ) -> None:
        super().__init__()
        self._find = find
        self._background = background
        self._text = text
        self._watch = watch
        self._autostart = autostart
        self._uploads = uploads
        self._hub_url = ""
        self._state = self._add("", None)
        self._state.setEnabled(False)
        self.addSeparator()
        self._mute = self._add(text("Mute the microphone"), self._set_muted, is_on=False)
        self._add(text("Quick chat"), self.chat.emit)
        self._recent = QMenu(text("Recent conversations"), self)
        self.addMenu(self._recent)
        self._web = self._add(text("Open the web UI"), self._open_web)
        self.addSeparator()
        self._starts = self._add(text("Start with the session"), self._set_autostart, is_on=autostart.is_on)
        allowed = uploads.takes_uploads
        self._takes_uploads = self._add(text("Allow uploads of skills"), self._set_uploads, is_on=allowed)
        self._add(text("Quit"), self.leave.emit)
        self.aboutToShow.connect(self._fetch_recent)
        self._show_recent([])
        self.show_state(Seen())

    def show_state(self, seen: Seen) -> None:
        """Show what is known of the spoke now."""
        line = state_line(seen, self._text)
        self._state.setText(_label(f"{seen.spoke.name}: {line}" if seen.spoke else line, 80))
        self._mute.setVisible(seen.voice is not None)
        self._mute.setChecked(seen.is_muted)
        self._hub_url = seen.spoke.hub_url if seen.spoke else ""
        self._web.setEnabled(self._hub_url.startswith(("http://", "https://")))
        self._recent.setEnabled(seen.spoke is not None)

    def _add(self, label: str, triggered: Any, *, is_on: bool | None = None) -> QAction:
        action = self.addAction(label)
        action.setCheckable(is_on is not None)
        action.setChecked(bool(is_on))
        if triggered is not None:
            action.triggered.connect(lambda *_: triggered())
        return action

    def _set_muted(self) -> None:
        wanted = self._mute.isChecked()
        # What is shown is what the spoke says, never what was wished.
        self._mute.setChecked(not wanted)
        self._background.run(
            lambda: self._find().request(
                "POST", "/api/voice/mute", {"muted": wanted}, timeout=limits.SPOKE_TIMEOUT_S
            ),
            then=lambda _: self._watch.look(),
            failed=self.failed.emit,
            name="mute",
        )

    def _set_autostart(self) -> None:
        self._write(lambda: self._autostart.set(on=self._starts.isChecked()))
        self._starts.setChecked(self._autostart.is_on)

    def _set_uploads(self) -> None:
        self._write(lambda: self._uploads.allow_uploads(self._takes_uploads.isChecked()))
        self._takes_uploads.setChecked(self._uploads.takes_uploads)

    def _write(self, change: Callable[[], None]) -> None:
        try:
            change()
        except OSError as error:
            self.failed.emit(StrawberryError(f"{error.filename}: {error.strerror}"))

    def _open_web(self) -> None:
        QDesktopServices.openUrl(QUrl(self._hub_url))

    def _fetch_recent(self) -> None:
        self._starts.setChecked(self._autostart.is_on)
        self._takes_uploads.setChecked(self._uploads.takes_uploads)
        path = f"/api/conversations?limit={limits.RECENT_CONVERSATIONS}"
        self._background.run(
            lambda: self._find().request("GET", path, timeout=limits.SPOKE_TIMEOUT_S),
            then=self._show_recent,
            name="recent conversations",
        )

    def _show_recent(self, said: Any) -> None:
        self._recent.clear()
        for each in said if isinstance(said, list) else []:
            id_, label = str(each["id"]), str(each.get("title") or each["asked"])
            action = self._recent.addAction(_label(label, limits.MAX_RECENT_SHOWN))
            action.triggered.connect(lambda *_, id_=id_: self.conversation.emit(id_))
        if self._recent.isEmpty():
            self._recent.addAction(self._text("No conversation yet")).setEnabled(False)


def _label(text: str, most: int) -> str:
    line = escaped(" ".join(text.split()))
    return shortened(line, most).replace("&", "&&")
