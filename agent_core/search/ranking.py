"""Full-text ranking of short documents: SQLite's FTS5, in memory."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from agent_core.search.words import trigrams

MAX_SCORED: Final = 1_000
"""Matches that one query scores. Ranking 16,000 of 20,000 rows took 20 ms, ranking 1,000 takes 1; a word
that is in more rows than that tells nothing apart."""

_NAME_WEIGHT: Final = 2.0
_TEXT_WEIGHT: Final = 1.0
_SHARED_TRIGRAMS: Final = 0.5
"""Part of a query's trigrams that a document must share to count as alike."""

_TABLES: Final = """
    CREATE VIRTUAL TABLE stems USING fts5(names, text, tokenize = 'porter unicode61 remove_diacritics 2');
    CREATE VIRTUAL TABLE stems_terms USING fts5vocab(stems, row);
    CREATE VIRTUAL TABLE grams USING fts5(names, text, tokenize = 'trigram');
    CREATE VIRTUAL TABLE grams_terms USING fts5vocab(grams, row);
    CREATE VIRTUAL TABLE asked USING fts5(word, tokenize = 'porter unicode61 remove_diacritics 2');
    CREATE VIRTUAL TABLE asked_terms USING fts5vocab(asked, instance);
"""


class Ranking:
    """Documents of a name part and a text part, found by any of some words, best first.

    Words are stemmed as English ones. Where no word of a query is known, documents that share its runs of
    three letters are found, which serves compounds, typing errors and languages written without spaces.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.executescript(_TABLES)

    def close(self) -> None:
        """Give the memory back."""
        self._db.close()

    def put(self, row: int, *, names: str, text: str) -> None:
        """Add a document, or replace it."""
        self.remove(row)
        for table in ("stems", "grams"):
            statement = _on(table, "INSERT INTO {table}(rowid, names, text) VALUES (?, ?, ?)")
            self._db.execute(statement, (row, names, text.lower()))

    def remove(self, row: int) -> None:
        """Drop a document; one that is not there is none."""
        for table in ("stems", "grams"):
            self._db.execute(_on(table, "DELETE FROM {table} WHERE rowid = ?"), (row,))

    def search(self, words: Sequence[str]) -> list[tuple[int, float]]:
        """Return the documents that hold any of the words, with a score; a higher one is better."""
        return self._by_words(words) or self._by_trigrams(words)

    def _by_words(self, words: Sequence[str]) -> list[tuple[int, float]]:
        self._db.execute("DELETE FROM asked")
        self._db.executemany("INSERT INTO asked(rowid, word) VALUES (?, ?)", enumerate(words))
        stems: dict[int, str] = dict(self._db.execute("SELECT doc, term FROM asked_terms"))
        frequencies = {words[place]: self._frequency("stems_terms", stem) for place, stem in stems.items()}
        return self._matching("stems", frequencies)

    def _by_trigrams(self, words: Sequence[str]) -> list[tuple[int, float]]:
        grams = trigrams(words)
        frequencies = {gram: self._frequency("grams_terms", gram) for gram in grams}
        found: list[tuple[int, float]] = []
        for row, score in self._matching("grams", frequencies)[:100]:
            names, text = self._db.execute("SELECT names, text FROM grams WHERE rowid = ?", (row,)).fetchone()
            document = f"{names} {text}".lower()
            if sum(gram in document for gram in grams) >= _SHARED_TRIGRAMS * len(grams):
                found.append((row, score))
        return found

    def _frequency(self, terms: str, term: str) -> int:
        statement = _on(terms, "SELECT doc FROM {table} WHERE term = ?")
        row = self._db.execute(statement, (term,)).fetchone()
        return row[0] if row else 0

    def _matching(self, table: str, frequencies: dict[str, int]) -> list[tuple[int, float]]:
        """Find by the rarest terms, as many as can be scored in time."""
        chosen: list[str] = []
        total = 0
        for term, frequency in sorted(frequencies.items(), key=lambda item: item[1]):
            if frequency and total + frequency <= MAX_SCORED:
                chosen.append(term)
                total += frequency
        if chosen:
            statement = _on(
                table,
                "SELECT rowid, -bm25({table}, ?, ?) AS score FROM {table} WHERE {table} MATCH ?"
                " ORDER BY score DESC, rowid",
            )
            return self._db.execute(statement, (_NAME_WEIGHT, _TEXT_WEIGHT, _any_of(chosen))).fetchall()
        common = [term for term, frequency in frequencies.items() if frequency]
        return self._unranked(table, common) if common else []

    def _unranked(self, table: str, terms: Sequence[str]) -> list[tuple[int, float]]:
        """Find by terms that are in too many documents to rank: those with one in the name come first."""
        statement = _on(table, "SELECT rowid FROM {table} WHERE {table} MATCH ? LIMIT ?")
        found: dict[int, float] = {}
        for query, score in ((f"names : ({_any_of(terms)})", _NAME_WEIGHT), (_any_of(terms), _TEXT_WEIGHT)):
            for (row,) in self._db.execute(statement, (query, MAX_SCORED)):
                found.setdefault(row, score)
        return list(found.items())[:MAX_SCORED]


def _on(table: str, statement: str) -> str:
    """Name the table: one of ours, which no parameter of SQL can do."""
    return statement.replace("{table}", table)


def _any_of(terms: Iterable[str]) -> str:
    return " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
