"""Coroutines of authors, held so that none can stay for ever."""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class Leash:
    """Awaits a coroutine on behalf of a task, and leaves it at its next ``await`` once it is cut.

    A coroutine that catches its cancellation and goes on keeps its task from ending, and with it all that
    waits for the task. Driven step by step, it can be left where it stands.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._is_cut = False

    def cut(self) -> None:
        """Leave the coroutine at its next step; cancel the task as well, so that there is one."""
        self._is_cut = True

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            try:
                waited_for = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                return end.value
            if self._is_cut:
                self._close()
                raise asyncio.CancelledError
            error = None
            try:
                yield waited_for
            except BaseException as raised:  # noqa: BLE001 - whatever it is, the coroutine is to see it
                error = raised

    def _close(self) -> None:
        try:
            self._coroutine.close()
        except RuntimeError:
            return  # it goes on even then, but nobody drives it any more
