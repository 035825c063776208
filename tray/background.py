"""Requests in threads of their own, so that no window waits; what came of one is handled in Qt's thread."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, Signal, Slot

from contracts.errors import StrawberryError

T = TypeVar("T")


class Background(QObject):
    """Runs jobs in threads, and hands results to Qt's thread, where it was made."""

    _posted = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._posted.connect(self._call, Qt.ConnectionType.QueuedConnection)

    def post(self, function: Callable[[], None]) -> None:
        """Call a function in Qt's thread soon, unless the program ends first."""
        with suppress(RuntimeError):
            self._posted.emit(function)

    def run(
        self,
        job: Callable[[], T],
        *,
        then: Callable[[T], None] = lambda _: None,
        failed: Callable[[StrawberryError], None] = lambda _: None,
        name: str,
    ) -> None:
        """Run a job in a thread, and one of the two functions in Qt's thread afterwards."""

        def work() -> None:
            try:
                result = job()
            except StrawberryError as error:
                problem = error
                self.post(lambda: failed(problem))
            else:
                self.post(lambda: then(result))

        threading.Thread(target=work, name=name, daemon=True).start()

    @Slot(object)
    def _call(self, function: Callable[[], None]) -> None:
        function()
