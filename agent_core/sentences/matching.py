"""Matching of an utterance with a parsed sentence template, in a bounded number of steps.

Templates come from devices. hassil parses them; its own matcher tries every combination of alternatives, so
that a short template can take minutes.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import factorial, prod
from typing import Any, Final

from hassil import Alternative, Group, ListReference, Permutation, TextChunk

from contracts.errors import StrawberryError
from contracts.wire import Json

_SEPARATORS: Final = re.compile(r"[\s_-]")
"""Between words: ``living-room`` may be said ``living room``."""
_PUNCTUATION: Final = re.compile(r"(?<!\S)[¿¡]+|[.,?!…;:。？！、]+(?=\s|\Z)")

ReadSlot = Callable[[str], Json]
"""Turns the text of a slot into a value, None where it is none."""


class OutOfSteps(StrawberryError):
    """A match took more steps than it may."""


class Steps:
    """The steps that a match may still take.

    Attributes:
        most: How many there were.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most

    @property
    def left(self) -> int:
        return max(0, self._left)

    def take(self, number: int = 1) -> None:
        """Count some steps.

        Raises:
            OutOfSteps: There are not so many left.
        """
        self._left -= number
        if self._left < 0:
            raise OutOfSteps("matching takes too long")


@dataclass(frozen=True, eq=False)
class Node:
    """A part of a template with what follows it; the parts form a graph that ends in None."""

    then: "Node | None"


@dataclass(frozen=True, eq=False)
class _Words(Node):
    """Words to be said as they stand, in the form of `folded`; a blank at an end is the end of a word."""

    text: str


@dataclass(frozen=True, eq=False)
class _Slot(Node):
    name: str
    read: ReadSlot
    ends_with_word: bool


@dataclass(frozen=True, eq=False)
class _Ways(Node):
    """Alternatives; ``then`` is the first of them."""

    others: tuple[Node | None, ...]


def ways(expression: object) -> int:
    """Count the combinations of alternatives of a template."""
    match expression:
        case Alternative():
            return sum(map(ways, expression.items))
        case Permutation():
            return factorial(min(len(expression.items), 20)) * prod(map(ways, expression.items))
        case Group():
            return prod(map(ways, expression.items))
    return 1


def compile_expression(expression: object, slots: Mapping[str, ReadSlot]) -> Node | None:
    return _compiled([expression], None, slots)


def _compiled(items: list[object], then: Node | None, slots: Mapping[str, ReadSlot]) -> Node | None:
    """Compile items that follow each other, from the last to the first."""
    words: list[str] = []
    for item in reversed(items):
        if isinstance(item, TextChunk):
            words.append(item.text)
            continue
        then, words = _after(words, then), []
        match item:
            case Permutation():
                then = _in_any_order(item.items, then, slots)
            case Alternative():
                each = [_compiled([one], then, slots) for one in item.items]
                then = _Ways(each[0], tuple(each[1:])) if each else then
            case Group():
                then = _compiled(list(item.items), then, slots)
            case ListReference():
                then = _Slot(then, item.slot_name, slots[item.slot_name], item.is_end_of_word)
    return _after(words, then)


def _in_any_order(items: list[Any], then: Node | None, slots: Mapping[str, ReadSlot]) -> Node | None:
    """Compile items of a permutation; what follows the same items in another order is the same node."""

    @cache
    def rest(left: frozenset[int]) -> Node | None:
        each = [_compiled([items[place]], rest(left - {place}), slots) for place in sorted(left)]
        return _Ways(each[0], tuple(each[1:])) if each else then

    return rest(frozenset(range(len(items))))


def _after(words: list[str], then: Node | None) -> Node | None:
    """Put the words, of which the last came first, in front of a node."""
    if not words:
        return then
    text = re.sub(" +", " ", folded("".join(reversed(words))))
    return _Words(then, text) if text else then


def normalized(utterance: str) -> str:
    """Return what was said without the punctuation around its words."""
    text = unicodedata.normalize("NFC", utterance).replace("’", "'")
    return " ".join(word for word in _PUNCTUATION.sub("", text).split() if word.strip("-_"))


def folded(text: str) -> str:
    """Return a text of the same length in which words that sound alike are equal."""
    low = text.casefold()
    if len(low) != len(text):
        low = "".join(each if len(each.casefold()) > 1 else each.casefold() for each in text)
    return _SEPARATORS.sub(" ", low)


def spoken(name: str) -> str:
    # Spoken text is looked up in this form.
    return " ".join(folded(normalized(name)).split())


class Match:
    """One utterance on one template.

    Args:
        text: What was said, normalized.
        steps: What it may take.
    """

    def __init__(self, text: str, steps: Steps) -> None:
        self._text = text
        self._folded = folded(text)
        self._steps = steps
        self._failed: set[tuple[Node | None, int]] = set()

    def readings(self, node: Node | None, at: int = 0) -> Iterator[dict[str, Json]]:
        """Yield the values of the slots for each way in which the text from here on fits.

        Raises:
            OutOfSteps: It takes too long.
        """
        self._steps.take()
        if (node, at) in self._failed:
            return
        fits = False
        for slots in self._further(node, at):
            fits = True
            yield slots
        if not fits:
            # Without this, alternatives that mean the same would multiply.
            self._failed.add((node, at))

    def _further(self, node: Node | None, at: int) -> Iterator[dict[str, Json]]:
        match node:
            case None:
                if not self._folded[at:].strip():
                    yield {}
            case _Words():
                end = self._end_of(node.text, at)
                if end is not None:
                    yield from self.readings(node.then, end)
            case _Ways():
                for way in (node.then, *node.others):
                    yield from self.readings(way, at)
            case _Slot():
                for end in self._ends(node, at):
                    self._steps.take()
                    value = node.read(self._text[at:end].strip())
                    if value is not None:
                        for slots in self.readings(node.then, end):
                            yield {node.name: value, **slots}

    def _end_of(self, words: str, at: int) -> int | None:
        """Return where words end that begin here, None where other words do."""
        text = self._folded
        if words[0] == " " and 0 < at < len(text) and text[at - 1] != " ":
            if text[at] != " ":
                return None
            at += 1
        said = words.strip()
        if not text.startswith(said, at):
            return None
        at += len(said)
        if said and words[-1] == " " and at < len(text):
            return at + 1 if text[at] == " " else None
        return at

    def _ends(self, slot: _Slot, at: int) -> Iterator[int]:
        """Yield where a slot that begins here may end, the nearest place first."""
        last = len(self._text)
        if slot.then is not None:
            for end in range(at + 1, last):
                if not slot.ends_with_word or self._folded[end] == " ":
                    yield end
        yield last
