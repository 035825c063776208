"""Durations and times as people write them: ``10m``, ``1h30m``, ``7d``, ``2026-11-22T13:00``."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, WithJsonSchema

from agent_core import limits
from contracts.errors import InvalidMessage
from contracts.phrases import Phrase
from contracts.wire import rfc3339

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
"""Of durations as they are shown, the largest first."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STEP: Final = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])"


def parse_duration(text: str) -> float:
    """Return the seconds of a duration.

    Raises:
        InvalidMessage: If it is none.
    """
    plain = text.replace(" ", "")
    if not re.fullmatch(f"(?:{_STEP})+", plain):
        raise InvalidMessage(
            "{text!r} is not a duration", text=text[:40], hint="Write 30s, 10m, 1h30m or 7d."
        )
    return sum(float(count) * _UNITS[unit] for count, unit in re.findall(_STEP, plain))


def utc(seconds: float) -> datetime:
    """Return the time at so many Unix seconds, which may be negative, on every platform.

    Raises:
        OverflowError: If it is before the year 1, or after 9999.
    """
    return _EPOCH + timedelta(seconds=seconds)


def local_time(at: float | datetime, zone: str) -> Phrase:
    """Return a time as people of a home read it: ``19:23``, on another day ``2026-11-23 19:23``.

    Args:
        zone: IANA name of the home's time zone.
    """
    moment = (at if isinstance(at, datetime) else utc(at)).astimezone(ZoneInfo(zone))
    is_today = moment.date() == datetime.now(moment.tzinfo).date()
    return Phrase.moment(rfc3339(moment), f"{moment:%H:%M}" if is_today else f"{moment:%Y-%m-%d %H:%M}")


def parse_since(text: str) -> float:
    """Return the moment since which is meant, in Unix seconds.

    Args:
        text: A duration before now, or a time as in RFC 3339; without an offset it is local time.

    Raises:
        InvalidMessage: If it is neither, too long, or before the year 1.
    """
    wrong = InvalidMessage(
        "{text!r} is neither a duration nor a time",
        text=text[:40],
        hint="Write 10m, 7d, or 2026-11-22T13:00.",
    )
    if len(text) > limits.MAX_TIME:
        raise wrong
    try:
        try:
            since = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            since = time.time() - parse_duration(text)
        utc(since)
    # OSError: Windows knows no local time before 1970.
    except (InvalidMessage, OverflowError, OSError):
        raise wrong from None
    return since


Since = Annotated[
    float, BeforeValidator(parse_since), WithJsonSchema({"type": "string", "maxLength": limits.MAX_TIME})
]
"""A query parameter that `parse_since` reads."""


def ago(seconds: float) -> str:
    """Write how long ago something was, in its largest unit: ``2 h ago``."""
    size, unit = next((each for each in UNITS if seconds >= each[0]), UNITS[-1])
    return f"{max(0, seconds) // size:.0f} {unit} ago"
