"""The commonest sentences that make a watcher, as tables of patterns: ``en.yaml`` and ``de.yaml``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from agent_core.sentences.phrasebook import number_words
from agent_core.sentences.responses import primary
from hub_live.watchers.schedule import DAYS

_FOLDER: Final = Path(__file__).parent
_NUMBER: Final = r"(?P<number>(?:[-−]|minus )?\d+(?:[.,]\d+)?)(?: ?[^\s\d,]{1,12})?"
_TIME: Final = r"\d{1,2}(?:[:.]\d{2})?(?: ?[ap]m)?(?: uhr)?"
_NAMED: Final = re.compile(r"\(\?P<\w+>")
_HOLE: Final = re.compile(r"\{([a-z]+)(\d?)\}")

Found = Mapping[str, str]


@dataclass(frozen=True)
class Shapes:
    """The patterns of one language.

    Attributes:
        data: As the file has it.
        fragments: What stands for a name in braces.
        numbers: By their words.
    """

    data: Mapping[str, Any]
    fragments: Mapping[str, str]
    numbers: Mapping[str, int]

    def found(self, name: str, text: str) -> Iterator[tuple[Found, str]]:
        """Yield what the patterns of a table find in a text, each with what stands beside the pattern."""
        for entry in self.data[name]:
            pattern, meaning = entry if isinstance(entry, list) else (entry, "")
            if match := self._compiled(pattern).fullmatch(text):
                yield {hole.rstrip("23"): each for hole, each in match.groupdict().items() if each}, meaning

    def cut(self, text: str) -> tuple[str, str]:
        """Return a condition without how long it holds, and that."""
        for pattern in self.data["held"]:
            if match := self._compiled(f" ?{pattern}(?= |$)").search(text):
                left = f"{text[: match.start()]}{text[match.end() :]}".strip()
                return left, self.duration(match["duration"])
        return text, ""

    def duration(self, text: str) -> str:
        """Return a duration as watchers have it: ``10m``."""
        count, word = re.findall(r"\d+|[^\d ]+", text)
        units: dict[str, str] = self.data["units"]
        return f"{count}{next(each for each in units if re.fullmatch(units[each], word, re.IGNORECASE))}"

    def tidy(self, text: str) -> str:
        """Return a sentence without politeness and the stop at its end, with durations in digits."""
        said = " ".join(text.split()).rstrip(" .!")
        said = re.sub(
            rf"^(?:{self.data['polite']}),? | (?:{self.data['polite']})(?=$| )", "", said, flags=re.IGNORECASE
        )
        for pattern, instead in self.data["also"]:
            said = re.sub(pattern, instead, said, count=1, flags=re.IGNORECASE)
        units = "|".join((*self.data["units"].values(), "uhr|[ap]m"))
        return re.sub(
            rf"\b[^\W\d_]+(?= (?:{units})\b)",
            lambda found: str(self.numbers.get(found[0].lower(), found[0])),
            said,
            flags=re.IGNORECASE,
        )

    def parts(self, name: str, text: str) -> Iterator[tuple[str, str]]:
        """Yield a text in two parts, at each place where words of a table stand."""
        for words in self.data[name]:
            for match in re.finditer(re.escape(words), text, re.IGNORECASE):
                yield text[: match.start()], text[match.end() :]

    def _compiled(self, pattern: str) -> re.Pattern[str]:
        return _compiled(pattern, tuple(self.fragments.items()))


@cache
def load_shapes(language: str) -> Shapes | None:
    """Load the patterns of a language; None where there are none."""
    import yaml

    file = _FOLDER / f"{primary(language)}.yaml"
    if not file.exists():
        return None
    data = yaml.safe_load(file.read_text("utf-8"))
    one_of = {
        "day": data["days"],
        "on": DAYS,
        "sun": data["suns"],
        "side": data["sides"],
        "state": sorted(data["states"], key=len, reverse=True),
    }
    units = "|".join(data["units"].values())
    fragments = {
        **{name: f"(?:{text})" for name, text in data["fragments"].items()},
        **{name: f"(?P<{name}>{'|'.join(words)})" for name, words in one_of.items()},
        **{name: f"(?P<{name}>{_TIME})" for name in ("time", "begin", "end")},
        **{name: f"(?P<{name}>.+?)" for name in ("value", "condition", "action", "first", "rest")},
        "text": "(?P<text>.*)",
        "count": r"(?P<count>\d{1,3})",
        "number": _NUMBER,
        "duration": rf"(?P<duration>\d{{1,4}} ?(?:{units}))",
    }
    patterns = (pattern for pattern, _ in (*data["times"], *data["moments"]))
    times = (_compiled(pattern, tuple(fragments.items())).pattern for pattern in patterns)
    fragments["times"] = f"(?P<times>{_NAMED.sub('(?:', '|'.join(times))})"
    return Shapes(data, fragments, number_words(primary(language)))


@cache
def _compiled(pattern: str, fragments: Sequence[tuple[str, str]]) -> re.Pattern[str]:
    known = dict(fragments)

    def fill(hole: re.Match[str]) -> str:
        # What stands in a pattern twice has a number.
        return known[hole[1]].replace(f"(?P<{hole[1]}>", f"(?P<{hole[1]}{hole[2]}>", 1)

    while _HOLE.search(pattern):
        pattern = _HOLE.sub(fill, pattern)
    return re.compile(pattern, re.IGNORECASE)
