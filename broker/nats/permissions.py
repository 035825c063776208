"""Rights of `contracts.access` as NATS writes them: subjects, of which only those in a list are allowed."""

from collections.abc import Iterator
from typing import Any

from contracts.access import Principal, allowed, rights
from contracts.errors import Forbidden

__all__ = ["permissions", "subjects"]


def permissions(principal: Principal) -> dict[str, Any]:
    """Return the permissions of a user JWT.

    NATS delivers what it lets a client subscribe to: there is no right to subscribe to more, and the filter
    ``#`` of a reader, of whom the other brokers then filter what is delivered, is refused.

    Raises:
        Forbidden: If a right cannot be written as a subject.
    """
    given = rights(principal)
    published = [each.filter for each in given if each.action == "publish"]
    heard = [
        each.filter for each in given if each.action == "receive" and allowed(given, "subscribe", each.filter)
    ]
    return {"pub": _only(published), "sub": _only(heard)}


def _only(filters: list[str]) -> dict[str, list[str]]:
    # Topics of the broker's own are none of NATS.
    allow = [subject for each in filters if not each.startswith("$") for subject in subjects(each)]
    # An empty list would allow everything.
    return {"allow": allow} if allow else {"deny": [">"]}


def subjects(filter_: str) -> Iterator[str]:
    """Return the subjects of a topic filter: ``a/#`` is ``a`` and ``a.>``.

    Raises:
        Forbidden: If a level has characters that mean something else in a subject.
    """
    *levels, last = [_token(each) for each in filter_.split("/")]
    if last == ">" and levels:
        yield ".".join(levels)
    yield ".".join((*levels, last))


def _token(level: str) -> str:
    if level in ("+", "#"):
        return {"+": "*", "#": ">"}[level]
    if not level or not level.isprintable() or any(each in " *>" for each in level):
        raise Forbidden(f"the level {level!r} of a topic cannot be used on NATS")
    # The server's own way to write a dot, which separates levels there.
    return level.replace(".", "//")
