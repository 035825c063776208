"""The parts of a watcher's condition and times, as controls show them; and the code of these parts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from contracts.errors import PredicateError
from hub_live.watchers.definition import WatchedValue
from hub_live.watchers.predicates import parse
from hub_live.watchers.predicates.clock import WEEKDAYS, time_text
from hub_live.watchers.predicates.syntax import Node

_DAYS: Final = ("day", "weekday", "weekend", *WEEKDAYS)
_AT: Final = re.compile(rf"every ({'|'.join(_DAYS)}) at (\S.*)")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Part:
    """What one value must be.

    Attributes:
        relation: An operator; or ``on``, ``off`` or ``changed``, without a limit.
    """

    name: str = ""
    relation: str = ">"
    limit: str = ""


@dataclass(frozen=True)
class Condition:
    """Parts that must all hold.

    Attributes:
        only: ``between``, ``down`` or ``up``; empty for any time.
        held: For how long, as ``10m``.
    """

    parts: tuple[Part, ...] = ()
    only: str = ""
    begin: str = ""
    end: str = ""
    held: str = ""


def condition_of(predicate: str, topics: Mapping[str, WatchedValue]) -> Condition | None:
    """Return the parts of a predicate; None where it has others."""
    try:
        parsed = parse(predicate, topics)
    except PredicateError:
        return None
    held = f"{parsed.for_s:.0f}s" if parsed.for_s else ""
    if parsed.for_s and parsed.for_s % 60 == 0:
        held = f"{parsed.for_s / 60:.0f}m" if parsed.for_s % 3_600 else f"{parsed.for_s / 3_600:.0f}h"
    root = parsed.root
    nodes = root.parts if root.op == "and" and between(root) is None else (root,)
    parts: list[Part] = []
    times = ("", "", "")
    for node in nodes:
        is_sun = node.op == "==" and node.parts[0].op == "clock" and node.parts[0].value == "sun"
        if (period := between(node)) is not None:
            times = ("between", *period)
        elif is_sun:
            times = (str(node.parts[1].value), "", "")
        elif (part := _part_of(node)) is not None:
            parts.append(part)
        else:
            return None
    return Condition(tuple(parts), *times, held)


def predicate_of(condition: Condition) -> str:
    """Return the predicate of these parts."""
    made = [_code(each) for each in condition.parts]
    if condition.only == "between":
        made.append(f'time between "{condition.begin}" and "{condition.end}"')
    elif condition.only:
        made.append(f'sun == "{condition.only}"')
    held = f' for "{condition.held}"' if condition.held and made else ""
    return " and ".join(made) + held


def times_of(schedule: str) -> tuple[str, str]:
    """Return when a schedule comes and its time: ``weekday`` and ``7``; ``code`` where it has other parts."""
    if found := _AT.fullmatch(schedule):
        return found[1], found[2]
    if schedule in ("sunset", "sunrise"):
        return schedule, ""
    return ("code", schedule) if schedule else ("value", "")


def schedule_of(begins: str, time: str) -> str | None:
    """Return the schedule of what `times_of` returns."""
    if begins in _DAYS:
        return f"every {begins} at {time}"
    return None if begins == "value" else time if begins == "code" else begins


def between(node: Node) -> tuple[str, str] | None:
    """Return the two times that the clock is between, where that is what a condition says."""
    ends = [(each.op, each.parts[0].op, each.parts[-1].value) for each in node.parts if each.parts]
    match ends:
        case [(">=", "clock", float(begin)), ("<", "clock", float(end))]:
            return time_text(begin), time_text(end)
    return None


def _part_of(node: Node) -> Part | None:
    match node:
        case Node(op="name"):
            return Part(str(node.value), "on")
        case Node(op="not", parts=(Node(op="name", value=name),)):
            return Part(str(name), "off")
        case Node(op="changed", window_s=None):
            return Part(str(node.value), "changed")
        case Node(parts=(Node(op="name", value=name), Node(op="constant", value=limit))):
            if isinstance(limit, bool):
                return Part(str(name), "on" if limit is (node.op == "==") else "off")
            if not isinstance(limit, str):
                # All of its digits: what is written by ``:g`` would be another condition.
                return Part(str(name), node.op, f"{Decimal(repr(limit)):f}".removesuffix(".0"))
            # A text that looks like a number would become one.
            return (
                None
                if _NUMBER.fullmatch(limit.strip().replace(",", "."))
                else Part(str(name), node.op, limit)
            )
    return None


def _code(part: Part) -> str:
    bare = {"on": part.name, "off": f"not {part.name}", "changed": f"changed({part.name})"}
    if part.relation in bare:
        return bare[part.relation]
    limit = part.limit.strip().replace(",", ".")
    quoted = limit if _NUMBER.fullmatch(limit) else f'"{part.limit.strip()}"'
    return f"{part.name} {part.relation} {quoted}"
