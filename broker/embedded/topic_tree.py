"""A tree of topics or filters, walked level by level instead of compared one by one."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.value: T | None = None


class TopicTree(Generic[T]):
    """Maps topics or topic filters to values that are not None."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def get(self, key: str) -> T | None:
        """Return the value of exactly this topic or filter."""
        node: _Node[T] | None = self._root
        for level in key.split("/"):
            node = node.children.get(level) if node else None
        return node.value if node else None

    def set(self, key: str, value: T) -> None:
        """Set the value of a topic or filter."""
        node = self._root
        for level in key.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        node.value = value

    def remove(self, key: str) -> None:
        """Remove a topic or filter, if it is there."""
        path: list[tuple[_Node[T], str]] = []
        node = self._root
        for level in key.split("/"):
            path.append((node, level))
            child = node.children.get(level)
            if child is None:
                return
            node = child
        node.value = None
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.value is not None:
                return
            del parent.children[level]

    def of_topic(self, topic: str) -> list[T]:
        """Return the values of the filters that match a topic."""
        found: list[T] = []
        # A wildcard in the first place does not match the broker's own topics (MQTT 3.1.1, 4.7.2).
        wild = not topic.startswith("$")
        nodes = [self._root]
        for level in topic.split("/"):
            following: list[_Node[T]] = []
            for node in nodes:
                children = node.children
                if wild:
                    rest = children.get("#")
                    if rest is not None and rest.value is not None:
                        found.append(rest.value)
                    one = children.get("+")
                    if one is not None:
                        following.append(one)
                same = children.get(level)
                if same is not None:
                    following.append(same)
            nodes, wild = following, True
        for node in nodes:
            if node.value is not None:
                found.append(node.value)
            parent = node.children.get("#")
            if parent is not None and parent.value is not None:
                found.append(parent.value)
        return found

    def of_filter(self, filter_: str) -> list[T]:
        """Return the values of the topics that a filter matches."""
        nodes: list[_Node[T]] = [self._root]
        levels = filter_.split("/")
        for position, level in enumerate(levels):
            if level == "#":
                return [value for node in nodes for value in _below(node, hidden=position == 0)]
            if level == "+":
                nodes = [
                    child
                    for node in nodes
                    for name, child in node.children.items()
                    if position or not name.startswith("$")
                ]
            else:
                nodes = [node.children[level] for node in nodes if level in node.children]
        return [node.value for node in nodes if node.value is not None]


def _below(node: _Node[T], *, hidden: bool) -> Iterator[T]:
    """Walk a node and all below it; ``hidden`` leaves out its children that start with ``$``."""
    stack = [child for name, child in node.children.items() if not (hidden and name.startswith("$"))]
    if node.value is not None:
        yield node.value
    while stack:
        node = stack.pop()
        if node.value is not None:
            yield node.value
        stack.extend(node.children.values())
