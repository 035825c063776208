"""All topics of a filter as one client watches them: what changed, a slice at a time.

A client that reads slowly gets the newest message of each topic, and nothing waits for it but that.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from agent_core.times import utc
from contracts.answers.live import LinkName, ShownGap
from contracts.topics import find
from contracts.wire import Json, OrAbsent, Part, Timestamp
from hub_live import limits
from hub_live.topics.decoding import blob, media_type
from hub_live.topics.feed import Feed
from hub_live.topics.samples import Sample

MOST_TOPICS: Final = 5_000
"""Topics that one client watches; large homes have some thousand."""


class ShownTopic(Part):
    """A topic as it is now.

    Attributes:
        value: Of its last message; only the beginning where it is `cut`.
        bytes: Of that message.
        retained: Whether the broker keeps it, as far as is known.
        messages: How many have come since it is watched.
    """

    topic: str
    at: Timestamp
    value: Json
    cut: bool
    bytes: int
    retained: bool
    messages: int
    per_minute: float | None


class TreeEvent(Part):
    """What is new in a tree: one of these.

    Attributes:
        refused: Why the broker does not send the topics.
        full: The most topics that are watched, where there are more.
    """

    topics: OrAbsent[list[ShownTopic]] = None
    gap: OrAbsent[ShownGap] = None
    refused: OrAbsent[str] = None
    full: OrAbsent[int] = None


class _Watched:
    """A topic that is watched.

    Attributes:
        retained: Whether the broker keeps its last message, as far as is known.
        messages: How many have come since it is watched.
    """

    __slots__ = ("messages", "retained", "sample")

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.messages = 0
        row = find(sample.topic) if sample.link == "bus" else None
        self.retained = row is not None and row[0].retained


class Tree:
    """The topics that a client watches, and which of them it has not seen as they are. Made by `watching`.

    Attributes:
        is_full: Whether there are more topics than are watched.
        changed: Set while there is something to take.
    """

    def __init__(self, feed: Feed, link: LinkName) -> None:
        self.is_full = False
        self.changed = asyncio.Event()
        self._feed = feed
        self._link = link
        self._watched: dict[str, _Watched] = {}
        # In the order in which they changed; a topic that changes again keeps its place.
        self._news: dict[str, None] = {}

    def put(self, sample: Sample) -> None:
        """Store a message."""
        watched = self._watched.get(sample.topic)
        if watched is None:
            if len(self._watched) >= MOST_TOPICS:
                if not self.is_full:
                    # To be told, though nothing that is watched may ever change again.
                    self.is_full = True
                    self.changed.set()
                return
            watched = self._watched[sample.topic] = _Watched(sample)
            # What is retained comes as such only once, and others may have followed it before.
            watched.retained |= any(each.retained for each in self._feed.history(sample.topic, self._link))
        watched.sample = sample
        watched.messages += 1
        watched.retained |= sample.retained
        self._news[sample.topic] = None
        self.changed.set()

    def take(self) -> tuple[list[ShownTopic], bool]:
        """Return what changed, as much as goes into one slice, and whether all of it was known before."""
        topics = list(islice(self._news, limits.TREE_SLICE))
        for topic in topics:
            del self._news[topic]
        if not self._news:
            self.changed.clear()
        taken = [self._watched[topic] for topic in topics]
        return [self._shown(each) for each in taken], all(each.messages > 1 for each in taken)

    def _shown(self, watched: _Watched) -> ShownTopic:
        sample = watched.sample
        value, is_cut = _beginning(sample)
        return ShownTopic(
            topic=sample.topic,
            at=utc(sample.at),
            value=value,
            cut=is_cut,
            bytes=len(sample.payload),
            retained=watched.retained,
            messages=watched.messages,
            per_minute=self._feed.per_minute(sample.topic, self._link),
        )


@contextmanager
def watching(feed: Feed, filter_: str, link: LinkName, *, sees: Callable[[str], bool]) -> Iterator[Tree]:
    """Watch the topics of a filter while the context is open, those that were heard before among them.

    Args:
        sees: Whether the client may see a topic.

    Raises:
        InvalidTopic: If that is not a topic filter.
        NotFound: If there is no home broker.
    """
    tree = Tree(feed, link)
    with feed.follow(filter_, tree.put, link=link, sees=sees):
        for sample in feed.known(filter_, link):
            if sees(sample.topic):
                tree.put(sample)
        yield tree


def _beginning(sample: Sample) -> tuple[Json, bool]:
    """Return the value of a message, or the beginning of its text; and whether that is not all."""
    payload = sample.payload
    if len(payload) <= limits.TREE_PAYLOAD:
        return sample.value, False
    media = media_type(payload)
    text = payload[: limits.TREE_PAYLOAD].decode("utf-8", "ignore")
    # What is cut in the middle of a character loses at most three bytes by that.
    if media is not None or len(text.encode()) < limits.TREE_PAYLOAD - 3 or "\0" in text:
        return blob(payload, media), False
    return f"{text}…", True
