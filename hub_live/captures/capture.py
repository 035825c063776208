"""One capture that is known, whether it runs or not: its row, its files, and how people see it."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts import topics
from contracts.answers.live import RecordingState
from contracts.devices.presence import CaptureState
from contracts.phrases import Phrase
from hub_live.captures.budget import CaptureFile, Kept, size_of
from hub_live.captures.files.series import Series
from hub_live.captures.recording import Change, Recording
from hub_live.captures.spec import CaptureInfo, CaptureSpec
from hub_live.captures.tables import CaptureRow
from hub_live.events import EventData, NotificationData
from hub_live.events.kinds import CaptureData
from hub_live.topics import Feed


@dataclass
class Capture:
    """A capture that is known.

    Attributes:
        recording: While it runs.
        task: Runs the recording.
        problem: Why it does not run although it should.
        published: The state that is retained on the bus.
        stored: The row as it is in the database.
        device: The disk that its files were last seen on.
    """

    row: CaptureRow
    spec: CaptureSpec
    series: Series
    recording: Recording | None = None
    task: asyncio.Task[None] | None = None
    problem: str = ""
    published: CaptureState | None = None
    stored: dict[str, Any] | None = None
    device: int | None = None

    @classmethod
    def of(cls, row: CaptureRow) -> "Capture":
        """Return the capture of a row.

        Raises:
            ValueError: If it is about no folder, or nothing that can be recorded.
            InvalidTopic: If it has no name.
        """
        topics.CAPTURE.build(user=row.owner, capture=row.id)
        spec = CaptureSpec.model_validate(row.spec)
        if "\0" in row.root or not Path(row.root).is_absolute():
            raise ValueError("its root is no folder")
        return cls(row, spec, Series.within((Path(row.root),), spec.path, zstd=spec.zstd))

    def begin(self, recording: Recording, tasks: asyncio.TaskGroup) -> None:
        """Run."""
        self.recording, self.problem = recording, ""
        self.task = tasks.create_task(recording.run(), name=f"capture {self.row.id}")

    async def end(self) -> None:
        """Run no more, once all that came is written."""
        if self.recording is not None and self.task is not None:
            self.recording.end()
            await asyncio.wait([self.task])
            self.recording = self.task = None

    @property
    def state(self) -> RecordingState:
        """Return whether it runs, and if not, why."""
        if self.recording is not None:
            return self.recording.state
        return "stopped" if self.row.is_stopped else "failed"

    @property
    def kept(self) -> Kept:
        return Kept(self.series, self.state == "active", self.spec.max_files, self.spec.keep_days)

    def news(self, change: Change, problem: str) -> list[EventData]:
        """Return the events of a change; what keeps it from being written is a notification, too."""
        name = self.row.id
        news: list[EventData] = [
            CaptureData(subject=name, event=change, path=self.spec.path, problem=problem)
        ]
        if change in ("full", "failed", "resumed"):
            text = (
                Phrase("The capture cannot be written: {problem}.", problem=problem)
                if problem
                else "The capture goes on."
            )
            news.append(NotificationData(subject=name, text=text, sender="capture"))
        return news

    def is_gone(self) -> bool:
        """Return whether it has no files any more, or never had any; blocks. In doubt it has."""
        if self.device is None:
            return not (self.row.messages or self.row.gaps)
        return self.series.is_gone(self.device)

    def refusal(self, feed: Feed) -> str:
        return next(filter(None, (feed.refusal(each.topic, each.link) for each in self.spec.topics)), "")

    def described(self, files: Collection[CaptureFile], feed: Feed) -> CaptureInfo:
        """Return it as people see it.

        Args:
            files: Those that it has.
            feed: Knows what keeps messages from coming.
        """
        row, spec, recording = self.row, self.spec, self.recording
        problem = self.problem if recording is None else recording.problem or self.refusal(feed)
        return CaptureInfo(
            **spec.model_dump(),
            **row.model_dump(include={"id", "owner", "messages", "gaps", "created_at"}),
            state=self.state,
            file=str(self.series.path),
            bytes=size_of(files),
            files=len(files),
            problem=problem,
        )
