"""Payloads of MQTT messages as JSON values."""

import json
from typing import Final

from contracts.wire import Json


def decode(_topic: str, payload: bytes) -> Json:
    """Decode a payload without knowing what it is; never raises."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return blob(payload)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def encode(payload: Json | bytes) -> bytes:
    """Encode a payload to publish: bytes and text as they are, anything else as JSON."""
    if isinstance(payload, bytes):
        return payload
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False, allow_nan=False)
    return text.encode()


def blob(payload: bytes) -> Json:
    """Describe a payload that is no text: its media type and its length in bytes."""
    media = next((media for start, media in _SIGNATURES if payload.startswith(start)), _UNKNOWN)
    return {"blob": media, "bytes": len(payload)}


_UNKNOWN: Final = "application/octet-stream"
_SIGNATURES: Final = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"))
