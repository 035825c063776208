"""Entries of models as pages send them back, and what came of a test."""

from typing import Any, Final

from hub_web.parts.layout import dot, note, problem
from hub_web.parts.times import milliseconds
from hub_web.texts import text

_OF_THE_HUB: Final = ("key_variable", "has_key", "problem")
"""What of an entry only the hub says."""


def bare(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as it is sent back."""
    return {key: value for key, value in entry.items() if key not in _OF_THE_HUB}


def show_result(tried: dict[str, Any]) -> None:
    """Show what came of a test."""
    time = milliseconds(1_000 * tried["first_s"])
    if tried["problem"]:
        problem(text("It does not answer"), tried["problem"])
    elif tried["advice"]:
        dot("warn", text("answers after {time}", time=time))
        note(tried["advice"], classes="sb-small")
    else:
        dot("good", text("answers after {time}, and calls tools", time=time))
