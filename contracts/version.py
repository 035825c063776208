"""The version of this program."""

from functools import cache


@cache
def own_version() -> str:
    """Return what the installed package says; ``unknown`` where there is none."""
    # Here: 15 ms, which most commands do without.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("strawberry-home")
    except PackageNotFoundError:
        return "unknown"
