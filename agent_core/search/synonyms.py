"""Groups of words that people use for one another, from ``synonyms.txt``, and the stems of words."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from agent_core import limits

TOKENIZER: Final = "porter unicode61 remove_diacritics 2"
"""English stems for words of all languages: other ones change seldom, and then alike on both sides."""

_TABLES: Final = f"""
    CREATE VIRTUAL TABLE asked USING fts5(word, tokenize = '{TOKENIZER}');
    CREATE VIRTUAL TABLE asked_terms USING fts5vocab(asked, instance);
"""


class Stemmer:
    """Stems words the way that FTS5 does, because it does it."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.executescript(_TABLES)

    def close(self) -> None:
        self._db.close()

    def stems(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the stems in each of the texts."""
        found: list[list[str]] = [[] for _ in texts]
        # Never committed: FTS5 would write a part of its index for each text.
        self._db.execute("BEGIN")
        try:
            self._db.executemany("INSERT INTO asked(rowid, word) VALUES (?, ?)", enumerate(texts))
            for place, stem in self._db.execute("SELECT doc, term FROM asked_terms"):
                found[place].append(stem)
        finally:
            self._db.execute("ROLLBACK")
        return found

    def stems_in(self, text: str) -> set[str]:
        """Return the stems of the words in a text; words that were met before cost nothing."""
        words = set(text.split())
        unknown = [word for word in words if word not in self._known]
        found = dict(zip(unknown, self.stems(unknown), strict=True)) if unknown else {}
        stems = {stem for word in words for stem in found.get(word, self._known.get(word, []))}
        if len(self._known) + len(found) > limits.MOST_KNOWN_WORDS:
            self._known.clear()
        self._known |= {word: each for word, each in found.items() if len(word) <= limits.MAX_KNOWN_WORD}
        return stems


@cache
def synonym_groups() -> Mapping[str, frozenset[int]]:
    """Return the groups that a stem belongs to, by number."""
    text = files(__package__).joinpath("synonyms.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    groups: defaultdict[str, set[int]] = defaultdict(set)
    stemmer = Stemmer()
    for number, stems in enumerate(stemmer.stems(lines)):
        for stem in stems:
            groups[stem].add(number)
    stemmer.close()
    return {stem: frozenset(numbers) for stem, numbers in groups.items()}


def groups_of(stems: Iterable[str]) -> set[int]:
    """Return the groups that any of the stems belongs to."""
    known = synonym_groups()
    return set().union(*(known.get(stem, ()) for stem in stems))
