"""Ids of the work that a task does, by which lines of logs are joined: of a request, a turn and a call.

They cross between hub and spoke: a call has its id, and those of the turn and the request that led to it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_IDS: Final[ContextVar[Mapping[str, str]]] = ContextVar("correlation", default=MappingProxyType({}))


def ids() -> Mapping[str, str]:
    """Return the ids of what the present task works for, by ``request``, ``turn`` and ``call``."""
    return _IDS.get()


@contextmanager
def correlated(**more: str | None) -> Iterator[None]:
    """Work for these ids, too, within the block and in the tasks that it starts."""
    before = _IDS.get()
    _IDS.set({**before, **{name: value for name, value in more.items() if value}})
    try:
        yield
    finally:
        _IDS.set(before)
