"""One request for a page: whose it is, in which language and theme, and with which rights."""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final, Literal, cast, get_args
from zoneinfo import ZoneInfo

from starlette.requests import HTTPConnection

from agent_core.prompt import Household
from hub_web.api import Api
from hub_web.feeds import Feeds
from hub_web.session import WebSession
from hub_web.texts import Text, choose

Theme = Literal["auto", "light", "dark"]

THEME_COOKIE: Final = "strawberry_theme"


@dataclass(frozen=True)
class Visit:
    """What a page knows of the one who looks at it.

    Attributes:
        api: The hub's API with the rights of the session.
        theme: Which of light and dark; ``auto`` is what the device says.
        base_path: Stands in front of every path in a page.
        tasks: Owns what the page follows.
        feeds: The turns that pages have begun.
    """

    session: WebSession
    api: Api
    text: Text
    zone: ZoneInfo
    theme: Theme
    base_path: str
    tasks: asyncio.TaskGroup
    feeds: Feeds

    @classmethod
    def of(
        cls,
        connection: HTTPConnection,
        session: WebSession,
        api: Api,
        *,
        household: Household,
        tasks: asyncio.TaskGroup,
        feeds: Feeds,
    ) -> "Visit":
        """Read it from a request; the household's language and time zone count where a person has none."""
        text = Text(
            choose(session.user.language, connection.headers.get("accept-language"), household.language)
        )
        zone = ZoneInfo(session.user.time_zone or household.time_zone)
        base, theme = connection.scope["root_path"], theme_of(connection)
        said = replace(api, message=text.message)
        return cls(session, said, text, zone, theme, base, tasks, feeds)


def theme_of(connection: HTTPConnection) -> Theme:
    """Return the theme that was chosen in this browser."""
    chosen = connection.cookies.get(THEME_COOKIE)
    return cast(Theme, chosen) if chosen in get_args(Theme) else "auto"


VISIT: Final[ContextVar[Visit]] = ContextVar("visit")
"""The visit of the request that is answered in this task; NiceGUI passes nothing to its pages."""
