"""Reading captures back, for back-tests and plots."""

import base64
import csv
import heapq
import json
import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final, cast

import zstandard

from contracts.access import covers
from contracts.answers.live import LinkName
from contracts.errors import NotFound
from contracts.topics import is_exact
from contracts.wire import Json
from hub_live.captures.files.formats import OWN_COLUMNS
from hub_live.captures.files.series import Series, read_lines
from hub_live.topics.decoding import guess
from hub_live.topics.samples import Gap, Sample, TopicChoice

_log = logging.getLogger(__name__)

_SUFFIX: Final = ".zst"
_ROUNDED_S: Final = 2e-6
"""By how much a recorded time differs at most from the one that was heard."""
_HEADER: Final = ",".join(OWN_COLUMNS).encode()

csv.field_size_limit(1 << 28)  # A cell holds a whole payload.


def read_capture(path: Path, *, since: float | None = None) -> Iterator[Sample | Gap]:
    """Read what a jsonl or csv capture has recorded, oldest first.

    Lines that are no whole record are skipped: a crash may have torn the last one. A csv file does not tell
    the text ``5`` from the number, and the empty text from null.

    Args:
        path: The capture, whose files are read in their order, or one of its rolled files.
        since: Unix seconds; files that were completed earlier are not opened. None for all.

    Raises:
        NotFound: If there is no such file.
    """
    lines = _lines_of(path, since)
    first = next(lines, b"")
    if not first.startswith(_HEADER):
        yield from _records(chain((first,), lines))
        return
    gaps = path.with_name(f"{path.name.removesuffix(_SUFFIX)}.gaps.jsonl")
    missing = _records(_lines_of(gaps, since)) if gaps.exists() else ()
    yield from heapq.merge(_rows(chain((first,), lines)), missing, key=_at)


def _records(lines: Iterable[bytes]) -> Iterator[Sample | Gap]:
    for line in lines:
        try:
            record = json.loads(line)
            yield _gap(record["gap"]) if "gap" in record else _sample(record)
        except (ValueError, KeyError, TypeError, RecursionError):
            _log.debug("skipped a line of a capture that is no record")


def _rows(lines: Iterable[bytes]) -> Iterator[Sample]:
    columns: list[str] = []
    for cells in _cells(lines):
        if tuple(cells[:3]) == OWN_COLUMNS:
            columns = cells[3:]
        elif len(cells) == len(columns) + 3:
            values = {
                name: guess(cell.encode()) for name, cell in zip(columns, cells[3:], strict=True) if cell
            }
            topic, link = cells[1], cast("LinkName", cells[2])
            with suppress(ValueError):
                yield Sample(link, topic, _seconds(cells[0]), _payload(values), recorded=True)


def _cells(lines: Iterable[bytes]) -> Iterator[list[str]]:
    # A line without its end was torn by a crash.
    reader = csv.reader(line.decode(errors="replace") for line in lines if line.endswith(b"\n"))
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            _log.debug("skipped a line of a capture that is no record: %s", error)


def _payload(values: dict[str, Json]) -> bytes:
    """Return a payload that has these fields; see `flatten`."""
    others = values.pop("others", None)
    values |= others if isinstance(others, dict) else {}
    if values.keys() <= {"value"}:
        return json.dumps(values.get("value")).encode()
    payload: dict[str, Json] = {}
    for name, value in values.items():
        own = name.removeprefix("payload.")
        *path, last = [own] if own in OWN_COLUMNS else name.split(".")
        inner = payload
        for step in path:
            below = inner.setdefault(step, {})
            inner = below if isinstance(below, dict) else {}
        inner[last] = value
    return json.dumps(payload).encode()


def merged(paths: Iterable[Path], topics: Collection[TopicChoice], *, since: float) -> Iterator[Sample | Gap]:
    """Read several captures as one, oldest first, each message once.

    Args:
        topics: Filters with their links; nothing else is returned.
        since: Unix seconds.
    """
    links = {each.link for each in topics}
    # Watchers follow hundreds of single topics, and a recording has them in each line.
    exact = {(each.link, each.topic) for each in topics}
    wild = [each for each in topics if not is_exact(each.topic)]

    def matching(path: Path) -> Iterator[Sample | Gap]:
        # Where nothing was recorded yet, there is no file.
        with suppress(NotFound):
            for item in read_capture(path, since=since):
                if isinstance(item, Gap):
                    wanted = item.link in links
                else:
                    wanted = (item.link, item.topic) in exact or any(
                        each.link == item.link and covers(each.topic, item.topic) for each in wild
                    )
                if wanted and _at(item) >= since:
                    yield item

    return each_once(heapq.merge(*map(matching, paths), key=_at))


def each_once(items: Iterable[Sample | Gap]) -> Iterator[Sample | Gap]:
    """Leave out what was recorded twice, or is both recorded and in memory."""
    last: dict[tuple[str, str], Sample] = {}
    for item in items:
        if isinstance(item, Sample):
            before = last.get((item.link, item.topic))
            # A recorded payload is JSON with other blanks.
            if before is not None and item.at - before.at < _ROUNDED_S and before.value == item.value:
                continue
            last[item.link, item.topic] = item
        yield item


def _at(item: Sample | Gap) -> float:
    if isinstance(item, Sample):
        return item.at
    return item.since if item.until is None else item.until


def _lines_of(path: Path, since: float | None) -> Iterator[bytes]:
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
    raise NotFound(
        "there is no file {file}", file=path, hint="'strawberry captures list' shows the files of captures."
    )


def _sample(record: dict[str, Json]) -> Sample:
    if "payload_base64" in record:
        payload = base64.b64decode(record["payload_base64"])
    else:
        payload = json.dumps(record["payload"]).encode()
    return Sample(
        record["link"],
        record["topic"],
        _seconds(record["at"]),
        payload,
        bool(record.get("retained")),
        recorded=True,
    )


def _gap(gap: dict[str, Json]) -> Gap:
    return Gap(gap["link"], _seconds(gap["since"]), _seconds(gap["until"]))


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
