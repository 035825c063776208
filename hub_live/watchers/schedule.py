"""Times that come again: "every weekday at 7", "30 min before sunset", or five fields of cron."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from agent_core.prompt import Household
from contracts.errors import InvalidMessage
from hub_live.watchers.predicates.clock import place_of

_HINT: Final = (
    "Write 'every weekday at 7', 'every day at 18:30', 'every 15 minutes', 'sunset', "
    "'30 min before sunrise', or five fields of cron such as '0 7 * * 1-5'."
)
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
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
        moment_of = sun.sunrise if self.sun == "sunrise" else sun.sunset
        # The day before, because an offset moves its time into this one.
        for day in range(-1, _YEAR):
            date = (local + timedelta(days=day)).date()
            try:
                at: datetime = moment_of(observer, date, tzinfo=zone) + self.offset
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
        found = [number for number, name in enumerate(_DAYS) if day and name.startswith(day) and len(day) > 2]
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
