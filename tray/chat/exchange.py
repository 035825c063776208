"""A question and its answer in the window, with what was done meanwhile, and what asks for a yes."""

import json
from typing import Final

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from contracts.chat.messages import (
    ConfirmationWanted,
    Notice,
    SkillCalled,
    TextDelta,
    ToolCalled,
    TurnError,
    TurnEvent,
    TurnFinal,
)
from contracts.text import escaped, shortened
from contracts.wire import Json
from tray import limits
from tray.chat.answer import Answer
from tray.chat.theme import named
from tray.texts import Translator

_LINE: Final = 260
"""Pixels up to which a question is one line, and takes no more room than that."""
_MARKS: Final = {"called": "…", "progress": "…", "done": "✓", "failed": "✗"}


class ExchangeView(QWidget):
    """One exchange; ``answered`` is a person's yes or no to a question, by its id."""

    answered = Signal(str, bool)

    def __init__(self, question: str, text: Translator, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.answer = Answer()
        self.questions: dict[str, QuestionCard] = {}
        self.is_over = False
        self._text = text
        self._steps: dict[str, QLabel] = {}
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 10)
        self._layout.setSpacing(6)
        asked = plain(question, "asked")
        is_short = asked.fontMetrics().horizontalAdvance(question) < _LINE and "\n" not in question
        asked.setWordWrap(not is_short)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(asked, 0 if is_short else 4)
        self._layout.addLayout(row)
        self._done = QVBoxLayout()
        self._done.setSpacing(4)
        self._layout.addLayout(self._done)
        self._layout.addWidget(self.answer)
        self._step("", text("thinking …"))

    def handle(self, event: TurnEvent) -> None:
        """Show an event of the turn."""
        match event:
            case TextDelta():
                self._step("", "")
                self.answer.append_text(event.text)
            case ToolCalled():
                self._step("", self._text("working …"))
            case SkillCalled():
                self._step(event.id, _step_text(event))
            case Notice():
                self._step(f"notice {len(self._steps)}", event.text)
            case ConfirmationWanted():
                self._ask(event)
            case TurnFinal():
                self._close()
                self.answer.show_text(event.answer)
            case TurnError():
                self._close()
                self.answer.show_text(event.answer or self.answer.text)
                self._layout.addWidget(self._ending(event))

    def show_record(self, answer: str | None, problem: str) -> None:
        """Show what a turn that is over came to."""
        self._close()
        self.answer.show_text(answer or "")
        if problem:
            self._layout.addWidget(ProblemCard(problem))

    def add_problem(self, message: str, hint: str) -> None:
        self._layout.addWidget(ProblemCard(message, hint))

    def _ending(self, error: TurnError) -> QWidget:
        if error.code == "cancelled":
            return plain(self._text("Stopped."), "doing")
        return ProblemCard(error.message, error.hint)

    def _ask(self, event: ConfirmationWanted) -> None:
        card = self.questions[event.id] = QuestionCard(event, self._text)
        card.answered.connect(lambda approve: self.answered.emit(event.id, approve))
        self._step("", "")
        self._done.addWidget(card)

    def _step(self, id_: str, text: str) -> None:
        label = self._steps.get(id_)
        if label is None:
            if len(self._steps) >= limits.MOST_STEPS:
                return
            label = self._steps[id_] = plain("", "doing")
            self._done.addWidget(label)
        label.setText(text)
        label.setVisible(bool(text))

    def _close(self) -> None:
        self.is_over = True
        self._step("", "")
        for card in self.questions.values():
            card.close_question("")


class QuestionCard(QFrame):
    """A call that waits for a yes, with its real arguments. Neither button has the focus by itself."""

    answered = Signal(bool)

    def __init__(self, event: ConfirmationWanted, text: Translator) -> None:
        super().__init__()
        self.setObjectName("question")
        self._text = text
        layout = QVBoxLayout(self)
        layout.addWidget(plain(event.question(text.language) or text("Do this?"), "name"))
        layout.addWidget(plain(call_of(event), "call"))
        grid = QGridLayout()
        grid.setColumnStretch(1, 1)
        labels = event.labels.get(text.language, {})
        for row, (name, value) in enumerate(event.arguments.items()):
            grid.addWidget(plain(escaped(labels.get(name, name)), "name"), row, 0, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(plain(_written(value)), row, 1)
        layout.addLayout(grid)
        if event.cut:
            layout.addWidget(plain(text("Some arguments are too long to be shown whole."), "name"))
        if event.arguments or event.cut:
            # Once more, next to the buttons: long arguments may have pushed it out of sight.
            layout.addWidget(plain(call_of(event), "call"))
        self.yes = named(QPushButton(text("&Yes, do it")), "primary")
        self.no = QPushButton(text("&No"))
        self.outcome = plain("", "doing")
        buttons = QHBoxLayout()
        for each in (self.no, self.yes):
            each.setAutoDefault(False)
            buttons.addWidget(each)
        buttons.insertWidget(0, self.outcome, 1)
        layout.addLayout(buttons)
        self.yes.clicked.connect(lambda: self._decide(approve=True))
        self.no.clicked.connect(lambda: self._decide(approve=False))
        self._timer = QTimer(self, singleShot=True, interval=int(event.expires_s * 1000))
        self._timer.timeout.connect(lambda: self.close_question(text("Not answered in time: no.")))
        self._timer.start()

    @property
    def is_open(self) -> bool:
        return self.yes.isEnabled()

    def close_question(self, outcome: str) -> None:
        """Stop accepting answers."""
        self._timer.stop()
        if self.is_open:
            self.outcome.setText(outcome)
        for each in (self.yes, self.no):
            each.setEnabled(False)
            each.hide()

    def _decide(self, *, approve: bool) -> None:
        self.close_question(self._text("You said yes.") if approve else self._text("You said no."))
        self.answered.emit(approve)


class ProblemCard(QFrame):
    """What went wrong, and what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__()
        self.setObjectName("problem")
        layout = QVBoxLayout(self)
        self._message, self._hint = plain("", "message"), plain("", "hint")
        layout.addWidget(self._message)
        layout.addWidget(self._hint)
        self.say(message, hint)

    def say(self, message: str, hint: str = "") -> None:
        """Show another message."""
        self._message.setText(message[:1].upper() + message[1:])
        self._hint.setText(hint)
        self._hint.setVisible(bool(hint))


def plain(text: str, name: str = "") -> QLabel:
    """Return a label that shows a text as it is, wraps it, and lets it be copied."""
    label = named(QLabel(), name)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setText(text)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


def call_of(event: ConfirmationWanted) -> str:
    return escaped(f"{event.device_name}: {event.method}")


def _written(value: Json) -> str:
    text = escaped(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return shortened(text, limits.MAX_VALUE_SHOWN)


def _step_text(event: SkillCalled) -> str:
    said = f"{escaped(event.path)} {_MARKS[event.state]}"
    if event.state != "progress" or event.detail is None:
        return said
    detail = escaped(json.dumps(event.detail, ensure_ascii=False))
    return f"{said} {detail[: limits.MAX_DETAIL_SHOWN]}"
