"""What two processes must agree on: topics, messages, claims, rights and errors. No I/O."""

from typing import Final

WIRE_VERSION: Final = 1
"""The version every message carries in ``v``."""
