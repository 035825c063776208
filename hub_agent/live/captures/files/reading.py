"""Reading captures back, for back-tests and plots."""

import base64
import heapq
import json
import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import zstandard

from contracts.access import covers
from contracts.errors import NotFound
from contracts.wire import Json
from hub_agent.live.captures.files.series import Series, read_lines
from hub_agent.live.captures.spec import TopicChoice
from hub_agent.live.topics.samples import Gap, Sample

_log = logging.getLogger(__name__)

_SUFFIX: Final = ".zst"


def read_capture(path: Path, *, since: float | None = None) -> Iterator[Sample | Gap]:
    """Read what a jsonl capture has recorded, oldest first.

    Lines that are no whole record are skipped: a crash may have torn the last one.

    Args:
        path: The capture, whose files are read in their order, or one of its rolled files.
        since: Unix seconds; files that were completed earlier are not opened. None for all.

    Raises:
        NotFound: If there is no such file.
    """
    for line in lines_of(path, since):
        try:
            record = json.loads(line)
            yield _gap(record["gap"]) if "gap" in record else _sample(record)
        except (ValueError, KeyError, TypeError, RecursionError):
            _log.debug("skipped a line of %s that is no record", path)


def merged(paths: Iterable[Path], topics: Collection[TopicChoice], *, since: float) -> Iterator[Sample | Gap]:
    """Read several jsonl captures as one, oldest first, each message once.

    Args:
        topics: Filters with their links; nothing else is returned.
        since: Unix seconds.
    """
    links = {each.link for each in topics}

    def matching(path: Path) -> Iterator[Sample | Gap]:
        # Where nothing was recorded yet, there is no file.
        with suppress(NotFound):
            for item in read_capture(path, since=since):
                if isinstance(item, Gap):
                    wanted = item.link in links
                else:
                    wanted = any(each.link == item.link and covers(each.topic, item.topic) for each in topics)
                if wanted and _at(item) >= since:
                    yield item

    seen: set[tuple[str, str, bytes]] = set()
    at = 0.0
    for item in heapq.merge(*map(matching, paths), key=_at):
        if isinstance(item, Sample):
            if item.at != at:
                at = item.at
                seen.clear()
            if (key := (item.link, item.topic, item.payload)) in seen:
                continue
            seen.add(key)
        yield item


def _at(item: Sample | Gap) -> float:
    if isinstance(item, Sample):
        return item.at
    return item.since if item.until is None else item.until


def lines_of(path: Path, since: float | None) -> Iterator[bytes]:
    """Read the lines of the files of a capture, but for those that were completed earlier."""
    for file in files_of(path):
        if since is not None and file.stat().st_mtime < since:
            continue
        with file.open("rb") as opened:
            try:
                yield from read_lines(opened, zstd=file.suffix == _SUFFIX)
            except zstandard.ZstdError as error:
                _log.warning("the rest of %s cannot be read: %s", file, error)


def files_of(path: Path) -> list[Path]:
    """Return the files of a capture, oldest first, or the one rolled file that is named."""
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        names = []
    name = path.name.removesuffix(_SUFFIX)
    for zstd in (False, True):
        found = Series(path.parent, (name,), zstd).numbers(names)
        if found:
            return [path.with_name(each) for each in found.values()]
    raise NotFound(f"there is no file {path}", hint="'strawberry captures list' shows the files of captures.")


def _sample(record: dict[str, Json]) -> Sample:
    if "payload_base64" in record:
        payload = base64.b64decode(record["payload_base64"])
    else:
        payload = json.dumps(record["payload"]).encode()
    return Sample(
        record["link"],
        record["topic"],
        seconds(record["at"]),
        payload,
        bool(record.get("retained")),
        recorded=True,
    )


def _gap(gap: dict[str, Json]) -> Gap:
    return Gap(gap["link"], seconds(gap["since"]), seconds(gap["until"]))


def seconds(at: str | float) -> float:
    """Return the Unix seconds of a recorded time."""
    return datetime.fromisoformat(at).astimezone(UTC).timestamp() if isinstance(at, str) else float(at)
