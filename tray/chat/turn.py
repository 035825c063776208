"""One message of the person: sent in a thread, its events handed to the window as they come."""

import uuid
from collections.abc import Callable

from pydantic import ValidationError

from contracts.chat.messages import TURN_EVENT, TurnError, TurnEvent, TurnFinal
from contracts.errors import StrawberryError
from tray.background import Background
from tray.spoke import Find

_CANCEL_TIMEOUT_S = 10.0


class Turn:
    """A turn.

    Args:
        happened: Called in Qt's thread with each event, of which the last is a `TurnFinal` or a `TurnError`.
    """

    def __init__(self, find: Find, background: Background, *, happened: Callable[[TurnEvent], None]) -> None:
        self.id = uuid.uuid4().hex
        self._find = find
        self._background = background
        self._happened = happened
        self._is_over = False

    def start(self, message: str, conversation: str) -> None:
        self._background.run(lambda: self._follow(message, conversation), failed=self._fail, name="turn")

    def stop(self) -> None:
        """Stop it; its last event says so. A turn that has not reached the spoke yet never runs."""
        path = f"/api/turns/{self.id}/cancel"
        self._background.run(
            lambda: self._find().request("POST", path, {}, timeout=_CANCEL_TIMEOUT_S),
            failed=self._fail,
            name="stop",
        )

    def answer(self, question: str, *, approve: bool, failed: Callable[[StrawberryError], None]) -> None:
        """Answer a question of the turn."""
        path, body = f"/api/turns/{self.id}/confirmations/{question}", {"approve": approve}
        self._background.run(
            lambda: self._find().request("POST", path, body), failed=failed, name="confirmation"
        )

    def _follow(self, message: str, conversation: str) -> None:
        stream = self._find().turn(message, conversation=conversation, turn=self.id, can_confirm=True)
        for each in stream:
            try:
                event = TURN_EVENT.validate_python(each)
            except ValidationError:
                continue  # of a newer spoke
            self._background.post(lambda event=event: self._tell(event))  # type: ignore[misc]
        self._background.post(self._end)

    def _tell(self, event: TurnEvent) -> None:
        if self._is_over:
            return
        self._is_over = isinstance(event, (TurnFinal, TurnError))
        self._happened(event)

    def _end(self) -> None:
        self._fail(StrawberryError("the turn ended without an answer", hint="Ask again."))

    def _fail(self, error: StrawberryError) -> None:
        self._tell(TurnError(code="broken", message=error.message, hint=error.hint))
