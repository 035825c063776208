"""The captures of one hub process: started and stopped by people, kept over restarts and within budgets."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sqlmodel import col, select

from agent_core.provenance import Prompt, render_name
from bus.link import Link
from chat.tasks import happens, open_tasks, supervise
from contracts.answers.live import LinkName
from contracts.errors import (
    ConfigError,
    Conflict,
    Forbidden,
    NotFound,
    StrawberryError,
    TooManyRequests,
)
from hub_agent.prompt import Asked, PromptPart, list_part
from hub_agent.settings import HubSettings
from hub_live import limits
from hub_live.captures.budget import MB, Kept, clean_up
from hub_live.captures.capture import Capture
from hub_live.captures.files.formats import FORMATS
from hub_live.captures.files.reading import merged, read_capture
from hub_live.captures.files.series import Series
from hub_live.captures.files.writer import FileLimits, Writer
from hub_live.captures.recording import Recording, Shared
from hub_live.captures.spec import CaptureInfo, CaptureSpec
from hub_live.captures.states import CaptureStates
from hub_live.captures.tables import CaptureRow
from hub_live.events import Events
from hub_live.topics import Feed, Gap, Sample
from hub_live.topics.samples import TopicChoice
from hub_live.topics.values import check_visible, visible_to
from hub_registry.access.accounts import User
from hub_registry.registry import Registry
from hub_registry.storage.tables import now, readable

_log = logging.getLogger(__name__)

_WRITES: Final = "; a capture writes files"


@dataclass(eq=False)
class Captures:
    """Starts, stops and lists captures. Made by `open_captures`.

    A person has their own. With ``of_all``, for an admin who manages the home, those of all people and of the
    hub are meant.

    Attributes:
        tasks: Owns the captures that run.
    """

    settings: HubSettings
    registry: Registry
    _: KW_ONLY
    shared: Shared
    states: CaptureStates
    tasks: asyncio.TaskGroup

    def __post_init__(self) -> None:
        settings = self.settings.captures
        self._folders = [self.settings.home / folder.expanduser() for folder in settings.folders]
        self._captures: dict[str, Capture] = {}
        self._own: dict[str, Kept] = {}
        self._full: frozenset[Path] = frozenset()
        self._rolled = asyncio.Event()
        # Two that start at once must not both find a path free.
        self._changing = asyncio.Lock()

    # What people do

    async def start(self, user: User, spec: CaptureSpec) -> CaptureInfo:
        """Start a capture; one that was stopped goes on where it has the same path and format.

        Raises:
            Forbidden: If the person may not, or the path leads out of the allowed folders.
            Conflict: If another capture or another program writes there.
            ConfigError: If the file cannot be written.
            InvalidTopic: If a topic filter is none.
            NotFound: If there is no such link.
            TooManyRequests: If too many run.
        """
        user.require_writer(_WRITES)
        try:
            series = Series.within(self._folders, spec.path, zstd=spec.zstd)
        except Forbidden as error:
            _log.warning("refused a capture of %s: %s", user.id, error.message)
            raise
        spec = spec.model_copy(update={"zstd": series.zstd})
        for each in spec.topics:
            check_visible(user, each.topic, each.link)
        async with self._changing:
            if sum(each.recording is not None for each in self._captures.values()) >= limits.MOST_CAPTURES:
                raise TooManyRequests(
                    "{most} captures are running", most=limits.MOST_CAPTURES, hint="Stop one of them."
                )
            capture = await self._claimed(user, spec, series)
            recording = self._recording(capture)
            recording.follow(spec.topics, sees=self._sees(user.id), since=time.time())
            opening = self.shared.in_thread(partial(recording.writer.write, ()))
            try:
                await asyncio.shield(opening)
            except BaseException as error:
                recording.drop()
                await asyncio.wait([opening])  # where the start is cancelled, the thread goes on
                is_known = capture.row.id in self._captures
                await self.shared.in_thread(partial(recording.writer.discard, keep=is_known))
                if isinstance(error, Forbidden):
                    _log.warning("refused a capture of %s: %s", user.id, error.message)
                if not isinstance(error, OSError):
                    raise
                raise ConfigError(
                    "{path} cannot be written: {reason}",
                    path=series.path,
                    reason=(error.strerror or str(error)).lower(),
                    hint="Check the folder's owner and its rights, and the disk.",
                ) from None
            capture.row.is_stopped, capture.row.spec = False, spec.model_dump(mode="json")
            self._captures[capture.row.id] = capture
            capture.begin(recording, self.tasks)
        await self.states.change(self._captures, capture, "started")
        return await self._info(capture)

    async def stop(self, user: User, capture: str, *, of_all: bool = False) -> CaptureInfo:
        """Stop a capture; its files stay, and it goes on when it is started again.

        Raises:
            NotFound: If this person has no such capture.
            Forbidden: If the person may not, or it is the hub's own.
        """
        user.require_writer()
        found = self._find(user, capture, of_all)
        if not found.row.owner:
            raise Forbidden(
                "{capture!r} records what watchers see, for their tests",
                capture=capture,
                hint="It keeps little, and deletes the oldest of it by itself. "
                "record_days = 0 in [watchers] of strawberry.toml turns it off.",
            )
        async with self._changing:
            await found.end()
            was_stopped, found.row.is_stopped = found.row.is_stopped, True
        if not was_stopped:
            await self.states.change(self._captures, found, "stopped")
        return await self._info(found)

    async def hand_over(self, user: str, heir: str) -> None:
        """Stop the captures of a person who was removed, and give them to an admin; their files stay."""
        async with self._changing:
            for capture in [each for each in self._captures.values() if each.row.owner == user]:
                await capture.end()
                await self.states.retract(capture)
                capture.row.owner, capture.row.is_stopped = heir, True
        await self.states.save(self._captures)

    async def list(self, user: User, *, of_all: bool = False) -> list[CaptureInfo]:
        """List the captures that a person sees, the oldest first."""
        own = [each for each in self._captures.values() if of_all or each.row.owner == user.id]
        return await self.states.infos(own)

    async def get(self, user: User, capture: str, *, of_all: bool = False) -> CaptureInfo:
        """Return one capture.

        Raises:
            NotFound: If this person has no such capture.
        """
        return await self._info(self._find(user, capture, of_all))

    def series_of(self, user: User, capture: str, *, of_all: bool = False) -> Series:
        """Return where the files of a capture are.

        Raises:
            NotFound: If this person has no such capture.
        """
        return self._find(user, capture, of_all).series

    async def prompt_part(self, asked: Asked) -> PromptPart | None:
        """Return what the prompt says of a person's captures: those that run."""
        own = [each for each in self._captures.values() if each.row.owner == asked.user.id and each.recording]
        lines = [Prompt(f"{each.row.id} to {render_name(each.spec.path)} ({each.state})") for each in own]
        return list_part("Captures", lines)

    def without_values(self) -> Iterator[tuple[str, str, str]]:
        """Iterate over those that run and get nothing of a topic: owner, id, and why."""
        for each in self._captures.values():
            if each.row.owner and each.recording and (problem := each.refusal(self.shared.feed)):
                yield each.row.owner, each.row.id, problem

    # What other parts do

    def read(
        self, user: User, capture: str, *, of_all: bool = False, since: float | None = None
    ) -> Iterator[Sample | Gap]:
        """Read a capture, oldest first; blocks.

        Raises:
            NotFound: If this person has no such capture.
            Conflict: If it is a stream of bytes.
        """
        found = self._find(user, capture, of_all)
        if not FORMATS[found.spec.format].is_series:
            raise Conflict(
                "{capture!r} is {format}, a stream of bytes and no series of values",
                capture=capture,
                format=found.spec.format,
                hint="A test takes a capture with values, such as jsonl.",
            )
        return read_capture(found.series.path, since=since)

    def recorded(self, topics: Collection[TopicChoice], since: float) -> Iterator[Sample | Gap]:
        """Read what exact captures hold of these topics, oldest first and each message once; blocks.

        Args:
            since: Unix seconds.
        """
        paths = [
            each.series.path
            for each in list(self._captures.values())
            if FORMATS[each.spec.format].is_exact and each.spec.has(topics)
        ]
        return merged(paths, topics, since=since)

    async def record(
        self, name: str, topics: Collection[TopicChoice], *, keep_days: float, keep_bytes: int
    ) -> None:
        """Record these topics in the hub's own directory; none of them to end that.

        Args:
            name: Of the recording, known to admins as a capture.
        """
        async with self._changing:
            series = Series.within((self.settings.directory / "recordings",), f"{name}.jsonl", zstd=True)
            # Files that are written no more go when they are old, at once where nothing is to be kept.
            self._own[name] = Kept(series, keep_days=keep_days)
            if not topics:
                if (ended := self._captures.pop(name, None)) is not None:
                    await ended.end()
                return
            spec = CaptureSpec(
                topics=tuple(topics),
                path=series.parts[-1],
                zstd=True,
                max_bytes=max(1_000, keep_bytes // limits.OWN_FILES),
                max_files=limits.OWN_FILES,
                max_age_s=keep_days * 86_400 / limits.OWN_FILES,
                keep_days=keep_days,
            )
            if (known := self._captures.get(name)) is not None and known.recording is not None:
                known.recording.follow(topics, sees=_sees_all, since=time.time())
                known.spec = spec
                return
            capture = self._captures[name] = Capture(self._row(name, "", spec, series), spec, series)
            await self._begin(capture, _sees_all)

    # How it works

    async def resume(self) -> None:
        """Go on with the captures that ran when the hub was stopped."""
        own = select(CaptureRow).where(CaptureRow.instance == self.settings.instance)
        rows = await self.registry.store.read(
            lambda session: list(session.exec(own.order_by(col(CaptureRow.created_at))))
        )
        for capture in readable(rows, Capture.of):
            row, root = capture.row, Path(capture.row.root)
            self._captures[row.id] = capture
            if row.is_stopped:
                continue
            try:
                (await self.registry.accounts.get(row.owner)).require_writer(_WRITES)
                if root not in self._folders:
                    raise Forbidden("{folder} is no longer a folder for captures", folder=root)
                await self._begin(capture, self._sees(row.owner))
            except StrawberryError as error:
                capture.problem = error.message
                _log.error("the capture %s cannot go on: %s", row.id, error.message)

    async def tidy(self) -> None:
        """Keep the budgets, and store and publish counts, until cancelled."""
        while True:
            await happens(self._rolled, within_s=limits.FULL_LOOK_S if self._full else limits.CAPTURES_SAVE_S)
            self._rolled.clear()
            await self._end_of_guests()
            kept = self._own | {name: each.kept for name, each in self._captures.items()}
            left, self._full = await self.shared.in_thread(
                partial(clean_up, kept, self.settings.captures, now=time.time())
            )
            for name in kept.keys() - {file.capture for file in left}:
                capture = self._captures.get(name)
                if capture is None or capture.state != "stopped":
                    continue
                if await self.shared.in_thread(capture.is_gone):
                    await self.states.forget(self._captures.pop(name))
            await self.states.save(self._captures)

    async def _end_of_guests(self) -> None:
        """Stop the captures of people who may only look by now."""
        for each in [each for each in self._captures.values() if each.row.owner and each.recording]:
            try:
                (await self.registry.accounts.get(each.row.owner)).require_writer(_WRITES)
            except StrawberryError as error:
                async with self._changing:
                    await each.end()
                    each.row.is_stopped, each.problem = True, error.message
                await self.states.change(self._captures, each, "stopped")

    async def publish(self) -> None:
        """Publish the state of every capture, after each connect."""
        for each in self._captures.values():
            each.published = None
        await self.states.save(self._captures)

    async def close(self) -> None:
        """Write all that came, and go on at the next start."""
        for each in self._captures.values():
            if each.recording is not None:
                each.recording.end()
        for each in self._captures.values():
            await each.end()
        await self.states.save(self._captures)

    async def _claimed(self, user: User, spec: CaptureSpec, series: Series) -> Capture:
        """Return the capture of a path: the stopped one that was there, or a new one."""
        for known in self._captures.values():
            if not known.series.overlaps(series):
                continue
            same = (known.series, known.spec.format, known.row.owner) == (series, spec.format, user.id)
            if known.row.is_stopped and same:
                return Capture(known.row, spec, series)
            raise Conflict(
                "the capture {capture!r} writes to {path!r}",
                capture=known.row.id,
                path=known.spec.path,
                hint="Choose another path.",
            )
        if await self.states.files({"": Kept(series)}):
            raise Conflict(
                "there is a file {path} that no capture has written",
                path=series.path,
                hint="Choose another path.",
            )
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", "_".join(series.parts).rpartition(".")[0] or series.parts[-1])
        name, number = name[:56], 1
        while (free := name if number == 1 else f"{name}-{number}") in self._captures:
            number += 1
        return Capture(self._row(free, user.id, spec, series), spec, series)

    def _row(self, name: str, owner: str, spec: CaptureSpec, series: Series) -> CaptureRow:
        return CaptureRow(
            id=name,
            instance=self.settings.instance,
            owner=owner,
            spec=spec.model_dump(mode="json"),
            root=str(series.root),
            created_at=now(),
        )

    def _recording(self, capture: Capture) -> Recording:
        spec, root = capture.spec, capture.series.root
        settings = self.settings.captures
        budget = min(settings.total_mb, settings.folder_mb or settings.total_mb)
        file_limits = FileLimits(
            min(spec.max_bytes, int(budget * MB / limits.BUDGET_SHARE)),
            spec.max_age_s,
            int(settings.free_mb * MB),
        )
        return Recording(
            capture.row,
            Writer(capture.series, spec.format, file_limits, begun_at=capture.row.begun_at),
            self.shared,
            is_over=lambda: root in self._full,
            on_change=partial(self.states.change, self._captures, capture),
            on_roll=self._rolled.set,
            sequence=spec.sequence,
        )

    async def _begin(
        self, capture: Capture, sees: Callable[[LinkName], Callable[[str], bool] | None]
    ) -> None:
        """Go on with a capture that has run before."""
        recording = self._recording(capture)
        files, topics = await self.states.files({capture.row.id: capture.kept}), capture.spec.topics
        written = max((file.changed for file in files), default=0.0)
        self.shared.feed.heard_until({each.link for each in topics}, written)
        recording.follow(topics, sees=sees, since=written or time.time())
        capture.begin(recording, self.tasks)

    async def _info(self, capture: Capture) -> CaptureInfo:
        return (await self.states.infos([capture]))[0]

    def _sees(self, user: str) -> Callable[[LinkName], Callable[[str], bool]]:
        return partial(visible_to, self.registry.directory, user)

    def _find(self, user: User, capture: str, of_all: bool) -> Capture:
        seen = {name: each for name, each in self._captures.items() if of_all or each.row.owner == user.id}
        found = seen.get(capture)
        if found is None:
            known = ", ".join(seen) or "none yet"
            raise NotFound(
                "there is no capture {capture!r}",
                capture=capture[:100],
                known=known,
                hint="There are: {known}.",
            )
        return found


def _sees_all(_: LinkName) -> None:
    """Allow everything to be recorded: its reader checks."""


@asynccontextmanager
async def open_captures(
    settings: HubSettings, registry: Registry, *, feed: Feed, link: Link, events: Events
) -> AsyncIterator[Captures]:
    """Record what was started, for as long as the context is open.

    Args:
        link: Of the bus, where the states are retained.
    """
    async with AsyncExitStack() as stack:
        thread = stack.enter_context(
            ThreadPoolExecutor(limits.CAPTURE_THREADS, thread_name_prefix="captures")
        )
        tasks = await stack.enter_async_context(open_tasks(contained=True))
        shared = Shared(feed, thread)
        states = CaptureStates(registry.store, shared, link, events)
        captures = Captures(settings, registry, shared=shared, states=states, tasks=tasks)
        await captures.resume()
        stack.push_async_callback(captures.close)
        stack.callback(link.on_connected(captures.publish))
        tidying = supervise(tasks, captures.tidy, name="old captures")
        stack.callback(tidying.cancel)
        await captures.publish()
        yield captures
