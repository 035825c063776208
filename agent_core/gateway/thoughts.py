"""Thoughts that a model writes into its answer; nobody but itself is to read them."""

from typing import Final

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThoughtFilter:
    """Takes ``<think>…</think>`` off the beginning of a streamed answer.

    Servers that know their model send thoughts in a field of their own; others leave them in the text.
    Later in an answer the same marks are text.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._passes = False

    def feed(self, text: str) -> str:
        """Take a piece of the answer; gives what of it can be shown."""
        if self._passes:
            return text
        self._held += text
        if not self._thinking:
            start = self._held.lstrip()
            if start.startswith(_OPEN):
                self._thinking = True
                self._held = start[len(_OPEN) :]
            elif _OPEN.startswith(start):
                return ""
            else:
                return self.rest()
        thought, closed, answer = self._held.partition(_CLOSE)
        if not closed:
            # The end may be the beginning of the closing mark; thoughts before it are not kept.
            self._held = thought[-len(_CLOSE) :]
            return ""
        self._passes, self._held = True, ""
        return answer.lstrip()

    def rest(self) -> str:
        """Give what was held back at the end of the answer, where it is no thought."""
        held = "" if self._thinking and not self._passes else self._held
        self._held, self._passes = "", True
        return held
