"""The specification of a capture, and its description for people."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from contracts.access import overlaps
from contracts.answers.live import CaptureSummary
from contracts.topics import is_exact
from contracts.wire import Strict
from hub_live import limits
from hub_live.captures.files.formats import FORMATS, FormatName
from hub_live.topics.samples import TopicChoice


class CaptureSpec(Strict):
    """Topics to record, and the file to record them in.

    Attributes:
        topics: Topic filters; a text is one on the bus.
        path: Relative to the first allowed folder, or absolute in one of them.
        format: By default that of the path's suffix, or else ``jsonl``.
        max_bytes: A new file begins beyond that size.
        max_files: The oldest file is removed when there are more.
        max_age_s: A new file begins when the present one is as old.
        keep_days: Older files are removed; None for what the settings say.
        sequence: A field of the payloads that grows by one with each message: a hole in it is a gap.
    """

    topics: Annotated[tuple[TopicChoice, ...], Field(min_length=1, max_length=limits.MOST_CAPTURE_TOPICS)]
    path: Annotated[str, Field(max_length=4_000)]
    format: FormatName = "jsonl"
    zstd: bool = False
    max_bytes: Annotated[int, Field(ge=1_000)] = limits.CAPTURE_FILE_BYTES
    max_files: Annotated[int, Field(ge=1)] | None = None
    max_age_s: Annotated[float, Field(ge=1)] | None = None
    keep_days: Annotated[float, Field(gt=0)] | None = None
    sequence: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _format_by_name(cls, given: object) -> object:
        if isinstance(given, dict) and "format" not in given and isinstance(given.get("path"), str):
            suffix = Path(given["path"].removesuffix(".zst")).suffix.removeprefix(".")
            return {**given, "format": suffix} if suffix in FORMATS else given
        return given

    @field_validator("topics", mode="before")
    @classmethod
    def _choices(cls, given: object) -> object:
        if not isinstance(given, list | tuple):
            return given
        return [{"topic": each} if isinstance(each, str) else each for each in given]

    def has(self, topics: Collection[TopicChoice]) -> bool:
        """Return whether messages of one of these topics are recorded."""
        return any(
            own.link == asked.link and overlaps(own.topic, asked.topic)
            for own in self.topics
            for asked in topics
        )

    @model_validator(mode="after")
    def _one_stream(self) -> "CaptureSpec":
        first = self.topics[0].topic
        if not FORMATS[self.format].is_series and (len(self.topics) > 1 or not is_exact(first)):
            raise ValueError(
                f"{self.format} records one topic without wildcards: payloads are not told apart"
            )
        return self


class CaptureInfo(CaptureSummary, CaptureSpec):
    """A capture as people see it: what was asked for, and what came of it.

    Attributes:
        file: Where the first file is on the hub.
        messages: How many were written.
        files: How many there are.
        bytes: What they take on the disk.
        gaps: How many are written down.
        problem: Why it is ``full`` or ``failed``, or what keeps messages from coming.
    """
