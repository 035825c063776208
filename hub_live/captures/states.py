"""States of captures: with their files, stored, retained on the bus and told as events."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sqlmodel import Session, col, delete

from bus.link import Link
from contracts import topics
from contracts.devices.presence import CaptureState
from contracts.errors import Disconnected, StorageError
from hub_live.captures.budget import CaptureFile, Kept, capture_files
from hub_live.captures.capture import Capture
from hub_live.captures.recording import Change, Shared
from hub_live.captures.spec import CaptureInfo
from hub_live.captures.tables import CaptureRow
from hub_live.events import Events
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class CaptureStates:
    """Describes captures, and stores and publishes what has changed of them.

    Attributes:
        link: Of the bus, where the states are retained.
    """

    store: Store
    shared: Shared
    link: Link
    events: Events

    async def files(self, captures: Mapping[str, Kept]) -> Sequence[CaptureFile]:
        return await self.shared.in_thread(partial(capture_files, captures))

    async def infos(self, captures: Sequence[Capture]) -> list[CaptureInfo]:
        """Return captures as people see them."""
        own: dict[str, list[CaptureFile]] = {each.row.id: [] for each in captures}
        for file in await self.files({each.row.id: each.kept for each in captures}):
            own[file.capture].append(file)
        for each in captures:
            if files := own[each.row.id]:
                each.device = files[0].device
        return [each.described(own[each.row.id], self.shared.feed) for each in captures]

    async def save(self, captures: Mapping[str, Capture]) -> None:
        """Store and publish what has changed of the captures that are known."""
        rows = []
        for each in list(captures.values()):
            stored = each.row.model_dump()
            if each.row.owner and stored != each.stored:
                rows.append(CaptureRow(**stored))
                each.stored = stored
        if rows:
            await self._write(lambda session: [session.merge(row) for row in rows])
        for info in await self.infos(list(captures.values())):
            if (capture := captures.get(info.id)) is None:
                continue
            fields = info.model_dump(include={"state", "messages", "gaps", "files", "bytes", "problem"})
            state = CaptureState(name=info.id, at=now(), **fields)
            before = capture.published
            # The time alone is no news.
            if before is None or state.model_copy(update={"at": before.at}) != before:
                await self._retain(capture, state.model_dump_json().encode())
                capture.published = state

    async def change(self, captures: Mapping[str, Capture], capture: Capture, change: Change) -> None:
        """Store and publish the change of one of the captures, and tell its owner."""
        problem, owner = capture.recording.problem if capture.recording is not None else "", capture.row.owner
        level = logging.ERROR if problem else logging.INFO
        _log.log(level, "the capture %s is %s: %s", capture.row.id, change, problem or "no problem")
        await self.save(captures)
        if owner:
            await self.events.publish_all([(owner, data) for data in capture.news(change, problem)])

    async def retract(self, capture: Capture) -> None:
        """Empty the retained state of a capture that its owner has no more."""
        await self._retain(capture, b"")
        capture.published = None

    async def forget(self, capture: Capture) -> None:
        """Delete what is stored and published of a capture."""
        name = capture.row.id
        await self._write(lambda session: session.exec(delete(CaptureRow).where(col(CaptureRow.id) == name)))
        await self.retract(capture)

    async def _write(self, work: Callable[[Session], object]) -> None:
        """Write, or log why not: it is written with the next change."""
        try:
            await self.store.write(work)
        except StorageError as error:
            _log.error("the state of captures cannot be stored: %s", error)

    async def _retain(self, capture: Capture, payload: bytes) -> None:
        if not capture.row.owner:
            return  # the hub's own belongs to no person
        topic = topics.CAPTURE.build(user=capture.row.owner, capture=capture.row.id)
        with suppress(Disconnected):  # all are published again after the next connect
            await self.link.publish(topic, payload, retain=True)
