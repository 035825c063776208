"""Formats of captures: how a sample becomes bytes, and where a new file may begin."""

import base64
import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from pydantic_core import from_json, to_json

from agent_core.times import utc
from contracts.answers.live import LinkName
from contracts.wire import Json
from hub_live import limits
from hub_live.topics.samples import Sample

FormatName = Literal["jsonl", "csv", "raw", "h264"]


@dataclass(frozen=True)
class Missing:
    """Messages that a capture does not have.

    Attributes:
        since: Unix seconds; they came then or later.
        until: They came then or earlier.
        reason: ``connection``: nothing was heard. ``overrun``: more came than could be written.
            ``disk``: there was no room, or the file could not be written. ``sequence``: the sender's numbers
            have a hole.
        messages: How many, where that is known.
        topic: Where only one topic is concerned.
    """

    link: LinkName
    since: float
    until: float
    reason: Literal["connection", "overrun", "disk", "sequence"]
    messages: int | None = None
    topic: str | None = None

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        gap: dict[str, Json] = {"link": self.link, "since": moment(self.since), "until": moment(self.until)}
        more = {"reason": self.reason, "messages": self.messages, "topic": self.topic}
        gap.update((name, value) for name, value in more.items() if value is not None)
        return to_json({"at": moment(self.until), "gap": gap}) + b"\n"


class Format:
    """How samples are encoded; one for each open file or series of files.

    Attributes:
        is_series: Whether a file consists of lines with a topic, a time and a value each, of any number of
            topics: it can be read back and plotted. Others are the bytes of one topic.
        is_exact: Whether a line has all of a message, and gaps lines of their own.
        has_head: Whether a file is continued by what its first line says.
    """

    is_series: ClassVar[bool] = False
    is_exact: ClassVar[bool] = False
    has_head: ClassVar[bool] = False

    def encode(self, sample: Sample, *, roll: bool) -> tuple[bytes, bytes | None]:
        """Encode a sample.

        Args:
            roll: Whether a new file shall begin as soon as one may.

        Returns:
            What goes to the present file, and what a new file then begins with; None for no new file.
        """
        raise NotImplementedError

    def resume(self, head: bytes) -> None:
        """Go on with a file that begins with these bytes."""


def moment(at: float) -> str:
    return utc(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def flatten(value: Json) -> dict[str, Json]:
    """Return the fields of a decoded payload by their paths: ``state.temperature``; ``value`` for a scalar.

    Lists are returned as JSON text.
    """
    if not isinstance(value, dict):
        return {"value": _text_of(value)}
    fields: dict[str, Json] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            fields.update((f"{key}.{path}", each) for path, each in flatten(inner).items())
        else:
            fields[str(key)] = _text_of(inner)
    return fields


class _Jsonl(Format):
    """A JSON object a line: ``at``, ``topic``, ``link``, and ``payload`` or ``payload_base64``."""

    is_series = is_exact = True

    def __init__(self) -> None:
        self._second = 0
        self._begin = b""
        self._topics: dict[tuple[str, str, bool], bytes] = {}

    def encode(self, sample: Sample, *, roll: bool) -> tuple[bytes, bytes | None]:
        second, micros = divmod(int(sample.at * 1_000_000), 1_000_000)
        if second != self._second:
            # The date is formatted once a second, not ten thousand times.
            self._second, self._begin = second, f'{{"at":"{moment(second)[:-7]}'.encode()
        key = (sample.topic, sample.link, sample.retained)
        topic = self._topics.get(key) or self._topic(*key)
        line = b'%b%06dZ"%b%b}\n' % (self._begin, micros, topic, _payload(sample))
        return (b"", line) if roll else (line, None)

    def _topic(self, topic: str, link: LinkName, retained: bool) -> bytes:
        if len(self._topics) >= limits.MOST_FORMAT_TOPICS:
            self._topics.clear()
        text = b',"topic":%b,"link":%b' % (to_json(topic), to_json(link))
        known = self._topics[topic, link, retained] = text + (b',"retained":true' if retained else b"")
        return known


def _payload(sample: Sample) -> bytes:
    payload = sample.payload
    try:
        from_json(payload, allow_inf_nan=False)
    except ValueError:
        value = sample.value
    else:
        if b"\n" in payload or b"\r" in payload:
            # Line ends can only be space between tokens.
            payload = payload.replace(b"\n", b" ").replace(b"\r", b" ")
        return b',"payload":' + payload
    if isinstance(value, dict) and "blob" in value:
        return b',"payload_base64":"' + base64.b64encode(payload) + b'"'
    return b',"payload":' + json.dumps(value).encode()


class _Csv(Format):
    """A row for each message: ``at``, ``topic``, ``link``, and a column for each field of the payload.

    A field that has no column yet begins a new file with a header of its own.
    """

    is_series = has_head = True

    def __init__(self) -> None:
        self._columns: list[str] = []

    def encode(self, sample: Sample, *, roll: bool) -> tuple[bytes, bytes | None]:
        row: dict[str, Json] = {"at": moment(sample.at), "topic": sample.topic, "link": sample.link}
        others: dict[str, Json] = {}
        for name, value in flatten(sample.value).items():
            column = f"payload.{name}" if name in OWN_COLUMNS else name
            full = len(self._columns) + len(row) > limits.MOST_COLUMNS and column not in self._columns
            (others if full else row)[column] = value
        if others:
            row["others"] = json.dumps(others, ensure_ascii=False)
        new = [column for column in row if column not in self._columns]
        self._columns += new
        cells = _row([_cell(row.get(column)) for column in self._columns])
        return (b"", _row(self._columns) + cells) if new or roll else (cells, None)

    def resume(self, head: bytes) -> None:
        self._columns = next(csv.reader(io.StringIO(head.decode(errors="replace"))), [])


OWN_COLUMNS: Final = ("at", "topic", "link")


def _row(cells: list[str]) -> bytes:
    text = io.StringIO()
    # A cell with a character of the line end is quoted, "\r" as well; the files have "\n" alone.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n").encode() + b"\n"


def _cell(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _text_of(value: Json) -> Json:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


class _Raw(Format):
    """The payloads one after the other, as they are."""

    def encode(self, sample: Sample, *, roll: bool) -> tuple[bytes, bytes | None]:
        return (b"", sample.payload) if roll else (sample.payload, None)


class _H264(Format):
    """An H.264 byte stream (ITU-T H.264, annex B): files begin where a decoder can begin.

    A message may hold a picture, several, or any piece of the stream: start codes are also found where they
    are spread over two messages.
    """

    def __init__(self) -> None:
        self._end = b""
        self._last = 0
        self._parameters = bytearray()

    def encode(self, sample: Sample, *, roll: bool) -> tuple[bytes, bytes | None]:
        seen, stream = len(self._end), self._end + sample.payload
        # No whole start code is in three bytes, so none is found twice.
        self._end = stream[-3:]
        units = [(_code(stream, found.start()), found[1][0] & 0x1F) for found in _START.finditer(stream)]
        ends = [start for start, _ in units] + [len(stream)]
        if self._last in _PARAMETER_SETS:
            self._keep(stream[seen : ends[0]])
        cut, begin = None, b""
        for (start, kind), end in zip(units, ends[1:], strict=True):
            if cut is None and roll and _may_begin(kind, after=self._last):
                cut = max(start, seen)
                # What is in the file before of its start code.
                begin = stream[start:cut]
                if kind == _PICTURE:
                    begin = bytes(self._parameters) + begin
            if kind in _PARAMETER_SETS:
                if self._last not in _PARAMETER_SETS:
                    self._parameters.clear()
                self._keep(stream[start:end])
            self._last = kind
        return (sample.payload, None) if cut is None else (stream[seen:cut], begin + stream[cut:])

    def _keep(self, piece: bytes) -> None:
        if len(self._parameters) < limits.MOST_PARAMETERS:
            self._parameters += piece


_START: Final = re.compile(rb"\x00\x00\x01(.)", re.DOTALL)
_PICTURE: Final = 5
"""A slice of a picture from which decoding can begin (IDR)."""
_PARAMETER_SETS: Final = (7, 8)
"""Sequence and picture parameter set."""


def _code(stream: bytes, start: int) -> int:
    # A zero byte in front of a start code belongs to it.
    return start - 1 if start and not stream[start - 1] else start


def _may_begin(kind: int, *, after: int) -> bool:
    if kind == _PICTURE:
        # Neither a further slice of the picture, nor one whose parameter sets stand right before it.
        return after not in (_PICTURE, *_PARAMETER_SETS)
    return kind == _PARAMETER_SETS[0] and after not in _PARAMETER_SETS


FORMATS: Final[Mapping[FormatName, type[Format]]] = {
    "jsonl": _Jsonl,
    "csv": _Csv,
    "raw": _Raw,
    "h264": _H264,
}
