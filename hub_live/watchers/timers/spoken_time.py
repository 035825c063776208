"""A time of the day and a day as people say them, in English and German."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Final

from pydantic import Field

from contracts.errors import InvalidMessage
from hub_registry.storage.tables import now

_TIME: Final = re.compile(
    r"(?P<hour>\d{1,2})(?:(?:[:.]|\s*uhr\s+|\s+)(?P<minute>\d{2}))?\s*(?P<half>[ap]\.?m\.?)?\s*(?:o'?clock|uhr)?\Z"
)
_DAYS: Final = {
    "today": 0, "heute": 0, "tomorrow": 1, "morgen": 1, "übermorgen": 2,
}  # fmt: skip
_WEEKDAYS: Final = {
    "monday": 0, "tuesday": 1, "wednesday": 2, "thursday": 3, "friday": 4, "saturday": 5, "sunday": 6,
    "montag": 0, "dienstag": 1, "mittwoch": 2, "donnerstag": 3, "freitag": 4, "samstag": 5, "sonntag": 6,
}  # fmt: skip
DAYS: Final = (*_DAYS, *_WEEKDAYS)
_WORDS: Final = (
    "",
    *DAYS,
    *(f"on {day}" for day in _WEEKDAYS),
    *(f"am {day}" for day in _WEEKDAYS),
)

Day = Annotated[str, Field(json_schema_extra={"enum": list(_WORDS)})]


def moment_of(time: str, day: str, *, zone: tzinfo, at: datetime | None = None) -> datetime:
    """Return the moment that is meant, the next one after the present.

    Args:
        time: ``8``, ``8:30``, ``8 pm``, ``20 Uhr 30``.
        day: One of `Day`; empty for the next time of the day.
        at: The present moment, where it is another one.

    Raises:
        InvalidMessage: If it is no time or no day, or has passed today.
    """
    present = (at or now()).astimezone(zone)
    found = _TIME.match(" ".join(time.casefold().split()))
    hour, minute = (int(found["hour"]), int(found["minute"] or 0)) if found else (24, 0)
    if found and found["half"] and 1 <= hour <= 12:
        hour = hour % 12 + (12 if found["half"].startswith("p") else 0)
    if hour > 23 or minute > 59:
        raise InvalidMessage("{time!r} is no time of the day", time=time[:40], hint="Say 8, 8:30 or 8 pm.")
    moment = present.replace(hour=hour, minute=minute, second=0, microsecond=0)
    word = day.casefold().split()[-1] if day.strip() else ""
    if word in _DAYS:
        moment += timedelta(days=_DAYS[word])
    elif word in _WEEKDAYS:
        moment += timedelta(days=(_WEEKDAYS[word] - moment.weekday()) % 7)
        moment += timedelta(days=7 * (moment <= present))
    elif word:
        raise InvalidMessage("{day!r} is no day", day=day[:40], hint="Say today, tomorrow or a weekday.")
    elif moment <= present:
        moment += timedelta(days=1)
    return moment.astimezone(UTC)
