"""The time, here and elsewhere."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from contracts.errors import NotFound
from strawberry_skills import Skill, skill_method


class TimeSkill(Skill):
    """Date and time, in any time zone."""

    labels = {
        "de": {
            "TimeSkill": "Uhrzeit",
            "until": "Zeit bis",
            "moment": "Zeitpunkt",
            "find_time_zones": "Zeitzonen suchen",
            "containing": "Mit den Buchstaben",
        },
        "en": {"until": "Time until", "containing": "With the letters"},
    }

    device_agnostic = True

    @skill_method(read_only=True)
    def now(self, time_zone: str | None = None) -> datetime:
        """Return date and time with their offset from UTC.

        Args:
            time_zone: Name of a zone, for example ``Europe/Berlin``; by default that of the device.
        """
        return _now(time_zone)

    @skill_method(
        read_only=True,
        sentences={
            "en": ["what time is it [now]", "what is the time [now]", "tell me the time"],
            "de": ["wie spät ist es [jetzt]", "wie viel Uhr ist es [jetzt]"],
        },
        responses={"en": "It is {result}.", "de": "Es ist {result} Uhr."},
    )
    def time(self, time_zone: str | None = None) -> str:
        """Return the time of day as hours and minutes, for example ``14:05``.

        Args:
            time_zone: Name of a zone; by default that of the device.
        """
        return f"{_now(time_zone):%H:%M}"

    @skill_method(
        read_only=True,
        sentences={
            "en": ["what is the date [today]", "what day is it [today]", "what is today's date"],
            "de": ["welches Datum ist heute", "welcher Tag ist heute", "(was|welches Datum) haben wir heute"],
        },
        responses={"en": "It is {result}.", "de": "Heute ist {result}."},
    )
    def date(self, time_zone: str | None = None) -> str:
        """Return the date with the day of the week, for example ``Saturday, 2026-11-21``.

        Args:
            time_zone: Name of a zone; by default that of the device.
        """
        return f"{_now(time_zone):%A, %Y-%m-%d}"

    @skill_method(read_only=True)
    def until(self, moment: datetime) -> timedelta:
        """Return how long it is until a moment; negative if it is over.

        Args:
            moment: Date and time; without an offset it is meant in the time zone of the device.
        """
        return moment.astimezone() - _now(None)

    @skill_method(read_only=True)
    def find_time_zones(self, containing: str) -> list[str]:
        """List the names of time zones that contain a text, for example a city.

        Args:
            containing: Part of the name, for example ``new york``.
        """
        wanted = containing.strip().lower().replace(" ", "_")
        return sorted(name for name in available_timezones() if wanted in name.lower())


def _now(time_zone: str | None) -> datetime:
    if time_zone is None:
        return datetime.now().astimezone()
    try:
        return datetime.now(ZoneInfo(time_zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise NotFound(
            "there is no time zone {name!r}", name=time_zone, hint="Name one as Europe/Berlin."
        ) from None
