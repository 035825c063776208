"""One capture that runs: samples are queued in the event loop and written in a thread."""

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Final, Literal, TypeVar

from chat.tasks import happens
from contracts.answers.live import LinkName, RecordingState
from contracts.errors import Forbidden
from contracts.rates import Backoff
from hub_live import limits
from hub_live.captures.files.formats import Missing
from hub_live.captures.files.writer import Writer
from hub_live.captures.tables import CaptureRow
from hub_live.topics import Feed, Gap, Sample, field
from hub_live.topics.samples import TopicChoice

_log = logging.getLogger(__name__)

T = TypeVar("T")

Change = Literal["started", "stopped", "full", "failed", "resumed"]

_NO_ROOM: Final = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


@dataclass
class Shared:
    """Resources that all captures share.

    Attributes:
        thread: Where files are written.
        room: Bytes that may still wait to be written.
        retry_s: First and longest wait for a disk that is full or away.
    """

    feed: Feed
    thread: Executor
    room: int = limits.QUEUES_BYTES
    retry_s: tuple[float, float] = limits.DISK_RETRY_S

    def in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self.thread, work)


@dataclass(eq=False)
class Recording:
    """Records with one writer.

    Attributes:
        row: Of the capture, which counts what was written; of the hub's own, since the hub was started.
        is_over: Whether its folder has more than it may keep.
        on_change: Called after each change of the state.
        on_roll: Called when a file was completed.
        sequence: Field of the payloads that counts the messages of a topic.
        problem: Why it is ``full`` or ``failed``.
    """

    row: CaptureRow
    writer: Writer
    shared: Shared
    _: KW_ONLY
    is_over: Callable[[], bool]
    on_change: Callable[[Change], Awaitable[None]]
    on_roll: Callable[[], None]
    sequence: str | None = None
    state: RecordingState = "active"
    problem: str = ""

    def __post_init__(self) -> None:
        self._sequence = _Sequence(self.sequence) if self.sequence else None
        self._queue: list[Sample | Missing] = []
        self._taken = 0
        self._lost: dict[LinkName, Missing] = {}
        self._last: Sample | None = None
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._following = ExitStack()
        self._topics: frozenset[TopicChoice] = frozenset()
        self._backoff = Backoff(*self.shared.retry_s)

    def follow(
        self,
        topics: Iterable[TopicChoice],
        *,
        sees: Callable[[LinkName], Callable[[str], bool] | None],
        since: float,
    ) -> None:
        """Record these topics as soon as it runs, in place of those that were given before.

        Args:
            sees: Which topics of a link may be recorded.
            since: When it last wrote, Unix seconds; what was not heard after that is a gap.

        Raises:
            InvalidTopic: If one is no topic filter.
            NotFound: If there is no such link.
        """
        topics, feed = frozenset(topics), self.shared.feed
        links = {each.link for each in topics}

        def note(gap: Gap) -> None:
            if gap.until is not None and gap.link in links:
                self._queue.append(Missing(gap.link, max(gap.since, since), gap.until, "connection"))
                self._news.set()

        with ExitStack() as stack:
            for link in sorted(links):
                for gap in feed.gaps(link, since=since):
                    note(gap)
            stack.callback(feed.on_gap(note))
            for each in topics:
                stack.enter_context(feed.follow(each.topic, self._put, link=each.link, sees=sees(each.link)))
            # What others follow already is not sent again by the broker; two filters may match the same.
            last = {known for each in topics - self._topics for known in feed.known(each.topic, each.link)}
            for known in sorted(last, key=lambda known: known.at):
                may_see = sees(known.link)
                if may_see is None or may_see(known.topic):
                    self._put(replace(known, at=time.time(), retained=True))
            before, self._following = self._following, stack.pop_all()
        self._topics = topics
        # Not sooner: what comes meanwhile is recorded once, by either.
        before.close()

    async def run(self) -> None:
        """Write what comes until `end`; all that came by then is written."""
        try:
            while not self._ended.is_set():
                await self._news.wait()
                await happens(self._ended, within_s=limits.FLUSH_S)
                await self._flush()
        finally:
            self._following.close()
        self.state = "active"
        await self._write()
        try:
            await self.shared.in_thread(self.writer.close)
        except OSError as error:
            _log.error("%s is not complete: %s", self.writer.series.path, error)

    def drop(self) -> None:
        """Discard a recording that never ran."""
        self._following.close()
        self.shared.room += self._taken

    def end(self) -> None:
        """End soon; who awaits `run` awaits the end."""
        self._ended.set()
        self._news.set()

    def _put(self, sample: Sample) -> None:
        if sample is self._last:
            # Two of the filters match it.
            return
        self._last = sample
        size = len(sample.payload) + limits.QUEUED_SAMPLE_BYTES
        if self.state != "active":
            self._lose(sample, "disk")
        elif size > self.shared.room:
            self._lose(sample, "overrun")
        else:
            if not self._queue:
                self._news.set()
            self.shared.room -= size
            self._taken += size
            self._queue.append(sample)

    def _lose(self, sample: Sample, reason: Literal["disk", "overrun"]) -> None:
        lost = self._lost.get(sample.link)
        if lost is None:
            self._lost[sample.link] = Missing(sample.link, sample.at, sample.at, reason, messages=1)
        else:
            self._lost[sample.link] = replace(lost, until=sample.at, messages=(lost.messages or 0) + 1)

    def _note_lost(self) -> None:
        """Write down what was lost, now that it goes on."""
        if self._lost:
            self._queue += self._lost.values()
            self._lost.clear()
            self._news.set()

    async def _flush(self) -> None:
        """Write what has come; where that fails, wait until it can be written again."""
        problem = await self._write()
        if problem is None:
            self._backoff.reset()
            return
        self.state, self.problem = problem
        await self.on_change("full" if self.state == "full" else "failed")
        while problem is not None and not self._ended.is_set():
            self.problem = problem[1]
            await happens(self._ended, within_s=self._backoff.next())
            problem = await self._write()
        if problem is None:
            self.state, self.problem = "active", ""
            self._note_lost()
            await self.on_change("resumed")

    async def _write(self) -> tuple[RecordingState, str] | None:
        """Write what is queued; return the state and the problem where it cannot be written."""
        if self.state == "active":
            self._note_lost()
        batch, self._queue = self._queue, []
        taken, self._taken = self._taken, 0
        self._news.clear()
        self.writer.done = 0
        try:
            if self._sequence is not None:
                batch = await self.shared.in_thread(partial(self._sequence.checked, batch))
            if await self.shared.in_thread(partial(self._write_now, batch)):
                self.on_roll()
        except Exception as error:  # noqa: BLE001 - one capture must not end the others
            for item in batch[self.writer.done :]:
                if isinstance(item, Missing):
                    self._queue.append(item)
                else:
                    self._lose(item, "disk")
            return _explained(error)
        finally:
            self.shared.room += taken
            written = batch[: self.writer.done]
            gaps = sum(isinstance(item, Missing) for item in written)
            self.row.gaps += gaps
            self.row.messages += len(written) - gaps
            self.row.begun_at = self.writer.begun_at
        return None

    def _write_now(self, batch: Sequence[Sample | Missing]) -> bool:
        if self.is_over():
            raise OSError(errno.ENOSPC, "the captures have used up the budget of their folder")
        return self.writer.write(batch)


class _Sequence:
    """Finds holes in the numbers that senders give to their messages.

    Args:
        path: Field of the payloads.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._last: dict[tuple[LinkName, str], tuple[int, float]] = {}

    def checked(self, batch: Sequence[Sample | Missing]) -> list[Sample | Missing]:
        """Return a batch with the gaps that it has."""
        found: list[Sample | Missing] = []
        for item in batch:
            if isinstance(item, Sample):
                number = field(item.value, None if self._path == "value" else self._path)
                if isinstance(number, int):
                    key = (item.link, item.topic)
                    last, at = self._last.get(key, (number, item.at))
                    # A smaller one is a sender that began again.
                    if number > last + 1:
                        lost = number - last - 1
                        found.append(Missing(item.link, at, item.at, "sequence", lost, item.topic))
                    self._last[key] = (number, item.at)
            found.append(item)
        return found


def _explained(error: Exception) -> tuple[RecordingState, str]:
    if isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
        return ("full" if error.errno in _NO_ROOM else "failed"), reason
    if not isinstance(error, Forbidden):
        _log.error("a capture cannot be written", exc_info=error)
    return "failed", str(error)
