"""Ids that sort by the time they were made."""

import secrets
import time
import uuid


def uuid7() -> str:
    """Make a UUIDv7 (RFC 9562, section 5.7): 48 bits of Unix milliseconds, then random bits."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def time_of(identifier: str) -> float:
    """Return the time in a UUIDv7, in seconds since 1970."""
    return int(identifier.replace("-", "")[:12], 16) / 1000
