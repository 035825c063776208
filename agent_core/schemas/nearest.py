"""Known names near to a misspelt one."""

import difflib
import heapq
from collections.abc import Iterable

from contracts.phrases import Phrase

_MAX_NAME = 200
"""Comparing takes time for each pair of letters, and what people mistype is short."""
_COMPARED = 200
"""Of more names only those with most pairs of letters in common are compared: ten thousand take 0.2 s."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names most like the given one, best first; perhaps none.

    Case and underscores do not count: ``setvolume`` finds ``set_volume``, and ``volume`` finds it too.
    """
    wanted = _folded(name[:_MAX_NAME])
    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(_folded(candidate), candidate)
    if len(by_folded) > _COMPARED:
        pairs = {wanted[place : place + 2] for place in range(len(wanted) - 1)}
        some = heapq.nlargest(_COMPARED, by_folded, key=lambda each: sum(pair in each for pair in pairs))
        by_folded = {each: by_folded[each] for each in some}
    similar = difflib.get_close_matches(wanted, by_folded, n=3, cutoff=0.6)
    if len(wanted) > 2:
        similar += sorted(folded for folded in by_folded if wanted in folded and folded not in similar)
    return [by_folded[folded] for folded in similar[:3]]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint that lists the nearest names, or the first known ones where none is near."""
    known = sorted(known)
    if not known:
        return ""
    near = nearest(name, known)
    if near:
        return Phrase("nearest: {names}", names=", ".join(near))
    if len(known) <= 6:
        return Phrase("there are: {names}", names=", ".join(known))
    return Phrase("there are: {names}, and {n} more", names=", ".join(known[:5]), n=len(known) - 5)


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace(" ", "")
