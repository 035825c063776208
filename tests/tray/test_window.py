"""The quick chat with a real spoke: answers, confirmations, stopping, and what goes wrong."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel

from deploy.cli.client import find_spoke
from deploy.directory import Home
from spoke.installing.installation import Installation
from tests.e2e.house import PATIENCE_S, House, Spoke
from tests.model_server import Hangs, Says, Script, ScriptedModel, calls
from tests.tray.desktop import PICTURES
from tray.app import Tray, TraySettings
from tray.chat.exchange import ExchangeView, QuestionCard

ANSWER = """Two rooms are **warm**, one is *cold*:

| room | now | wanted |
|---|---|---|
| Kitchen | 21.5 °C | 21 °C |
| Bedroom | 16.0 °C | 18 °C |

- The heating of the bedroom is off since `06:12`.
- [How to change it](https://example.org/heating)

```python
devices.living_room_pc.HeatingSkill.set_temperature(room="bedroom", celsius=18.5, until="22:00")
```
"""


@dataclass
class Person:
    """Somebody before the window."""

    tray: Tray
    app: QApplication

    def wait(self, look: Callable[[], object], what: str) -> None:
        """Let the program run until there is something to see."""
        deadline = time.monotonic() + PATIENCE_S
        while not look():
            assert time.monotonic() < deadline, f"waited for {what}"
            self.app.processEvents()
            time.sleep(0.005)

    def type(self, message: str) -> ExchangeView:
        """Type a message, and give what shows its answer."""
        QTest.keyClicks(self.tray.window.input, message)
        QTest.keyClick(self.tray.window.input, Qt.Key.Key_Return)
        return self.tray.window.exchanges[-1]

    def hear(self, message: str) -> str:
        """Type a message and wait for its answer."""
        view = self.type(message)
        self.wait(lambda: view.is_over, "the answer")
        return view.answer.text

    def question(self, view: ExchangeView) -> QuestionCard:
        """Wait for what asks for a yes."""
        self.wait(lambda: view.questions, "a question")
        return next(iter(view.questions.values()))

    def picture(self, name: str) -> None:
        """Take a picture of the window, light and dark."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        hints = self.app.styleHints()
        for scheme in (Qt.ColorScheme.Light, Qt.ColorScheme.Dark):
            hints.setColorScheme(scheme)
            for _ in range(3):
                self.app.processEvents()
            self.tray.window.grab().save(str(PICTURES / f"tray-{name}-{scheme.name.lower()}.png"))
        hints.unsetColorScheme()


@pytest.fixture
def person_at(app: QApplication, tmp_path: Path) -> Iterator[Callable[[Path], Person]]:
    """Open the window of the spoke of a home."""
    opened: list[Person] = []

    def open_at(home: Path) -> Person:
        settings = TraySettings(
            directory=tmp_path / "tray",
            find=lambda: find_spoke(Home(home)),
            command=["strawberry", "tray"],
            uploads=Installation(home),
            has_tray=False,
        )
        person = Person(Tray(settings), app)
        person.tray.start()
        opened.append(person)
        person.wait(lambda: person.tray.watch.seen != type(person.tray.watch.seen)(), "a look at the spoke")
        return person

    yield open_at
    for person in opened:
        person.tray.stop()
        person.tray.window.hide()
        person.tray.window.deleteLater()
    app.processEvents()


@pytest.fixture
def person(person_at: Callable[[Path], Person], spoke: Spoke) -> Person:
    """Somebody before the window of a spoke that is connected."""
    person = person_at(spoke.home)
    person.wait(lambda: person.tray.watch.seen.state == "hub", "the hub")
    return person


def test_an_answer_comes_as_markdown(person: Person, script: Callable[[Script], None]) -> None:
    script(lambda _: Says(text=ANSWER, gap_s=0.001))
    assert person.tray.window.device.text() == "Living room PC"
    assert person.tray.window.state.text() == "Connected to the hub"
    view = person.type("Which rooms are warm?")
    person.wait(lambda: view.is_over, "the answer")
    assert view.answer.text == ANSWER
    assert "**" not in view.answer.toPlainText()
    person.picture("answer")


def test_what_is_done_meanwhile_is_shown(
    person: Person, script: Callable[[Script], None], model: ScriptedModel
) -> None:
    code = "devices.living_room_pc.DoorSkill.open(minutes='2', reason='The parcel')"
    script(lambda seen: Says(text="It is open.") if seen.results else calls("python_exec", code=code))
    view = person.type("Let the postman in.")
    question = person.question(view)
    assert not view.is_over
    person.picture("question")
    QTest.mouseClick(question.yes, Qt.MouseButton.LeftButton)
    person.wait(lambda: view.is_over, "the answer")
    assert view.answer.text == "It is open."
    assert any("DoorSkill.open ✓" in label.text() for label in view._steps.values())
    person.picture("done")


def test_a_yes_does_it_and_a_no_does_not(person: Person, spoke: Spoke) -> None:
    before = len(spoke.journal())
    asked: list[str] = []
    person.tray.window.asked.connect(asked.append)
    for approve in (False, True):
        view = person.type("open the door for 7 minutes")
        question = person.question(view)
        assert asked[-1] == "Living room PC: Open the door for 7 minutes?"
        shown = [label.text() for label in question.findChildren(QLabel)]
        assert shown[0] == "Open the door for 7 minutes?"
        assert shown[1] == [each for each in shown if each][-1] == "Living room PC: DoorSkill.open"
        QTest.mouseClick(question.yes if approve else question.no, Qt.MouseButton.LeftButton)
        person.wait(lambda view=view: view.is_over, "the end")
        assert spoke.journal()[before:] == (["open 7"] if approve else [])
    assert not question.is_open


def test_typing_goes_on_answers_no_question(person: Person, spoke: Spoke) -> None:
    before = spoke.journal()
    view = person.type("open the door for 8 minutes")
    question = person.question(view)
    QTest.keyClicks(person.tray.window.input, "yes")
    QTest.keyClick(person.tray.window.input, Qt.Key.Key_Return)
    assert question.is_open
    QTest.mouseClick(person.tray.window.button, Qt.MouseButton.LeftButton)
    person.wait(lambda: view.is_over, "the end")
    assert spoke.journal() == before
    assert not question.is_open


def test_an_answer_can_be_stopped(person: Person, script: Callable[[Script], None]) -> None:
    script(lambda _: Hangs(text="It was a dark and stormy "))
    view = person.type("Tell me a long story.")
    person.wait(lambda: "stormy" in view.answer.text, "the beginning")
    assert person.tray.window.button.text() == "Stop"
    QTest.mouseClick(person.tray.window.button, Qt.MouseButton.LeftButton)
    person.wait(lambda: view.is_over, "the end")
    assert "stormy" in view.answer.text
    assert person.tray.window.button.text() == "Send"
    person.picture("stopped")


def test_an_earlier_conversation_opens_whole_and_goes_on(
    person: Person, script: Callable[[Script], None], model: ScriptedModel
) -> None:
    script(lambda _: Says(text="Blue."))
    person.hear("What is my favourite colour?")
    window, first = person.tray.window, person.tray.window.conversation
    window.start_over()
    assert window.exchanges == []
    person.hear("And now for something else.")
    person.tray.menu.aboutToShow.emit()
    labels = lambda: [each.text() for each in person.tray.menu._recent.actions()]  # noqa: E731
    person.wait(lambda: "What is my favourite colour?" in labels(), "the conversation in the menu")
    next(a for a in person.tray.menu._recent.actions() if "favourite" in a.text()).trigger()
    person.wait(lambda: window.exchanges, "the conversation")
    assert (window.conversation, window.exchanges[0].answer.text) == (first, "Blue.")
    person.hear("Why?")
    assert "What is my favourite colour?" in " ".join(model.requests[-1].said("user"))


def test_an_answer_loads_nothing_and_opens_only_the_web(
    person: Person, script: Callable[[Script], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    script(lambda _: Says(text="<b>bold</b> ![a](file:///etc/hostname) [b](file:///etc/passwd)"))
    view = person.type("Show me.")
    person.wait(lambda: view.is_over, "the answer")
    assert "<b>bold</b>" in view.answer.toPlainText()
    image = QTextDocument.ResourceType.ImageResource.value
    assert view.answer.document().resource(image, QUrl("file:///etc/hostname")).isNull()
    for url in ("file:///etc/passwd", "javascript:1", "https://example.org/"):
        view.answer.anchorClicked.emit(QUrl(url))
    assert opened == ["https://example.org/"]


def test_without_a_spoke_it_says_what_to_start(
    person_at: Callable[[Path], Person], house: House, tmp_path: Path
) -> None:
    person = person_at(tmp_path / "nowhere")
    window = person.tray.window
    assert window.state.text() == "The spoke is not running"
    view = person.type("Is anybody there?")
    person.wait(lambda: view.is_over, "the end")
    person.wait(window.banner.isVisible, "what to start")
    assert "strawberry up" in window.banner._hint.text()
    person.picture("absent")
