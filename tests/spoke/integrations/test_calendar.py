"""Calendars: on a real CalDAV server, and as files of other programs."""

import importlib.util
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from contracts.errors import CallError, ConfigError
from spoke.integrations import calendar
from tests.ports import free_port
from tests.requirements import require

ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//Somebody//EN
{events}END:VCALENDAR
"""


def ics(*events: str) -> str:
    lines = "".join(f"BEGIN:VEVENT\n{event}\nEND:VEVENT\n" for event in events)
    return ICS.format(events=lines).replace("\n", "\r\n")


@pytest.fixture(autouse=True)
def zone(monkeypatch):
    """Set the time zone of this device."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def caldav(tmp_path):
    """Radicale with a calendar of anna's; gives its address."""
    require(importlib.util.find_spec("radicale") is not None, "pip install radicale")
    port = free_port()
    (tmp_path / "users").write_text("anna:s3cret\n")
    options = {
        "server-hosts": f"127.0.0.1:{port}",
        "auth-type": "htpasswd",
        "auth-htpasswd-filename": str(tmp_path / "users"),
        "auth-htpasswd-encryption": "plain",
        "auth-delay": "0",
        "storage-filesystem-folder": str(tmp_path / "collections"),
        "logging-level": "error",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    server = subprocess.Popen([sys.executable, "-m", "radicale", "-C", "", *words])
    url = f"http://127.0.0.1:{port}/anna/family/"
    while True:
        try:
            made = httpx.request("MKCALENDAR", url, auth=("anna", "s3cret"))
            break
        except httpx.ConnectError:
            assert server.poll() is None
    assert made.status_code == 201, made.text
    yield url
    server.terminate()
    server.wait()


async def test_appointments_are_added_and_read_on_a_caldav_server(opened, caldav):
    settings = {"calendars": {"Family": caldav}, "username": "anna"}
    async with opened("calendar", **settings, password="s3cret") as calendar:
        assert await calendar.call("today") == []
        at = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - of this device
        at = at.replace(hour=9, minute=30, second=0, microsecond=0)
        added = await calendar.call("add_event", title="Dentist", start=at.isoformat(), place="Main Street")
        assert added["calendar"] == "Family"
        found = await calendar.call("tomorrow")
        assert [(each["title"], each["place"], each["line"]) for each in found] == [
            ("Dentist", "Main Street", "09:30 Dentist")
        ]
        assert await calendar.answer("welche Termine habe ich morgen", "de") == "09:30 Dentist."
        assert (await calendar.call("next_event"))["title"] == "Dentist"
        with pytest.raises(CallError, match="no such calendar"):
            await calendar.call("add_event", title="x", start=at.isoformat(), calendar="Work")
    async with opened("calendar", **settings, password="wrong") as calendar:
        with pytest.raises(CallError, match="status 401"):
            await calendar.call("today")


async def test_what_repeats_is_found_on_its_days_and_not_where_it_was_moved(opened, web):
    weekly = "UID:1\nSUMMARY:Choir\nDTSTART;TZID=Europe/Berlin:20260105T190000\nDURATION:PT2H"
    web.serve(
        **{
            "choir.ics": (
                200,
                "text/calendar",
                ics(
                    f"{weekly}\nRRULE:FREQ=WEEKLY;UNTIL=20260601\nEXDATE;TZID=Europe/Berlin:20260119T190000",
                    "UID:1\nSUMMARY:Choir elsewhere\nRECURRENCE-ID;TZID=Europe/Berlin:20260126T190000\n"
                    "DTSTART;TZID=Europe/Berlin:20260127T180000\nDURATION:PT1H",
                    "UID:2\nSUMMARY:Holiday\nDTSTART;VALUE=DATE:20260112\nDTEND;VALUE=DATE:20260114",
                    "UID:3\nSUMMARY:Too often\nDTSTART:20260101T000000Z\nRRULE:FREQ=SECONDLY",
                    "UID:4\nSUMMARY:No start",
                    "UID:6\nRECURRENCE-ID:yesterday\nDTSTART:20260112T100000Z\nSUMMARY:Moved from nowhere",
                    "UID:5\nSUMMARY:Off\nSTATUS:CANCELLED\nDTSTART:20260112T100000Z",
                ),
            ),
            "page.ics": (200, "text/html", "<p>Log in"),
        }
    )
    async with opened("calendar", calendars={"Choir": f"{web.url}/choir.ics"}) as calendar:
        assert (await calendar.call("get_settings"))["calendars"] == {"Choir": "**********"}
        found = await calendar.call("events", day="2026-01-05", days=31)
        titles = [(each["title"], each["start"][:10], each["all_day"]) for each in found]
        assert titles == [
            ("Choir", "2026-01-05", False),
            ("Holiday", "2026-01-12", True),
            ("Moved from nowhere", "2026-01-12", False),
            ("Choir", "2026-01-12", False),
            ("Choir elsewhere", "2026-01-27", False),
            ("Choir", "2026-02-02", False),
        ]
        assert _utc_hours(found[:1]) == [18]
        # Seven in the evening in Berlin stays that when the clocks change.
        assert _utc_hours(await calendar.call("events", day="2026-05-25", days=7)) == [17]
        assert await calendar.call("events", day="2026-06-08", days=7) == []
        second = await calendar.call("events", day="2026-01-13")
        assert [each["title"] for each in second] == ["Holiday"]
    async with opened("calendar", calendars={"Page": f"{web.url}/page.ics"}) as calendar:
        with pytest.raises(CallError, match="Page cannot be read"):
            await calendar.call("today")


async def test_without_its_library_it_says_how_to_install_it(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "icalendar", None)
    with pytest.raises(AssertionError, match="strawberry-home"):
        async with opened("calendar", calendars={"a": "https://calendar.example/"}):
            pass


def _utc_hours(events: list[dict[str, str]]) -> list[int]:
    return [datetime.fromisoformat(each["start"]).astimezone(UTC).hour for each in events]


def test_rules_that_never_come_true_do_not_hold_a_device_up(monkeypatch):
    monkeypatch.setattr(calendar, "_EXPANDED_S", 0.1)
    never = "DTSTART:20260101T000000Z\nRRULE:FREQ=WEEKLY;BYMONTH=2;BYMONTHDAY=30"
    data = ics(*(f"UID:{number}\nSUMMARY:Never\n{never}" for number in range(100))).encode()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ConfigError, match="takes too long"):
        calendar._events([data], "Odd", start, start + timedelta(days=1))
