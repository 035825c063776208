"""Full-text ranking of short documents: SQLite's FTS5, in memory.

What people use for one another is in ``synonyms.txt``.
"""

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from agent_core import limits
from agent_core.search.words import Term, trigrams

TOKENIZER: Final = "porter unicode61 remove_diacritics 2"
"""English stems for words of all languages: other ones change seldom, and then alike on both sides."""

MAX_SCORED: Final = 1_000
"""Matches that one query scores. Ranking 16,000 of 20,000 rows took 20 ms, ranking 1,000 takes 1; a word
that is in more rows than that tells nothing apart."""


_LEAST_IDF: Final = 1e-6
"""What FTS5 takes for the idf of a word that half of the documents have."""

_COLUMNS: Final = "method, skill, summary, arguments, text, alike"

_INSERT: Final = f"INSERT INTO stems(rowid, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608

_TABLES: Final = f"""
    CREATE VIRTUAL TABLE stems USING fts5({_COLUMNS}, tokenize = '{TOKENIZER}');
    CREATE VIRTUAL TABLE stems_terms USING fts5vocab(stems, row);
    CREATE VIRTUAL TABLE grams USING fts5(names, text, tokenize = 'trigram');
    CREATE VIRTUAL TABLE grams_terms USING fts5vocab(grams, row);
"""

_ASKED_TABLES: Final = f"""
    CREATE VIRTUAL TABLE asked USING fts5(word, tokenize = '{TOKENIZER}');
    CREATE VIRTUAL TABLE asked_terms USING fts5vocab(asked, instance);
"""


@dataclass(frozen=True)
class Document:
    """The words of one method, by how much they tell."""

    method: str
    skill: str
    summary: str
    arguments: str
    text: str

    @property
    def sentence(self) -> str:
        # For embedding models, which read sentences.
        return f"{self.skill} {self.method}: {self.summary}"


@dataclass(frozen=True)
class _Clause:
    """One word of a question, or one group of synonyms of it, as FTS5 looks for it.

    Attributes:
        word: The word of the question, which counts once however it is found.
        frequency: Documents that have it.
        information: How much it tells where a document has it.
    """

    query: str
    word: str
    frequency: int
    information: float


class Ranking:
    """Documents found by any of some words, best first.

    Words are stemmed as English ones, and synonyms count for less than the words themselves. Where no word
    of a query is known, documents that share its runs of three letters are found, which serves compounds,
    typing errors and languages written without spaces.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.executescript(_TABLES)
        self._stemmer = Stemmer()
        self._groups: dict[int, set[int]] = {}
        self._frequencies: Counter[int] = Counter()

    def close(self) -> None:
        """Free the memory."""
        self._stemmer.close()
        self._db.close()

    def put(self, row: int, document: Document) -> None:
        """Add a document, or replace it."""
        self.remove(row)
        self._begin()
        texts = astuple(document)
        self._groups[row] = groups_of(self._stemmer.stems_in(" ".join(texts[:-1])))
        self._frequencies.update(self._groups[row])
        alike = " ".join(map(_group_word, self._groups[row]))
        self._db.execute(_INSERT, (row, *texts, alike))
        names = f"{document.skill} {document.method}"
        rest = "\n".join(texts[2:]).lower()
        self._db.execute("INSERT INTO grams(rowid, names, text) VALUES (?, ?, ?)", (row, names, rest))

    def remove(self, row: int) -> None:
        """Remove a document, if it is there."""
        if row in self._groups:
            self._begin()
            self._frequencies.subtract(self._groups.pop(row))
            self._db.execute("DELETE FROM stems WHERE rowid = ?", (row,))
            self._db.execute("DELETE FROM grams WHERE rowid = ?", (row,))

    def _begin(self) -> None:
        # FTS5 writes a part of its index at each commit, so changes are collected until the next search.
        if not self._db.in_transaction:
            self._db.execute("BEGIN")

    def search(self, terms: Sequence[Term], *, weak: bool = False) -> list[tuple[int, float]]:
        """Return the documents that fit, with how much of what was asked they have: 0 to about 1.

        Args:
            weak: Whether to return matches that are chance words more often than answers, too.
        """
        self._db.commit()
        clauses, asked = self._clauses(terms)
        if clauses:
            return self._by_words(clauses, asked, weak=weak)
        return _vague(self._by_trigrams([term.word for term in terms]))

    def _by_words(self, clauses: Sequence[_Clause], asked: float, *, weak: bool) -> list[tuple[int, float]]:
        chosen = _rarest(clauses)
        telling = max(clauses, key=lambda clause: clause.information)
        if telling not in chosen:
            # The word that tells most is too common to be ranked, and the others are beside the point.
            return _vague(self._unranked(clauses))
        by_word: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for clause in chosen:
            found = by_word[clause.word]
            for row, score in self._scored(clause):
                found[row] = max(score, found.get(row, 0.0))
        scores: defaultdict[int, float] = defaultdict(float)
        for found in by_word.values():
            for row, score in found.items():
                scores[row] += score
        # Words that are too common to be looked for say nothing against what the others find.
        common = {clause.word: clause.information for clause in clauses if clause.word not in by_word}
        asked -= sum(common.values())
        whole = min(asked, limits.TELLING_WORDS * self._information(0))
        if not weak and max(scores.values()) < self._least() * whole:
            return []
        return sorted(
            ((row, score / whole) for row, score in scores.items()), key=lambda pair: (-pair[1], pair[0])
        )

    def _clauses(self, terms: Sequence[Term]) -> tuple[list[_Clause], float]:
        """Return what to look for, and how much a document with all words of the question would tell."""
        clauses: list[_Clause] = []
        asked = 0.0
        for term, stems in zip(terms, self._stemmer.stems([term.word for term in terms]), strict=True):
            frequency = min(map(self._frequency, stems), default=0)
            information = self._information(frequency)
            own = [_Clause(f'"{term.word}"', term.word, frequency, information)] if frequency else []
            alike = [
                _Clause(
                    f"alike : {_group_word(group)}",
                    term.word,
                    common,
                    limits.SYNONYM_WEIGHT * min(information, self._information(common)),
                )
                for group in groups_of(stems)
                if (common := self._frequencies[group])
            ]
            clauses += own + alike
            asked += information if own or alike else information * term.missed
        return clauses, asked

    def _least(self) -> float:
        slope, offset, most = limits.LEAST_SCORE
        return min(most, slope * math.log10(len(self._groups)) + offset)

    def _information(self, frequency: int) -> float:
        return math.log1p((len(self._groups) + limits.PRIOR_DOCUMENTS - frequency + 0.5) / (frequency + 0.5))

    def _frequency(self, term: str, table: str = "stems_terms") -> int:
        row = self._db.execute(f"SELECT doc FROM {table} WHERE term = ?", (term,)).fetchone()  # noqa: S608
        return row[0] if row else 0

    def _scored(self, clause: _Clause) -> list[tuple[int, float]]:
        statement = "SELECT rowid, -bm25(stems, ?, ?, ?, ?, ?, ?) FROM stems WHERE stems MATCH ?"
        found = self._db.execute(statement, (*limits.COLUMN_WEIGHTS, clause.query)).fetchall()
        # FTS5's own idf is next to nothing for what half of the documents have: ours takes its place.
        rarity = math.log((len(self._groups) - len(found) + 0.5) / (len(found) + 0.5))
        factor = clause.information / max(rarity, _LEAST_IDF)
        return [(row, score * factor) for row, score in found]

    def _unranked(self, clauses: Sequence[_Clause]) -> list[tuple[int, float]]:
        """Find by words that are in too many documents to rank: those with one in the names come first."""
        found: dict[int, float] = {}
        most_telling = sorted(clauses, key=lambda clause: -clause.information)[: limits.MOST_UNRANKED]
        any_of = " OR ".join(clause.query for clause in most_telling)
        for query, score in ((f"{{method skill}} : ({any_of})", 2.0), (any_of, 1.0)):
            statement = "SELECT rowid FROM stems WHERE stems MATCH ? LIMIT ?"
            for (row,) in self._db.execute(statement, (query, MAX_SCORED)):
                found.setdefault(row, score)
        return list(found.items())[:MAX_SCORED]

    def _by_trigrams(self, words: Sequence[str]) -> list[tuple[int, float]]:
        grams = trigrams(words)
        shared = limits.SHARED_TRIGRAMS if len(words) == 1 else limits.SHARED_TRIGRAMS_OF_SEVERAL
        frequencies = {gram: self._frequency(gram, "grams_terms") for gram in grams}
        chosen: list[str] = []
        room = MAX_SCORED
        for gram, frequency in sorted(frequencies.items(), key=lambda item: item[1]):
            if frequency and room >= frequency:
                chosen.append(gram)
                room -= frequency
        if not chosen:
            return []
        any_of = " OR ".join('"' + gram.replace('"', '""') + '"' for gram in chosen)
        ranked = self._db.execute(
            "SELECT rowid, -bm25(grams, 2.0, 1.0) AS score, names, text FROM grams WHERE grams MATCH ?"
            " ORDER BY score DESC, rowid LIMIT ?",
            (any_of, limits.COMPARED_DOCUMENTS),
        )
        found: list[tuple[int, float]] = []
        for row, score, names, text in ranked:
            document = f"{names} {text}".lower()
            if sum(gram in document for gram in grams) >= shared * len(grams):
                found.append((row, score))
        return found


def _rarest(clauses: Iterable[_Clause]) -> list[_Clause]:
    """Choose the rarest clauses, as many as can be scored in time."""
    chosen: list[_Clause] = []
    room = MAX_SCORED
    for clause in sorted(clauses, key=lambda clause: clause.frequency):
        room -= clause.frequency
        if room < 0:
            break
        chosen.append(clause)
    return chosen


def _vague(found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Make scores of another kind comparable with those by words."""
    best = max((score for _, score in found), default=0.0)
    return [(row, limits.VAGUE_MATCH * score / best) for row, score in found]


def _group_word(group: int) -> str:
    return f"group{group}"


class Stemmer:
    """Stems words the way that FTS5 does, because it does it."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.executescript(_ASKED_TABLES)

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
