"""Web pages as plain text, and headlines of news feeds (RSS and Atom)."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from html import unescape
from itertools import islice
from typing import Annotated, Final
from urllib.parse import urljoin
from xml.etree.ElementTree import Element

from pydantic import BaseModel, Field

from contracts.errors import LinkError, NotFound
from spoke.integrations._fetch import Fetched, fetch
from spoke.integrations._xml import named, read_xml, text_of
from strawberry_skills import Skill, skill_method

_MAX_BYTES: Final = 2 * 1024 * 1024
_PAGE_CHARS: Final = 8_000
"""Of a page in one answer: about 2,000 tokens of a model."""
_MOST_HEADLINES: Final = 50
_TITLE_CHARS: Final = 300
_RAW: Final = ("script", "style", "noscript", "template", "svg", "iframe")
_HIDDEN: Final = frozenset({*_RAW, "nav", "header", "footer", "aside", "form"})
_TAG: Final = re.compile(r"<(/?)([a-z][a-z0-9]{0,30})", re.IGNORECASE)
_BLOCK: Final = re.compile(
    "p|div|section|article|main|li|[uo]l|table|tr|[bh]r|pre|blockquote|h[1-6]|d[td]|title"
)
_CHARSET: Final = re.compile(rb"""<meta[^>]{0,200}charset=["']?([\w-]{1,40})""", re.IGNORECASE)
_reads = partial(skill_method, read_only=True, open_world=True, untrusted_output=True)
Limit = Annotated[int, Field(ge=1, le=_MOST_HEADLINES)]
_Address = Annotated[str, Field(pattern=r"^https?://\S+$")]


@dataclass
class Page:
    """A web page as text.

    Attributes:
        more: Characters that follow; ask for them with a start.
    """

    url: str
    title: str
    text: str
    more: int


@dataclass
class Headline:
    """An entry of a news feed."""

    title: str
    summary: str
    published: datetime | None
    url: str
    feed: str


class ReaderSkill(Skill):
    """Reads web pages, and the headlines of news feeds."""

    labels = {
        "de": {"ReaderSkill": "Webseiten und Nachrichten", "read_page": "Seite lesen", "url": "Adresse"}
        | {"headlines": "Schlagzeilen", "feed": "Quelle", "feeds": "Quellen", "start": "Ab Zeichen"}
        | {"allow_private": "Adressen im Haus erlauben"},
        "en": {"ReaderSkill": "Web pages and news", "url": "Address", "start": "From character"},
    }

    class Settings(BaseModel):
        """News feeds by the names that you call them, and which addresses may be asked."""

        feeds: Annotated[dict[str, _Address], Field(max_length=50, description="RSS or Atom feeds.")] = {}
        allow_private: Annotated[bool, Field(description="Read pages of this home's network, too.")] = False

    @_reads()
    async def read_page(self, url: str, start: Annotated[int, Field(ge=0)] = 0) -> Page:
        """Return the text of a web page, without menus and advertisements as far as they are marked.

        Args:
            url: Its address, with https://.
            start: From which character on, for the rest of a long page.
        """
        page = await self._fetch(url)
        if page.content_type in ("text/html", "application/xhtml+xml", ""):
            title, text = await asyncio.to_thread(_html_text, _decoded(page))
        elif page.content_type.startswith("text/") or page.content_type.endswith(("json", "xml")):
            title, text = "", page.text
        else:
            raise LinkError("{kind} cannot be read as text", kind=page.content_type[:100])
        shown = text[start : start + _PAGE_CHARS]
        return Page(page.url, title[:_TITLE_CHARS], shown, max(0, len(text) - start - len(shown)))

    @_reads(
        sentences={
            "en": ["(what is|what's) (in|on) the news", "(read|show) [me] the (news|headlines)"],
            "de": ["was gibt es Neues", "(lies|zeig|zeige) [mir] die (Nachrichten|Schlagzeilen) [vor]"],
        },
        responses={"en": "{result.title}.", "de": "{result.title}."},
    )
    async def headlines(self, feed: str | None = None, limit: Limit = 5) -> list[Headline]:
        """Return the newest entries of the news feeds, the newest first.

        Args:
            feed: The name of one feed; by default all of them.
            limit: How many.
        """
        feeds: dict[str, str] = self.settings.feeds
        if feed is not None:
            feeds = {name: url for name, url in feeds.items() if name.casefold() == feed.strip().casefold()}
        if not feeds:
            known = ", ".join(self.settings.feeds) or "none yet"
            raise NotFound(
                "there is no such feed", known=known, hint="There are: {known}. Settings add feeds."
            )
        asked = (self._headlines(name, url) for name, url in feeds.items())
        answers = await asyncio.gather(*asked, return_exceptions=True)
        failed = [each for each in answers if isinstance(each, BaseException)]
        if len(failed) == len(answers):
            raise failed[0]
        found = [each for answer in answers if isinstance(answer, list) for each in answer]
        # Entries without a time keep their places behind the others.
        found.sort(key=lambda each: each.published.timestamp() if each.published else 0.0, reverse=True)
        return found[:limit]

    async def _headlines(self, feed: str, url: str) -> list[Headline]:
        page = await self._fetch(url)
        root = await asyncio.to_thread(read_xml, page.content)
        entries = islice(named(root, "item", "entry"), _MOST_HEADLINES)
        return [_headline(each, page.url, feed) for each in entries]

    async def _fetch(self, url: str) -> Fetched:
        return await fetch(url.strip(), max_bytes=_MAX_BYTES, allow_private=self.settings.allow_private)


def _html_text(html: str) -> tuple[str, str]:
    """Return the title and the text of a page: of its <main> or <article>, if there is any."""
    title, everything, main = "", list[str](), list[str]()
    inside, hidden, depth, in_title = 0, "", 0, False
    for tag, is_end, text in _tokens(html):
        if hidden:
            depth += (tag == hidden) * (-1 if is_end else 1)
            hidden = hidden if depth else ""
            continue
        if tag in _HIDDEN and not is_end:
            hidden, depth = tag, 1
        if tag in ("main", "article"):
            inside = max(0, inside + (-1 if is_end else 1))
        if tag:
            in_title = tag == "title" and not is_end
        elif in_title:
            title += text
            continue
        piece = "\n" if _BLOCK.fullmatch(tag) else "" if tag else text
        everything.append(piece)
        if inside:
            main.append(piece)
    return " ".join(title.split()), _lines("".join(main)) or _lines("".join(everything))


def _tokens(html: str) -> Iterator[tuple[str, bool, str]]:
    """Yield tags (name, whether it ends) and texts, in linear time; `html.parser` takes minutes for some."""
    at = 0
    while at < len(html):
        start = html.find("<", at)
        if text := html[at : start if start >= 0 else len(html)]:
            yield "", False, _unescaped(text)
        if start < 0:
            return
        tag = _TAG.match(html, start)
        if tag is None and html[start + 1 : start + 2] not in ("!", "?"):
            yield "", False, "<"
            at = start + 1
            continue
        closing = "-->" if html.startswith("<!--", start) else ">"
        end = html.find(closing, start)
        if end < 0:
            return
        at = end + len(closing)
        if tag is None:
            continue
        name = tag[2].lower()
        yield name, bool(tag[1]), ""
        if name in _RAW and not tag[1]:
            closes = re.compile(f"</{name}", re.IGNORECASE).search(html, at)
            at = closes.start() if closes is not None else len(html)


def _unescaped(text: str) -> str:
    try:
        return unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


def _lines(text: str) -> str:
    return "\n".join(line for each in text.split("\n") if (line := " ".join(each.split())))


def _decoded(page: Fetched) -> str:
    found = _CHARSET.search(page.content[:2048]) if not page.charset else None
    return page.decoded(found[1].decode()) if found else page.text


def _headline(entry: Element, base: str, feed: str) -> Headline:
    links = [each for each in entry.iterfind("link") if each.get("rel", "alternate") == "alternate"]
    link = text_of(entry, "link") or (links[0].get("href", "") if links else "")
    title = _html_text(text_of(entry, "title"))[1][:_TITLE_CHARS]
    summary = _html_text(text_of(entry, "description", "summary", "content"))[1][:_TITLE_CHARS]
    published = _moment(text_of(entry, "pubDate", "published", "updated", "date"))
    return Headline(title, summary, published, urljoin(base, link), feed)


def _moment(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, OverflowError):
            return read(text).astimezone()
    return None
