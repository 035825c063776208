"""What the pages say: translations, see `agent_core.texts`, and moments, durations and sizes in words."""

from datetime import UTC, datetime
from typing import Final

from agent_core.sentences.responses import bytes_text
from agent_core.texts import LANGUAGE, ZONE, choose, languages, text

__all__ = [
    "LANGUAGE",
    "ZONE",
    "ago",
    "choose",
    "countdown",
    "language_names",
    "lasting",
    "milliseconds",
    "size",
    "text",
]

_NAMES: Final = {"en": "English", "de": "Deutsch"}
_NOW_S: Final = 10
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_STEPS: Final = (
    (60, 1, "{n} second", "{n} seconds"),
    (3_600, 60, "{n} minute", "{n} minutes"),
    (86_400, 3_600, "{n} hour", "{n} hours"),
    (float("inf"), 86_400, "{n} day", "{n} days"),
)


def language_names() -> dict[str, str]:
    return {each: _NAMES.get(each, each) for each in languages()}


def ago(value: datetime | None) -> str:
    """Return how long ago a moment was, or when it will be; empty for None.

    Example:
        ``3 minutes ago``
    """
    if value is None:
        return ""
    seconds = (datetime.now(UTC) - value).total_seconds()
    if abs(seconds) < _NOW_S:
        return text("just now") if seconds >= 0 else text("in a moment")
    words = lasting(abs(seconds))
    return text("{time} ago", time=words) if seconds > 0 else text("in {time}", time=words)


def lasting(seconds: float) -> str:
    """Return a duration in words, in its largest unit.

    Example:
        ``2 hours``
    """
    for below, unit, one, many in _STEPS:
        if seconds < below:
            return text.count(round(seconds / unit), one, many)
    raise AssertionError("the last step takes any duration")


def countdown(seconds: int) -> str:
    """Return what is left as a clock that counts down shows it.

    Example:
        ``4:05`` or ``1:29:59``
    """
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def milliseconds(value: float) -> str:
    """Return a short duration with its unit.

    Example:
        ``240 ms``, ``1.8 s``
    """
    if value < _SECOND_MS:
        return f"{value:.0f} ms"
    if value < _MINUTE_MS:
        return text.number(value / 1_000, 1) + " s"
    return lasting(value / 1_000)


def size(count: float) -> str:
    return bytes_text(count, decimal=text.number(0.1, 1)[1])
