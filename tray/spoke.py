"""The spoke of this machine as the tray sees it: polled, and found again after a restart."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

from pydantic import BaseModel
from PySide6.QtCore import QObject, Signal

from contracts.devices.presence import SpokeSummary, VoiceSummary
from contracts.errors import ConfigError, NotFound, StrawberryError
from contracts.rates import Backoff
from tray import limits
from tray.background import Background
from tray.texts import Translator

Model = TypeVar("Model", bound=BaseModel)
State = Literal["hub", "alone", "talking", "muted", "absent"]
"""What the icon shows; ``talking`` from the wake word to the end of the answer."""

_TALKING: Final = ("hearing", "thinking", "talking")


class Spoke(Protocol):
    """A client of the spoke's HTTP API, which knows its address and token; raises ``StrawberryError``."""

    def get(self, path: str, kind: type[Model], *, timeout: float = ...) -> Model:
        """Return the answer to ``GET``, a model of this kind."""

    def request(self, method: str, path: str, body: Any = None, *, timeout: float = ...) -> Any:
        """Send a request and return the JSON answer."""

    def turn(
        self, message: str, *, conversation: str, turn: str, can_confirm: bool = ...
    ) -> Iterator[dict[str, Any]]:
        """Send a message and yield the events of its turn."""


Find = Callable[[], Spoke]
"""Returns the spoke that runs now; raises ``StrawberryError`` where none does."""


@dataclass(frozen=True)
class Seen:
    """What a look at the spoke found.

    Attributes:
        spoke: None where no spoke answers.
        voice: None where the spoke has none, or it is off.
        problem: Why no spoke answers, with what to do.
    """

    spoke: SpokeSummary | None = None
    voice: VoiceSummary | None = None
    problem: StrawberryError | None = None

    @property
    def is_muted(self) -> bool:
        return self.voice is not None and (self.voice.muted or self.voice.state == "muted")

    @property
    def state(self) -> State:
        """Return the part that the icon shows."""
        if self.spoke is None:
            return "absent"
        if self.is_muted:
            return "muted"
        if self.voice is not None and self.voice.state in _TALKING:
            return "talking"
        return "hub" if self.spoke.hub_online else "alone"


def state_line(seen: Seen, text: Translator) -> str:
    """Return the state in a few words: who answers, and what the voice does."""
    if seen.spoke is None:
        return text("The spoke is not running")
    who = text("Connected to the hub") if seen.spoke.hub_online else text("Alone: the hub is away")
    if seen.voice is None:
        return who
    word = Path(next(iter(seen.voice.wake_words), "")).stem.replace("_", " ")
    voice = text("muted") if seen.is_muted else _voices(text, word).get(seen.voice.state, "")
    return f"{who} · {voice}" if voice else who


def problem_text(problem: StrawberryError, text: Translator) -> tuple[str, str]:
    """Return why no spoke answers, and what to do."""
    if not isinstance(problem, ConfigError):
        return problem.message, problem.hint
    alone = text("Start it with 'strawberry spoke run'.")
    hint = text("Start one with 'strawberry up', or join a hub on another machine: 'strawberry spoke join'.")
    return text("No spoke is running."), alone if "spoke run" in problem.hint else hint


def _voices(text: Translator, wake_word: str) -> dict[str, str]:
    return {
        "listening": text("waits for “{word}”", word=wake_word) if wake_word else "",
        "hearing": text("listens"),
        "thinking": text("thinks"),
        "talking": text("talks"),
        "broken": text("voice broken"),
    }


class SpokeWatch(QObject):
    """Looks at the spoke until it is stopped; ``changed`` tells what is different now."""

    changed = Signal(object)

    def __init__(self, find: Find, background: Background) -> None:
        super().__init__()
        self.seen = Seen()
        self.is_shown = False
        self._find = find
        self._background = background
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="spoke watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, soon."""
        self._stopped = True
        self._wake.set()

    def look(self) -> None:
        self._wake.set()

    def _run(self) -> None:
        backoff, last = Backoff(*limits.SPOKE_RETRY_S), None
        while not self._stopped:
            seen = self._look()
            if (shown := _compared(seen)) != last:
                last = shown
                self._background.post(lambda seen=seen: self._take(seen))  # type: ignore[misc]
            if seen.spoke is not None:
                backoff.reset()
                wait = (
                    limits.LOOK_SHOWN_S if self.is_shown or seen.voice is not None else limits.LOOK_HIDDEN_S
                )
            else:
                wait = backoff.next()
            if self._wake.wait(wait):
                self._wake.clear()

    def _take(self, seen: Seen) -> None:
        self.seen = seen
        self.changed.emit(seen)

    def _look(self) -> Seen:
        try:
            spoke = self._find()
            return Seen(
                spoke.get("/api/spoke", SpokeSummary, timeout=limits.SPOKE_TIMEOUT_S), _voice_of(spoke)
            )
        except StrawberryError as error:
            return Seen(problem=error)


def _voice_of(spoke: Spoke) -> VoiceSummary | None:
    try:
        voice = spoke.get("/api/voice", VoiceSummary, timeout=limits.SPOKE_TIMEOUT_S)
    except NotFound:
        return None
    return None if voice.state == "off" else voice


def _compared(seen: Seen) -> object:
    problem = seen.problem and (seen.problem.message, seen.problem.hint)
    return seen.spoke, seen.voice, problem
