"""The quick chat: one line to type into, answers as they come, and the state of the spoke."""

import uuid
from html import escape
from typing import Any, Final
from urllib.parse import quote

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QCloseEvent, QGuiApplication, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QScrollArea,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from contracts.chat.messages import MAX_MESSAGE, ConfirmationWanted, TurnEvent
from contracts.errors import StrawberryError
from contracts.text import escaped
from tray import limits
from tray.background import Background
from tray.chat.exchange import ExchangeView, ProblemCard, plain
from tray.chat.theme import named, palette, style_sheet, theme
from tray.chat.turn import Turn
from tray.icon import icon
from tray.spoke import Find, Seen, problem_text, state_line
from tray.texts import Translator

_WIDTH: Final = 460
_HEIGHT: Final = 560
_ICON: Final = 28


class ChatWindow(QWidget):
    """The window.

    ``asked`` says that a question waits, in a line; ``shown`` whether the window is there now; ``escaped``
    and ``left`` that the person pressed Escape or closed it.
    """

    asked = Signal(str)
    shown = Signal(bool)
    escaped = Signal()
    left = Signal()

    def __init__(self, find: Find, background: Background, text: Translator, *, menu: QMenu) -> None:
        super().__init__()
        self.setObjectName("window")
        self.conversation = uuid.uuid4().hex
        self.exchanges: list[ExchangeView] = []
        self.turn: Turn | None = None
        self._find = find
        self._background = background
        self._text = text
        self._name = ""
        self.setWindowTitle("Strawberry")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.resize(_WIDTH, _HEIGHT)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._make_header(menu))
        self.banner = ProblemCard("")
        self.banner.hide()
        margins = QVBoxLayout()
        margins.setContentsMargins(14, 8, 14, 0)
        margins.addWidget(self.banner)
        layout.addLayout(margins)
        layout.addWidget(self._make_scroll(), 1)
        layout.addLayout(self._make_input())
        # A key that is held would otherwise close the window that another key opens.
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.escaped.emit, autoRepeat=False)
        QShortcut(QKeySequence.StandardKey.New, self, self.start_over, autoRepeat=False)
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._restyle)
        self._restyle()

    def _make_header(self, menu: QMenu) -> QWidget:
        header = named(QFrame(), "header")
        row = QHBoxLayout(header)
        row.setContentsMargins(14, 10, 10, 10)
        self._icon = QLabel()
        row.addWidget(self._icon)
        names = QVBoxLayout()
        names.setSpacing(0)
        self.device, self.state = named(QLabel("Strawberry"), "device"), plain("", "state")
        for each in (self.device, self.state):
            # A long name is cut; it may not make the window wide.
            each.setMinimumWidth(1)
            each.setTextFormat(Qt.TextFormat.PlainText)
            names.addWidget(each)
        row.addLayout(names, 1)
        new, more = QToolButton(), QToolButton()
        new.setText("+")
        for button, name in ((new, self._text("New conversation")), (more, self._text("Menu"))):
            button.setToolTip(name)
            button.setAccessibleName(name)
        new.clicked.connect(self.start_over)
        more.setText("⋯")
        more.setMenu(menu)
        more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        row.addWidget(new)
        row.addWidget(more)
        return header

    def _make_scroll(self) -> QWidget:
        inside = named(QWidget(), "exchanges")
        self._list = QVBoxLayout(inside)
        self._list.setContentsMargins(14, 12, 14, 4)
        self._list.setSpacing(8)
        self._empty = plain(self._text("Ask something, or say what to do."), "empty")
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._list.addWidget(self._empty, 1)
        self._list.addStretch(0)
        self._scroll = QScrollArea(widgetResizable=True)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setWidget(inside)
        # What comes at the end is seen, unless the person has scrolled up to read.
        bar = self._scroll.verticalScrollBar()
        self._is_at_end = True
        bar.valueChanged.connect(lambda value: setattr(self, "_is_at_end", value >= bar.maximum() - 4))
        bar.rangeChanged.connect(lambda _, most: bar.setValue(most) if self._is_at_end else None)
        return self._scroll

    def _make_input(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setContentsMargins(14, 8, 14, 14)
        row.setSpacing(8)
        self.input = QLineEdit(placeholderText=self._text("Message"), maxLength=MAX_MESSAGE)
        self.input.setAccessibleName(self._text("Message"))
        self.input.returnPressed.connect(self.send)
        self.button = named(QPushButton(self._text("Send")), "primary")
        self.button.setAutoDefault(False)
        self.button.clicked.connect(self._press)
        row.addWidget(self.input, 1)
        row.addWidget(self.button)
        return row

    def show_state(self, seen: Seen) -> None:
        """Show what is known of the spoke now."""
        self._name = " ".join(seen.spoke.name.split()) if seen.spoke else "Strawberry"
        # Qt takes a tip that looks like it for HTML.
        self.device.setToolTip(f"<qt>{escape(self._name)}</qt>")
        self._fit_name()
        self.state.setText(state_line(seen, self._text))
        self._icon.setPixmap(icon(seen.state).pixmap(_ICON, _ICON))
        self.setWindowIcon(icon(seen.state))
        if seen.problem is not None:
            self.banner.say(*problem_text(seen.problem, self._text))
        elif seen.voice is not None and seen.voice.state == "broken":
            self.banner.say(self._text("The voice does not work."), seen.voice.reason)
        self.banner.setVisible(
            seen.problem is not None or (seen.voice is not None and seen.voice.state == "broken")
        )

    def _fit_name(self) -> None:
        elided = self.device.fontMetrics().elidedText
        self.device.setText(elided(self._name, Qt.TextElideMode.ElideRight, self.device.width()))

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802  Qt's name
        """Show as much of a long name as there is room for."""
        super().resizeEvent(event)
        self._fit_name()

    def bring(self) -> None:
        """Show the window in front, ready to type."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        self.input.setFocus()

    def send(self) -> None:
        """Send what was typed, unless an answer is still coming."""
        message = self.input.text().strip()
        if not message or self.turn is not None:
            return
        self.input.clear()
        view = self._add(message)
        turn = self.turn = Turn(
            self._find, self._background, happened=lambda event: self._show(turn, view, event)
        )

        def answer(question: str, approve: bool) -> None:
            turn.answer(question, approve=approve, failed=lambda error: self._say_late(view, error))
            self.input.setFocus()

        view.answered.connect(answer)
        self.button.setText(self._text("Stop"))
        turn.start(message, self.conversation)

    def start_over(self) -> None:
        """Begin a new conversation; one that is being answered is stopped."""
        self._leave(uuid.uuid4().hex)
        self.input.setFocus()

    def open_conversation(self, id_: str) -> None:
        """Show an earlier conversation whole, and continue it."""
        self._leave(id_)

        def show(said: Any) -> None:
            if self.conversation != id_ or self.exchanges:
                return
            for each in said["exchanges"] if isinstance(said, dict) else ():
                view = self._add(str(each["question"]))
                view.show_record(each.get("answer"), str(each.get("problem") or ""))

        path = f"/api/conversations/{quote(id_, safe='')}?limit={limits.EXCHANGES_SHOWN}"
        self._background.run(
            lambda: self._find().request("GET", path), then=show, failed=self.say, name="conversation"
        )
        self.bring()

    def _leave(self, conversation: str) -> None:
        if self.turn is not None:
            self.turn.stop()
            self._finish()
        for view in self.exchanges:
            self._list.removeWidget(view)
            view.deleteLater()
        self.exchanges.clear()
        self.conversation = conversation
        self._empty.show()

    def _press(self) -> None:
        if self.turn is None:
            self.send()
        else:
            self.turn.stop()

    def _add(self, question: str) -> ExchangeView:
        self._empty.hide()
        self._is_at_end = True
        view = ExchangeView(question, self._text)
        self.exchanges.append(view)
        self._list.insertWidget(self._list.count() - 1, view)
        return view

    def _show(self, turn: Turn, view: ExchangeView, event: TurnEvent) -> None:
        if turn is not self.turn:
            return  # its conversation was left
        view.handle(event)
        if isinstance(event, ConfirmationWanted):
            question = event.question(self._text.language) or event.method
            self.asked.emit(escaped(f"{event.device_name}: {question}"))
        if view.is_over:
            self._finish()

    def _finish(self) -> None:
        self.turn = None
        self.button.setText(self._text("Send"))

    def _say_late(self, view: ExchangeView, error: StrawberryError) -> None:
        if view in self.exchanges:
            view.add_problem(error.message, error.hint)

    def say(self, error: StrawberryError) -> None:
        """Show what went wrong, until the state of the spoke changes."""
        self.banner.say(error.message, error.hint)
        self.banner.show()

    def _restyle(self) -> None:
        colours = theme()
        QApplication.setPalette(palette(colours))
        self.setStyleSheet(style_sheet(colours))
        for view in self.exchanges:
            view.answer.redraw()

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802  Qt's name
        """Hide; whether the program ends is decided elsewhere."""
        super().closeEvent(event)
        self.left.emit()

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802
        """Report when the window is minimised or restored."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange:
            self.shown.emit(self.isVisible() and not self.isMinimized())

    def showEvent(self, event: Any) -> None:  # noqa: N802
        """Report that the window is shown."""
        super().showEvent(event)
        self.shown.emit(True)

    def hideEvent(self, event: Any) -> None:  # noqa: N802
        """Report that the window is hidden."""
        super().hideEvent(event)
        self.shown.emit(False)
