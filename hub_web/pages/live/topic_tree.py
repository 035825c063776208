"""The topics of a broker as a tree, of which only what is open is shown."""

import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.access import covers
from contracts.errors import InvalidTopic
from contracts.text import shortened
from contracts.topics import check_filter, is_exact
from hub_live.topics.tree import ShownTopic
from hub_web import limits
from hub_web.texts import size

_ENVELOPE: Final = frozenset({"v", "kind", "sig", "epoch", "connection", "seq", "hub_session"})


@dataclass
class TopicState:
    """What is known of a topic.

    Attributes:
        topic: Its name.
        last: As ``/api/bus/tree`` gives it.
        numbers: What it was lately, where it is a number or has one.
    """

    topic: str
    last: ShownTopic
    numbers: deque[float] = field(default_factory=lambda: deque(maxlen=limits.PLOT_POINTS))

    @property
    def value(self) -> Any:
        return self.last.value


@dataclass
class Branch:
    """A level of topics.

    Attributes:
        path: The topic up to here.
        below: The levels below, by name.
        topic: Whether it is itself a topic.
        size: How many topics are at it and below.
    """

    path: str
    below: "dict[str, Branch]" = field(default_factory=dict)
    topic: TopicState | None = None
    size: int = 0


@dataclass(frozen=True)
class Line:
    """A line of the tree as it is shown.

    Attributes:
        label: The level; several, where nothing else is between them.
        is_open: None where there is nothing below.
    """

    depth: int
    label: str
    branch: Branch
    is_open: bool | None


class TopicTree:
    """All topics, which of them are wanted, and which branches are open.

    Attributes:
        topics: By name.
        shape: Changes with the lines that there are.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.shape = 0
        self._root = Branch("")
        self._wanted = ""
        self._turned: set[str] = set()

    def clear(self) -> None:
        """Forget all topics."""
        self.topics.clear()
        self._root = Branch("")
        self.shape += 1

    def put(self, last: ShownTopic) -> None:
        """Store a topic as it is now."""
        name = last.topic
        state = self.topics.get(name)
        if state is None:
            state = self.topics[name] = TopicState(name, last)
            self._add(state)
        state.last = last
        if (number := number_in(last.value)) is not None:
            state.numbers.append(number)

    def want(self, words: str) -> None:
        """Show only topics with all of these words, or those that a filter with + or # matches."""
        self._wanted = words.strip()
        self._turned.clear()
        self.shape += 1

    def turn(self, branch: Branch) -> None:
        """Open a branch that is closed, and close one that is open."""
        self._turned ^= {branch.path}
        self.shape += 1

    def matching(self) -> int:
        return sum(map(self._matches, self.topics)) if self._wanted else len(self.topics)

    def lines(self, most: int) -> tuple[list[Line], bool]:
        """Return the lines that are shown, and whether there are more than these."""
        shown: list[Line] = []
        root = self._root
        if self._wanted:
            root = Branch("")
            for name in filter(self._matches, self.topics):
                _grow(root, self.topics[name])
        for line in self._below(root, 0):
            if len(shown) == most:
                return shown, True
            shown.append(line)
        return shown, False

    def _add(self, state: TopicState) -> None:
        _grow(self._root, state)
        if self._matches(state.topic):
            self.shape += 1

    def _matches(self, topic: str) -> bool:
        wanted = self._wanted
        if is_exact(wanted):
            name = topic.lower()
            return all(word in name for word in wanted.lower().split())
        try:
            check_filter(wanted)
        except InvalidTopic:
            return False
        return covers(wanted, topic)

    def _below(self, branch: Branch, depth: int) -> Iterator[Line]:
        for name in sorted(branch.below, key=_natural):
            below, label = branch.below[name], name or "⟨ ⟩"
            # A way without forks is one line.
            while below.topic is None and len(below.below) == 1:
                (name, below), *_ = below.below.items()
                label += f"/{name}"
            is_open = None
            if below.below:
                is_open = (bool(self._wanted) or self._is_small(below, depth)) != (below.path in self._turned)
            yield Line(depth, label, below, is_open)
            if is_open:
                yield from self._below(below, depth + 1)

    def _is_small(self, branch: Branch, depth: int) -> bool:
        return depth == 0 and branch.size <= limits.SMALL_BRANCH


def _grow(root: Branch, state: TopicState) -> None:
    branch, path = root, ""
    branch.size += 1
    for level in state.topic.split("/"):
        path = f"{path}/{level}" if branch is not root else level
        branch = branch.below.setdefault(level, Branch(path))
        branch.size += 1
    branch.topic = state


def _natural(name: str) -> list[tuple[int, str]]:
    return [(len(each), each) if each.isdecimal() else (0, each) for each in re.split(r"(\d+)", name.lower())]


def numbers_in(value: Any, path: str = "", depth: int = 0) -> dict[str, float]:
    """Return the numbers in a value by the path of their field; empty for the value itself."""
    if isinstance(value, int | float):
        return {path: float(value)}
    found: dict[str, float] = {}
    if isinstance(value, dict) and depth < 2:
        for name, each in value.items():
            if name in _ENVELOPE:
                continue
            found |= numbers_in(each, f"{path}.{name}" if path else str(name), depth + 1)
    return found


def number_in(value: Any) -> float | None:
    """Return the number that stands for a value: itself, its field ``value``, or else its only number."""
    found = numbers_in(value)
    if "" in found or "value" in found:
        return found.get("", found.get("value"))
    return next(iter(found.values())) if len(found) == 1 else None


def short(value: Any) -> str:
    """Return a value on one line, without what every message of the bus has."""
    if isinstance(value, dict) and set(value) == {"blob", "bytes"} and isinstance(value["bytes"], int):
        return f"{value['blob']}, {size(value['bytes'])}"
    if isinstance(value, dict) and "value" in value and not isinstance(value["value"], dict | list):
        return f"{_plain(value['value'])} {value.get('unit') or ''}".strip()
    if isinstance(value, dict):
        fields = {name: each for name, each in value.items() if name not in _ENVELOPE}
        said = ", ".join(f"{name} {_plain(each)}" for name, each in fields.items())
    else:
        said = _plain(value)
    return shortened(said, limits.MAX_VALUE_SHOWN)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
