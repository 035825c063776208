"""Times as people say them.

Those that come again are "every weekday at 7", "30 min before sunset", or five fields of cron; those of one
day are "8 pm" with a day, in English and German.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import Field

from agent_core.prompt import Household
from contracts.errors import InvalidMessage
from hub_live.watchers.predicates.clock import WEEKDAYS, place_of
from hub_registry.storage.tables import now

_HINT: Final = (
    "Write 'every weekday at 7', 'every day at 18:30', 'every 15 minutes', 'sunset', "
    "'30 min before sunrise', or five fields of cron such as '0 7 * * 1-5'."
)
_GROUPS: Final = {"day": "*", "weekday": "1-5", "weekend": "0,6"}
_AT: Final = re.compile(
    r"(?:every )?(?P<day>[a-z]+?)s?(?: at)? (?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))? ?(?P<half>am|pm)?"
)
_EACH: Final = re.compile(r"every (?:(?P<count>\d{1,2}) )?(?P<unit>minute|hour)s?")
_SUN: Final = re.compile(
    r"(?:every day )?(?:at )?(?:(?P<count>\d{1,3}) ?(?P<unit>m|min|minutes?|h|hours?) "
    r"(?P<side>before|after) )?(?P<sun>sunrise|sunset)"
)
_YEAR: Final = 366

_SPOKEN: Final = re.compile(
    r"(?P<hour>\d{1,2})(?:(?:[:.]|\s*uhr\s+|\s+)(?P<minute>\d{2}))?\s*(?P<half>[ap]\.?m\.?)?\s*(?:o'?clock|uhr)?\Z"
)
_COMING: Final = {
    "today": 0, "heute": 0, "tomorrow": 1, "morgen": 1, "übermorgen": 2,
}  # fmt: skip
_WEEKDAYS: Final = {
    "monday": 0, "tuesday": 1, "wednesday": 2, "thursday": 3, "friday": 4, "saturday": 5, "sunday": 6,
    "montag": 0, "dienstag": 1, "mittwoch": 2, "donnerstag": 3, "freitag": 4, "samstag": 5, "sonntag": 6,
}  # fmt: skip
DAYS: Final = (*_COMING, *_WEEKDAYS)
_WORDS: Final = (
    "",
    *DAYS,
    *(f"on {day}" for day in _WEEKDAYS),
    *(f"am {day}" for day in _WEEKDAYS),
)

Day = Annotated[str, Field(json_schema_extra={"enum": list(_WORDS)})]


@dataclass(frozen=True)
class Schedule:
    """A time that comes again.

    Attributes:
        cron: Five fields; empty for a time of the sun.
        sun: ``sunrise`` or ``sunset``; empty for cron.
        offset: After the sun's time.
    """

    cron: str = ""
    sun: str = ""
    offset: timedelta = timedelta()

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Parse a schedule.

        Raises:
            InvalidMessage: If it is none.
        """
        words = " ".join(text.lower().split())
        if match := _SUN.fullmatch(words):
            count = int(match["count"] or 0) * (60 if (match["unit"] or "").startswith("h") else 1)
            return cls(
                sun=match["sun"], offset=timedelta(minutes=-count if match["side"] == "before" else count)
            )
        if match := _EACH.fullmatch(words):
            count = int(match["count"] or 1)
            # Cron counts from the full hour, or from midnight: it has no even steps of 45 minutes.
            if not count or (60 if match["unit"] == "minute" else 24) % count:
                raise _wrong(text)
            step = f"*/{count}"
            cron = f"{step} * * * *" if match["unit"] == "minute" else f"0 {step} * * *"
        elif match := _AT.fullmatch(words):
            cron = _cron_at(match, text)
        else:
            cron = words
        try:
            next(CronSim(cron, datetime(2026, 1, 1)))  # noqa: DTZ001  only whether it is one
        except (CronSimError, StopIteration):
            raise _wrong(text) from None
        if len(cron.split()) != 5:
            raise _wrong(text)
        return cls(cron=cron)

    def next(self, after: datetime, household: Household) -> datetime:
        """Return the first time after a moment.

        Raises:
            InvalidMessage: If the sun's time is asked for and the household has no coordinates.
        """
        local = after.astimezone(ZoneInfo(household.time_zone))
        if self.cron:
            return next(CronSim(self.cron, local))
        return self._next_of_sun(local, household)

    def _next_of_sun(self, local: datetime, household: Household) -> datetime:
        place = place_of(household, needed_by=self.sun)
        from astral import Observer, sun  # 30 ms that only a home with such a schedule needs

        zone = ZoneInfo(household.time_zone)
        observer = Observer(*place)
        time_of = sun.sunrise if self.sun == "sunrise" else sun.sunset
        # The day before, because an offset moves its time into this one.
        for day in range(-1, _YEAR):
            date = (local + timedelta(days=day)).date()
            try:
                at: datetime = time_of(observer, date, tzinfo=zone) + self.offset
            except ValueError:
                continue  # a polar day or night
            if at > local:
                return at
        raise InvalidMessage("there is no {sun} at these coordinates", sun=self.sun)


def _cron_at(match: re.Match[str], text: str) -> str:
    day, hour, minute = match["day"], int(match["hour"]), int(match["minute"] or 0)
    if day in _GROUPS:
        days = _GROUPS[day]
    else:
        numbered = enumerate(WEEKDAYS, start=1)
        found = [number % 7 for number, name in numbered if name.startswith(day) and len(day) > 2]
        if len(found) != 1:
            raise _wrong(text)
        days = str(found[0])
    if match["half"]:
        if not 1 <= hour <= 12:
            raise _wrong(text)
        hour = hour % 12 + (12 if match["half"] == "pm" else 0)
    return f"{minute} {hour} * * {days}"


def _wrong(text: str) -> InvalidMessage:
    return InvalidMessage("{text!r} is not a schedule", text=text[:100], hint=_HINT)


def moment_of(time: str, day: str, *, zone: tzinfo) -> datetime:
    """Return the moment that is meant, the next one after the present.

    Args:
        time: ``8``, ``8:30``, ``8 pm``, ``20 Uhr 30``.
        day: One of `Day`; empty for the next time of the day.

    Raises:
        InvalidMessage: If it is no time or no day, or has passed today.
    """
    present = now().astimezone(zone)
    found = _SPOKEN.match(" ".join(time.casefold().split()))
    hour, minute = (int(found["hour"]), int(found["minute"] or 0)) if found else (24, 0)
    if found and found["half"] and 1 <= hour <= 12:
        hour = hour % 12 + (12 if found["half"].startswith("p") else 0)
    if hour > 23 or minute > 59:
        raise InvalidMessage("{time!r} is no time of the day", time=time[:40], hint="Say 8, 8:30 or 8 pm.")
    moment = present.replace(hour=hour, minute=minute, second=0, microsecond=0)
    word = day.casefold().split()[-1] if day.strip() else ""
    if word in _COMING:
        moment += timedelta(days=_COMING[word])
    elif word in _WEEKDAYS:
        moment += timedelta(days=(_WEEKDAYS[word] - moment.weekday()) % 7)
        moment += timedelta(days=7 * (moment <= present))
    elif word:
        raise InvalidMessage("{day!r} is no day", day=day[:40], hint="Say today, tomorrow or a weekday.")
    elif moment <= present:
        moment += timedelta(days=1)
    return moment.astimezone(UTC)
