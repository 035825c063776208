"""What icon, menu and window show of a spoke, with a stand-in for one that has a voice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QApplication

from contracts.devices.presence import SpokeSummary, VoiceSummary
from contracts.errors import ConfigError, NotFound, StrawberryError
from deploy.cli.client.finding import _no_spoke
from deploy.directory import Home
from spoke.installing.installation import Installation
from tests.tray.test_window import Person
from tray.app import Tray, TraySettings
from tray.autostart import Autostart
from tray.icon import SIZES, picture
from tray.spoke import Model, Seen, State, problem_text, state_line
from tray.texts import Translator


class StandIn:
    """A spoke with a voice that does what a test says."""

    def __init__(self) -> None:
        self.voice: dict[str, Any] | None = {"state": "listening"}
        self.name = "Living room PC"
        self.hub_online = True
        self.posted: list[tuple[str, Any]] = []

    def request(self, method: str, path: str, body: Any = None, *, timeout: float = 0) -> Any:
        """Mute like a spoke."""
        self.posted.append((path, body))
        self.voice = {"state": "muted" if body["muted"] else "listening", "muted": body["muted"]}
        return self.voice

    def get(self, path: str, kind: type[Model], *, timeout: float = 0) -> Model:
        """Answer like a spoke."""
        return kind.model_validate(self.shown(path))

    def shown(self, path: str) -> Any:
        """Return what it shows at a path."""
        if path == "/api/spoke":
            return SpokeSummary(
                device="pc",
                name=self.name,
                version="1",
                connected=True,
                hub_online=self.hub_online,
                hub_url="http://127.0.0.1:8321",
            ).model_dump(mode="json")
        if path == "/api/voice" and self.voice is not None:
            return self.voice
        raise NotFound("there is nothing here")

    def turn(self, message: str, **_: Any) -> Iterator[dict[str, Any]]:
        """Take no messages."""
        raise StrawberryError("this spoke does not talk", hint="It only stands in.")


@pytest.fixture
def spoke() -> StandIn:
    """A spoke that listens."""
    return StandIn()


@pytest.fixture
def person(app: QApplication, spoke: StandIn, tmp_path: Path) -> Iterator[Person]:
    """Somebody before its window."""
    uploads = Installation(tmp_path)
    settings = TraySettings(
        tmp_path, find=lambda: spoke, command=["strawberry"], uploads=uploads, has_tray=False
    )
    person = Person(Tray(settings), app)
    person.tray.start()
    person.wait(lambda: person.tray.watch.seen.spoke, "the spoke")
    yield person
    person.tray.stop()
    person.tray.window.hide()


def _look(person: Person, line: str) -> None:
    person.tray.watch.look()
    person.wait(lambda: person.tray.window.state.text() == line, line)


def test_muting_shows_what_the_spoke_says(person: Person, spoke: StandIn) -> None:
    mute = next(each for each in person.tray.menu.actions() if each.text() == "Mute the microphone")
    assert mute.isVisible()
    mute.trigger()
    _look(person, "Connected to the hub · muted")
    assert spoke.posted == [("/api/voice/mute", {"muted": True})]
    assert (mute.isChecked(), person.tray.watch.seen.state) == (True, "muted")
    spoke.voice = {"state": "off"}
    _look(person, "Connected to the hub")
    assert not mute.isVisible()


def test_a_voice_that_talks_or_is_broken_is_shown(person: Person, spoke: StandIn) -> None:
    spoke.voice = {"state": "talking", "muted": False}
    _look(person, "Connected to the hub · talks")
    assert person.tray.watch.seen.state == "talking"
    spoke.voice, spoke.hub_online = {"state": "broken", "reason": "No sound card.", "muted": False}, False
    _look(person, "Alone: the hub is away · voice broken")
    assert person.tray.window.banner.isVisible()
    spoke.name = "The <b>computer</b> beside the big window in the living room on the second floor " * 2
    person.tray.watch.look()
    tip = QTextDocument()

    def is_named() -> bool:
        tip.setHtml(person.tray.window.device.toolTip())
        return tip.toPlainText() == spoke.name.strip()

    person.wait(is_named, "the long name, and no markup")
    assert person.tray.window.device.text().endswith("…")
    person.type(
        "Why is there so little that is said about the beginning of all of this, and of its end? " * 3
    )
    person.wait(lambda: person.tray.window.exchanges[0].is_over, "the problem")
    assert person.tray.window.width() < 600
    person.picture("problems")


@pytest.mark.parametrize("state", ["hub", "alone", "talking", "muted", "absent"])
def test_each_state_has_an_icon_of_its_own(app: QApplication, state: State) -> None:
    others = {"hub", "alone", "talking", "muted", "absent"} - {state}
    for side in SIZES:
        shown = picture(state, side).toImage()
        assert all(shown != picture(other, side).toImage() for other in others)  # type: ignore[arg-type]


def test_muted_says_more_than_what_the_voice_does() -> None:
    summary = StandIn().get("/api/spoke", SpokeSummary)
    assert Seen(summary, VoiceSummary(state="talking", muted=True)).state == "muted"
    assert Seen().state == "absent"


def test_a_german_tray_names_the_wake_word_and_says_what_is_missing_in_german() -> None:
    german, spoke = Translator(["de"]), StandIn()
    summary = spoke.get("/api/spoke", SpokeSummary)
    waiting = Seen(summary, VoiceSummary(state="listening", wake_words=("models/okay_nabu.onnx",)))
    assert state_line(waiting, german).endswith("wartet auf „okay nabu“")
    for hint in (_no_spoke(Home(Path("/nowhere"))), "Start it with 'strawberry spoke run'."):
        lines = problem_text(ConfigError("no spoke is running", hint=hint), german)
        assert lines[0] == "Es läuft kein Spoke."
        assert lines[1].startswith("Starte")


def test_an_autostart_file_quotes_as_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    autostart = Autostart(["env", "HOME=/a b/$c", '100%"'])
    autostart.set(on=True)
    text = (tmp_path / "autostart" / "strawberry-tray.desktop").read_text()
    assert 'Exec="env" "HOME=/a b/\\\\$c" "100%%\\\\""' in text
    autostart.set(on=False)
    assert not autostart.is_on
