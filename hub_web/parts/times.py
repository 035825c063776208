"""Moments and durations in words, in the person's language and time zone."""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hub_web.texts import text

_NOW_S: Final = 10
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_STEPS: Final = (
    (60, 1, "{n} second", "{n} seconds"),
    (3_600, 60, "{n} minute", "{n} minutes"),
    (86_400, 3_600, "{n} hour", "{n} hours"),
    (float("inf"), 86_400, "{n} day", "{n} days"),
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


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


def at(zone: ZoneInfo, value: datetime | None) -> str:
    """Return a moment as a clock and a calendar on the wall show it; empty for None.

    Example:
        ``14:05``, ``yesterday, 14:05``, ``20 Nov, 14:05`` or ``20 Nov 2025, 14:05``
    """
    if value is None:
        return ""
    there = value.astimezone(zone)
    today = datetime.now(zone).date()
    clock = there.strftime("%H:%M")
    if there.date() == today:
        return clock
    if there.date() == today - timedelta(days=1):
        return text("yesterday, {clock}", clock=clock)
    if there.date() == today + timedelta(days=1):
        return text("tomorrow, {clock}", clock=clock)
    day = text("{day} {month}", day=there.day, month=text(_MONTHS[there.month - 1]))
    return f"{day}, {clock}" if there.year == today.year else f"{day} {there.year}, {clock}"
