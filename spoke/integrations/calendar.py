"""Calendars: appointments of ICS addresses and CalDAV servers, and new ones on CalDAV."""

import asyncio
import base64
import importlib.util
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as clock
from functools import partial
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from contracts.errors import ConfigError, NotFound
from identity.ids import uuid7
from spoke.integrations._fetch import fetch
from spoke.integrations._xml import named, read_xml
from strawberry_skills import Skill, SkillUnavailable, skill_method

_MAX_BYTES: Final = 4 * 1024 * 1024
_MOST_EVENTS: Final = 100
_NEXT_DAYS: Final = 60
_EXPANDED_S: Final = 5.0
"""For all repetitions of one calendar; one that repeats daily for 20 years takes 0.1 s."""
_TOO_OFTEN: Final = ("SECONDLY", "MINUTELY", "HOURLY")
_TITLE_CHARS: Final = 200
_XML: Final = "application/xml; charset=utf-8"
_QUERY: Final = """<?xml version="1.0" encoding="utf-8"?>
<C:calendar-query xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:prop><C:calendar-data/></D:prop>
<C:filter><C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT">
<C:time-range start="{start:%Y%m%dT%H%M%SZ}" end="{end:%Y%m%dT%H%M%SZ}"/>
</C:comp-filter></C:comp-filter></C:filter></C:calendar-query>"""
"""RFC 4791, 7.8: the events that are, or repeat, in a time."""

_reads = partial(skill_method, read_only=True, open_world=True, untrusted_output=True)
Days = Annotated[int, Field(ge=1, le=366)]
_LINES: Final = dict.fromkeys(("en", "de"), "{result.line}.")


@dataclass
class Event:
    """An appointment; one of whole days begins at midnight. The line is what is read aloud."""

    title: str
    start: datetime
    end: datetime
    all_day: bool
    place: str
    calendar: str
    line: str


def _checked(addresses: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, url in addresses.items():
        if not re.fullmatch(r"(https?|webcal)://\S+", url.get_secret_value()):
            raise ValueError(f"the address of {name} begins with https:// or webcal://")
    return addresses


class CalendarSkill(Skill):
    """The appointments of your calendars."""

    labels = {
        "de": {"CalendarSkill": "Kalender", "today": "Termine heute", "tomorrow": "Termine morgen"}
        | {"next_event": "Nächster Termin", "events": "Termine", "add_event": "Neuer Termin"}
        | {"day": "Tag", "days": "Tage", "start": "Beginn", "place": "Ort", "calendar": "Kalender"}
        | {"calendars": "Kalender", "username": "Benutzername", "password": "Passwort"},
        "en": {"today": "Events today", "tomorrow": "Events tomorrow", "add_event": "New event"},
    }

    class Settings(BaseModel):
        """Addresses of calendars by the names that you call them; a CalDAV address ends with a slash."""

        calendars: Annotated[
            dict[str, SecretStr],
            AfterValidator(_checked),
            Field(min_length=1, max_length=20, description='{"family": "https://host/dav/family/"}'),
        ]
        username: Annotated[str, Field(max_length=200, description="Of CalDAV.")] = ""
        password: Annotated[SecretStr, Field(description="Of CalDAV.")] = SecretStr("")

    async def setup(self) -> None:
        # So that the reason is shown.
        if importlib.util.find_spec("icalendar") is None:
            raise SkillUnavailable("a package is missing: pip install 'strawberry-home[skills]'")

    @_reads(
        sentences={
            "en": ["what is (on|in) my calendar [today]", "what do I have [to do] today"],
            "de": ["was steht [heute] (im|in meinem) Kalender", "welche Termine habe ich heute"],
        },
        responses=_LINES,
    )
    async def today(self) -> list[Event]:
        """Return the appointments of today, also those that are over."""
        return await self.events()

    @_reads(
        sentences={
            "en": ["what is (on|in) my calendar tomorrow", "what do I have [to do] tomorrow"],
            "de": ["was steht morgen (im|in meinem) Kalender", "welche Termine habe ich morgen"],
        },
        responses=_LINES,
    )
    async def tomorrow(self) -> list[Event]:
        """Return the appointments of tomorrow."""
        return await self.events(_now().date() + timedelta(days=1))

    @_reads(
        sentences={"en": ["when is my next (appointment|event)"], "de": ["wann ist mein nächster Termin"]},
        responses=dict.fromkeys(("en", "de"), "{result.title}, {result.start}."),
    )
    async def next_event(self) -> Event | None:
        """Return the next appointment that has not begun; None where there is none in the next 60 days."""
        now = _now()
        found = await self._between(now, now + timedelta(days=_NEXT_DAYS))
        return next((each for each in found if each.start >= now and not each.all_day), None)

    @_reads()
    async def events(self, day: date | None = None, days: Days = 1) -> list[Event]:
        """Return the appointments of some days, the earliest first.

        Args:
            day: The first day; by default today.
            days: How many days.
        """
        start = _midnight(day or _now().date())
        return await self._between(start, _midnight(start.date() + timedelta(days=days)))

    @skill_method(open_world=True)
    async def add_event(
        self,
        title: Annotated[str, Field(max_length=_TITLE_CHARS)],
        start: datetime,
        minutes: Annotated[int, Field(ge=1, le=7 * 24 * 60)] = 60,
        place: Annotated[str, Field(max_length=_TITLE_CHARS)] = "",
        calendar: str | None = None,
    ) -> Event:
        """Add an appointment to a calendar.

        Args:
            title: What it is.
            start: When it begins; without a time zone, in that of this device.
            minutes: How long it takes.
            place: Where it is.
            calendar: Name of a calendar; by default the first one that can be written.
        """
        import icalendar

        name, url = self._writable(calendar)
        start = start.astimezone()
        end, identifier = start + timedelta(minutes=minutes), str(uuid7())
        times = {"start": start.astimezone(UTC), "end": end.astimezone(UTC)}
        event = icalendar.Event.new(summary=title, location=place or None, uid=identifier, **times)
        made = icalendar.Calendar.new(prodid="-//Strawberry//EN", subcomponents=[event])
        headers = {"content-type": "text/calendar; charset=utf-8", "if-none-match": "*", **self._login()}
        await _fetch(f"{url}{identifier}.ics", method="PUT", headers=headers, body=made.to_ical())
        return _event(title, start, end, place, name)

    def _writable(self, calendar: str | None) -> tuple[str, str]:
        wanted = (calendar or "").strip().casefold()
        for name, url in self._addresses():
            if url.endswith("/") and wanted in ("", name.casefold()):
                return name, url
        hint = "A CalDAV address ends with a slash."
        raise NotFound("there is no such calendar that can be written", hint=hint)

    def _addresses(self) -> list[tuple[str, str]]:
        return [(name, url.get_secret_value()) for name, url in self.settings.calendars.items()]

    def _login(self) -> dict[str, str]:
        if not self.settings.username:
            return {}
        login = f"{self.settings.username}:{self.settings.password.get_secret_value()}"
        return {"authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}

    async def _between(self, start: datetime, end: datetime) -> list[Event]:
        asked = (self._of(name, url, start, end) for name, url in self._addresses())
        found = [event for events in await asyncio.gather(*asked) for event in events]
        return sorted(found, key=lambda each: (each.start, each.title))[:_MOST_EVENTS]

    async def _of(self, name: str, url: str, start: datetime, end: datetime) -> list[Event]:
        if not url.endswith("/"):
            page = await _fetch(url.replace("webcal://", "https://"))
            return await asyncio.to_thread(_events, [page.content], name, start, end)
        query = _QUERY.format(start=start.astimezone(UTC), end=end.astimezone(UTC)).encode()
        headers = {"content-type": _XML, "depth": "1", **self._login()}
        page = await _fetch(url, method="REPORT", headers=headers, body=query)
        data = [(each.text or "").encode() for each in named(read_xml(page.content), "calendar-data")]
        return await asyncio.to_thread(_events, data, name, start, end)


# Their owner chose the servers, which may be in the home.
_fetch = partial(fetch, max_bytes=_MAX_BYTES, allow_private=True)


def _events(data: list[bytes], calendar: str, start: datetime, end: datetime) -> list[Event]:
    """Return the events of some ICS texts that are in a time."""
    import icalendar

    try:
        parts = [part for each in data for part in icalendar.Calendar.from_ical(each).walk("VEVENT")]
    except ValueError as error:
        reason = str(error)[:200]
        raise ConfigError("the calendar {name} cannot be read: {why}", name=calendar, why=reason) from None
    # A repetition that was moved or cancelled has an event of its own.
    moved = {(str(part.get("UID")), _replaced(part)) for part in parts if "RECURRENCE-ID" in part}
    found: list[Event] = []
    until = time.monotonic() + _EXPANDED_S
    for part in parts:
        # A rule that never comes true (February 30th) takes seconds by itself, and a calendar may have many.
        if time.monotonic() > until:
            raise ConfigError("the calendar {name} takes too long to read", name=calendar)
        try:
            length = _aware(part.end) - _aware(part.start)
            is_moved = "RECURRENCE-ID" in part
            for begins in [part.start] if is_moved else _starts(part, end, until):
                first = _aware(begins)
                is_there = is_moved or (str(part.get("UID")), first) not in moved
                if is_there and first < end and first + length > start and part.get("STATUS") != "CANCELLED":
                    title, place = str(part.get("SUMMARY", "")), str(part.get("LOCATION", ""))
                    all_day = not isinstance(part.start, datetime)
                    found.append(_event(title, first, first + length, place, calendar, all_day))
        except (ValueError, KeyError, AttributeError, OverflowError, TypeError):
            continue  # one event that cannot be read hides no others
    return found


def _starts(part: Any, end: datetime, until: float) -> Iterator[date]:
    """Yield when an event begins, each time that it repeats, until an end."""
    rule = part.get("RRULE")
    if not hasattr(rule, "to_ical"):
        yield part.start
        return
    if str(rule["FREQ"][0]).upper() in _TOO_OFTEN:
        return
    from dateutil.rrule import rrulestr

    # In local time without a zone: 9 o'clock stays 9 o'clock when the clocks change.
    zone = part.start.tzinfo if isinstance(part.start, datetime) else None
    if "UNTIL" in rule:
        rule["UNTIL"] = [_naive(rule["UNTIL"][0], zone, clock.max)]
    exceptions = part.get("EXDATE", [])
    listed = exceptions if isinstance(exceptions, list) else [exceptions]
    excluded = {_aware(each.dt) for dates in listed for each in dates.dts}
    for each in rrulestr(rule.to_ical().decode(), dtstart=_naive(part.start, zone, clock.min)):
        begins = each.replace(tzinfo=zone)
        if _aware(begins) >= end or time.monotonic() > until:
            return
        if _aware(begins) not in excluded:
            yield begins


def _replaced(part: Any) -> datetime | None:
    try:
        return _aware(part["RECURRENCE-ID"].dt)
    except (ValueError, AttributeError):
        return None


def _naive(value: date, zone: tzinfo | None, of_day: clock) -> datetime:
    if not isinstance(value, datetime):
        return datetime.combine(value, of_day)
    return (value.astimezone(zone) if value.tzinfo and zone else value).replace(tzinfo=None)


def _aware(value: date) -> datetime:
    # A day begins at midnight in the time zone of this device.
    return value.astimezone() if isinstance(value, datetime) else _midnight(value)


def _event(title: str, start: datetime, end: datetime, place: str, name: str, all_day: bool = False) -> Event:
    title = " ".join(title.split())[:_TITLE_CHARS]
    line = title if all_day else f"{start:%H:%M} {title}"
    return Event(title, start, end, all_day, place.strip()[:_TITLE_CHARS], name, line)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, clock()).astimezone()


def _now() -> datetime:
    return datetime.now().astimezone()
