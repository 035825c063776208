"""The clock of a home in predicates: time of day, weekday and sun."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from agent_core.prompt import Household
from contracts.errors import InvalidMessage
from contracts.phrases import Phrase
from hub_live.watchers.predicates.windows import Unknown, Value

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEEKDAYS: Final = tuple(map(str.lower, DAYS))

CLOCK: Final[Mapping[str, tuple[str, ...]]] = {"time": (), "weekday": WEEKDAYS, "sun": ("up", "down")}
"""Names that a predicate may use without a topic, with the texts that each can be."""

_MINUTE_S: Final = 60
_DAY_S: Final = 86_400
_HORIZON: Final = -0.833
"""Degrees of the sun's centre when its upper edge is seen to set, as in the times of schedules."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def place_of(household: Household, *, needed_by: str) -> tuple[float, float]:
    """Return latitude and longitude of a home.

    Raises:
        InvalidMessage: If they are not set.
    """
    if household.latitude is None or household.longitude is None:
        raise InvalidMessage(
            "{sun} depends on where the household is, which is not set",
            sun=needed_by,
            hint="Choose a time of the day in its place. "
            "An admin can set where the home is on the page System.",
        )
    return household.latitude, household.longitude


@dataclass(frozen=True)
class Clock:
    """Tells what the clock names are at a time, exact to a minute."""

    household: Household = field(default_factory=Household)

    def check(self, names: Collection[str]) -> None:
        """Check that these clock names can be known.

        Raises:
            InvalidMessage: If the sun is among them, and where the home is, is not set.
        """
        if "sun" in names:
            place_of(self.household, needed_by="sun")

    def part(self, name: str) -> Callable[[float], Value]:
        """Return the function that gives a clock name at a time in Unix seconds."""
        return {"time": self._time, "weekday": self._weekday, "sun": self._sun}[name]

    def _local(self, now: float) -> datetime:
        return _local(int(now // _MINUTE_S), self.household.time_zone)

    def _time(self, now: float) -> Value:
        local = self._local(now)
        return float(local.hour * 3_600 + local.minute * _MINUTE_S)

    def _weekday(self, now: float) -> Value:
        return WEEKDAYS[self._local(now).weekday()]

    def _sun(self, now: float) -> Value:
        place = (self.household.latitude, self.household.longitude)
        if place[0] is None or place[1] is None:
            return Unknown(Phrase("where the household is, is not set: the sun is not known"))
        return "up" if _elevation(int(now // _MINUTE_S), place[0], place[1]) > _HORIZON else "down"


UTC_CLOCK: Final = Clock()
"""Of a home that has set neither its zone nor its place."""


@lru_cache(maxsize=4_096)
def _local(minute: int, zone: str) -> datetime:
    return (_EPOCH + timedelta(minutes=minute)).astimezone(ZoneInfo(zone))


@lru_cache(maxsize=4_096)
def _elevation(minute: int, latitude: float, longitude: float) -> float:
    from astral import Observer, sun  # 30 ms that only a home with such a predicate needs

    at = _EPOCH + timedelta(minutes=minute)
    return float(sun.elevation(Observer(latitude, longitude), at, with_refraction=False))


def time_text(seconds: float) -> str:
    """Return a time of day as people write it: ``22:05``."""
    minutes = int(seconds) // _MINUTE_S
    return f"{minutes // 60:02}:{minutes % 60:02}"


def time_of(text: str) -> float | None:
    """Return the seconds since midnight of a time such as ``22:05``; None if the text is none."""
    hour, colon, minute = text.partition(":")
    if not colon or not (hour.isdecimal() and minute.isdecimal() and len(minute) == 2 and len(hour) <= 2):
        return None
    seconds = int(hour) * 3_600 + int(minute) * _MINUTE_S
    return float(seconds) if int(minute) < 60 and seconds <= _DAY_S else None
