"""Payloads of MQTT messages as JSON values, and back.

A payload is written by whatever publishes: decoding never raises, and what it gives is finite JSON of a
bounded depth. What has no sensible value is described instead: ``{"blob": "image/jpeg", "bytes": 48213}``.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from contracts.access import covers
from contracts.wire import Json

MAX_DEPTH: Final = 64
"""Levels of lists and objects; deeper JSON is given as the text that it is."""

MAX_PARTS: Final = 50_000
"""Lists and objects of one payload, which take 50 ms; with more it stays text. Zigbee2MQTT needs 30,000 for a
hundred devices."""

_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:0|[1-9]\d{0,30})(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII
)
"""Numbers that are none of JSON, as +21.5 and .5; not 007, which is a name."""
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_EXACT: Final = 18
"""Digits of an integer that every reader can hold."""

Decoder = Callable[[bytes], Json]
"""Makes a value of a payload whose format is known; None where it is not of this format."""


class Decoding:
    """Decodes payloads; by the pattern of their topics where one is set, else by what they look like.

    Args:
        patterns: Topic filters with their decoders; the first one that matches counts.
    """

    def __init__(self, patterns: Sequence[tuple[str, Decoder]] = ()) -> None:
        self._patterns = tuple(patterns)
        self._decoder = lru_cache(4_096)(self._find)
        # All who follow a topic want the value of the same message. What is kept longer is not decoded: it
        # may be many times as large as the payload.
        self._last: tuple[str, bytes, Json] = ("", b"", None)

    def __call__(self, topic: str, payload: bytes) -> Json:
        """Return the value of a payload, which is not to be changed: others may get the same object."""
        last = self._last
        if last[1] is payload and last[0] == topic:
            return last[2]
        decode = self._decoder(topic) if self._patterns else guess
        value = decode(payload)
        self._last = (topic, payload, value)
        return value

    def _find(self, topic: str) -> Decoder:
        return next((decoder for pattern, decoder in self._patterns if covers(pattern, topic)), guess)


def guess(payload: bytes) -> Json:
    """Return the value of a payload of an unknown format; None for an empty one."""
    if not payload:
        return None
    media = media_type(payload)
    if media is not None:
        return blob(payload, media)
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return blob(payload)
    if text[0] in '{["-0123456789tfn \t\r\n':
        opened = text.count("[") + text.count("{")
        if opened > MAX_PARTS:
            return text
        try:
            value = _JSON.decode(text)
            if "\\u" in text and _SURROGATE.search(text):
                # Half of a pair has no place in UTF-8, and so in no answer and no event.
                value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError):
            pass
        else:
            return value if opened <= MAX_DEPTH or _is_shallow(value) else text
    stripped = text.strip()
    if len(stripped) < 70 and _NUMBER.fullmatch(stripped):
        return _finite(stripped)
    return blob(payload) if _CONTROL.search(text) else text


def blob(payload: bytes, media: str | None = None) -> Json:
    return {"blob": media or "application/octet-stream", "bytes": len(payload)}


def media_type(payload: bytes) -> str | None:
    """Return the media type of an image, a film, a sound or an archive by its first bytes."""
    start = payload[:16]
    for at, signature, media in _SIGNATURES:
        if start.startswith(signature, at):
            return media
    return None


def encode(payload: Json | bytes) -> bytes:
    """Encode a payload to publish: bytes and text as they are, anything else as JSON.

    Raises:
        ValueError: If it holds a number that JSON has not.
    """
    if isinstance(payload, bytes):
        return payload
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False, allow_nan=False)
    return text.encode()


_SIGNATURES: Final = (
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\0\0\0\1", "video/h264"),
    (0, b"\0\0\1", "video/h264"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\3\4", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
)


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _integer(text: str) -> float | int | None:
    return int(text) if len(text) <= _EXACT else _finite(text)


def _no_number(_: str) -> None:
    """Make NaN and Infinity, which some sensors write, null."""


_JSON: Final = json.JSONDecoder(parse_float=_finite, parse_int=_integer, parse_constant=_no_number)


def _is_shallow(value: Json) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return True
    return False
