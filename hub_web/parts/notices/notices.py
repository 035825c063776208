"""Notifications in words: what they are about, what they say, and where they lead."""

from urllib.parse import quote
from zoneinfo import ZoneInfo

from contracts.answers.live import Event
from contracts.phrases import for_people
from contracts.text import shortened
from hub_live.events import NotificationData
from hub_live.events.kinds import with_data
from hub_live.push import Notice, PushText
from hub_web import limits
from hub_web.texts import LANGUAGE, ZONE, choose, text


def notice_words(event: Event[NotificationData]) -> list[str]:
    """Return what a notification is about, where that is something else, and what it says."""
    subject = event.data.title or event.subject
    text_of = for_people(event.data.text or subject)
    said = shortened(text.message(text_of), limits.MAX_NOTIFICATION)
    return [said] if text_of.startswith(subject) else [subject, said]


def notice_path(event: Event[NotificationData]) -> str:
    """Return the page that a notification leads to."""
    match event.data.sender:
        case "watcher":
            return f"/watchers/{quote(event.subject, safe='')}"
        case "capture":
            return "/captures"
        case "hub" if event.data.token:
            return "/people"
        case "hub" if event.data.without_values:
            return "/watchers"
        case "disk":
            return "/system"
    return "/"


def push_text(notice: Notice, language: str) -> PushText:
    """Return a notification as a browser shows it, in its language and its person's time zone."""
    before, zone = LANGUAGE.set(choose(language)), ZONE.set(ZoneInfo(notice.household.time_zone))
    try:
        event = with_data(Event.model_validate(notice.event, from_attributes=True), NotificationData)
        *subject, said = notice_words(event)
        if notice.left_out:
            said += "\n" + text("(and {n} more in a short time)", n=notice.left_out)
        return PushText(subject[0] if subject else "Strawberry", said, notice_path(event))
    finally:
        LANGUAGE.reset(before)
        ZONE.reset(zone)
