"""Long lists, read a page at a time from the newest entry on."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from hub_web import limits, sb
from hub_web.texts import text
from hub_web.view import view

T = TypeVar("T")


class Paged(Generic[T]):
    """What the hub lists as filters ask for it, with a button for the next page below.

    Args:
        look: Asks for a page, by what the query says, ``before`` and ``limit``.
        query: Returns what the filters ask for now.
        show: Shows an answer, the first page or a further one, and returns where the next page begins.
    """

    def __init__(
        self,
        look: Callable[[Mapping[str, Any]], Awaitable[T]],
        query: Callable[[], Mapping[str, Any]],
        show: Callable[[T, bool], str | int | None],
    ) -> None:
        self._look, self._query, self._show = look, query, show
        self._end = sb.row().classes("sb-centre")
        self._lists = 0
        self.search = sb.one_at_a_time(partial(self._read, None))

    async def _read(self, before: str | int | None) -> None:
        asked, beginning = self._query(), self._lists
        answer = await self._look({**asked, "before": before, "limit": limits.PAGE})
        if asked != self._query() or beginning != self._lists:
            return  # what is asked for now is searched already, or a new list has begun
        if before is None:
            self._lists += 1
        following = self._show(answer, before is None)
        with sb.refilled(self._end):
            if following is not None:
                view.button(text("Show more"), partial(self._read, following), icon="expand_more")
