"""What two processes must agree on: topics, messages, claims, rights and errors. No I/O."""

from functools import cache
from typing import Final

WIRE_VERSION: Final = 1
"""The version every message carries in ``v``."""


@cache
def own_version() -> str:
    """Return the version of the installed package; ``unknown`` where there is none."""
    # Here: 15 ms, which most commands do without.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("strawberry-home")
    except PackageNotFoundError:
        return "unknown"
