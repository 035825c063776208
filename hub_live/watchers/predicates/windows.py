"""The values of a name: the latest one, and those of the last minutes or days, in bounded memory."""

import math
from dataclasses import dataclass
from typing import Final

from contracts.phrases import Phrase
from contracts.wire import Json
from hub_live import limits


@dataclass(eq=False, slots=True)
class Unknown:
    """The value of a part of a predicate that is not known.

    Attributes:
        reason: Why, in words.
        low: The number is at least this.
        high: The number is at most this.
    """

    reason: str
    low: float = -math.inf
    high: float = math.inf


Value = float | str | bool | Unknown
"""A finite number, a text, true or false, or nothing that can be used."""


def _value(name: str, raw: Json) -> Value:
    kind = type(raw)
    if kind is float and math.isfinite(raw):
        return raw  # type: ignore[no-any-return]
    if kind is float or kind is int:
        try:
            number = float(raw)
        except OverflowError:
            number = math.inf
        return (
            number if math.isfinite(number) else Unknown(Phrase("{text} is not a finite number", text=name))
        )
    if kind is str or kind is bool:
        return raw  # type: ignore[no-any-return]
    return Unknown(Phrase("{name} is null" if raw is None else "{name} is not a single value", name=name))


def number(text: str, value: Value) -> float | Unknown:
    """Return a value if it is a number, else the reason why it cannot be used as one.

    Args:
        text: What has the value.
    """
    if isinstance(value, (float, Unknown)):
        return value
    is_text = isinstance(value, str)
    template = "{text} is text, not a number" if is_text else "{text} is true or false, not a number"
    return Unknown(Phrase(template, text=text))


_Sums = tuple[int, float, float, float]
_Entry = tuple[float, float, int, float, float, float]
_NOTHING: Final[_Sums] = (0, 0.0, math.inf, -math.inf)
_NO_ENTRY: Final[_Entry] = (-math.inf, math.nan, *_NOTHING)
_ONE_BAD: Final[_Sums] = (1, 0.0, math.inf, -math.inf)


class Window:
    """The values of the last seconds: how many, their sum, the lowest, the highest and the oldest.

    A queue of two stacks. Sums are only added to and never subtracted from, so they do not drift, however
    long it runs and however large a value was that has left. An entry is ``(at, value, count, sum, lowest,
    highest)``; on the stack of the older ones the last four are those of all entries up to the newest there.

    Attributes:
        length_s: A value leaves after this many seconds.
        bad: Why the last value that is no number cannot be used.
        bad_at: When that arrived.
        before: The last entry that has left.
    """

    def __init__(self, length_s: float) -> None:
        self.length_s = length_s
        self.bad = Unknown("")
        self.bad_at = -math.inf
        self.before = _NO_ENTRY
        self._grain_s = 2 * length_s / limits.MOST_ENTRIES
        self._entry_from = -math.inf
        self._older: list[_Entry] = []
        self._newer: list[_Entry] = []
        self._sums = _NOTHING

    def put(self, at: float, value: float | Unknown) -> None:
        """Add a value that is no older than any before."""
        if isinstance(value, float):
            entry: _Entry = (at, value, 1, value, value, value)
        else:
            self.bad, self.bad_at = value, at
            entry = (at, math.nan, *_ONE_BAD)
        self._sums = _together(self._sums, entry)
        newer = self._newer
        if newer and len(newer) + len(self._older) >= limits.MOST_ENTRIES:
            self.drop(at)
            if newer and at - self._entry_from < self._grain_s:
                newer[-1] = (at, entry[1], *_together(newer[-1][2:], entry))
                return
        self._entry_from = at
        newer.append(entry)

    def drop(self, now: float) -> None:
        """Remove the values that are too old."""
        older, newer, length_s = self._older, self._newer, self.length_s
        while older and older[-1][0] + length_s <= now:
            self.before = older.pop()
        if older or not newer or newer[0][0] + length_s > now:
            return
        sums = _NOTHING
        for entry in reversed(newer):
            if entry[0] + length_s <= now:
                self.before = entry
                break
            sums = _together(sums, entry)
            older.append((entry[0], entry[1], *sums))
        newer.clear()
        self._sums = _NOTHING

    def sums(self, now: float) -> _Sums:
        """Return count, sum, lowest and highest of the values that are in the window now."""
        if self.oldest[0] + self.length_s <= now:
            self.drop(now)
        return _together(self._sums, self._older[-1]) if self._older else self._sums

    @property
    def oldest(self) -> _Entry:
        return self._older[-1] if self._older else self._newer[0] if self._newer else _NO_ENTRY


def _together(sums: _Sums, entry: _Entry) -> _Sums:
    count, total, low, high = sums
    if entry[4] < low:
        low = entry[4]
    if entry[5] > high:
        high = entry[5]
    return count + entry[2], total + entry[3], low, high


class Series:
    """The values that are kept of one name.

    Attributes:
        raw: The latest value as it came.
        value: The same as predicates see it.
        at: When it arrived; None before the first one.
        is_retained: Whether it was retained, so that it is not known when it was sent.
        has_changed: Whether it changed since this was last set to False.
        changed_at: When it last changed.
        gap_until: When the last gap ended; infinite while it lasts.
        windows: By their length in seconds.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.raw: Json = None
        self.value: Value = Unknown(Phrase("there is no value of {name} yet", name=name))
        self.at: float | None = None
        self.is_retained = False
        self.has_changed = False
        self.changed_at = -math.inf
        self.gap_until = -math.inf
        self.windows: dict[float, Window] = {}

    def put(self, at: float, raw: Json, *, retained: bool) -> None:
        """Add a new value."""
        value = _value(self.name, raw)
        if self.at is not None:
            if not _same(self.raw, raw, self.value, value):
                self.has_changed, self.changed_at = True, at
            elif retained:
                return  # Delivered again after a reconnect; nothing is new.
        self.raw, self.value, self.at, self.is_retained = raw, value, at, retained
        if self.windows:
            usable = number(self.name, value)
            for window in self.windows.values():
                window.put(at, usable)


def _same(raw: Json, new_raw: Json, value: Value, new_value: Value) -> bool:
    if type(value) is Unknown is type(new_value):
        try:
            return bool(raw == new_raw or (raw != raw and new_raw != new_raw))  # NaN is not equal to itself.
        except RecursionError:
            return False
    return type(value) is type(new_value) and value == new_value
