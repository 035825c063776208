"""The grammar of what can be said: its size in a large home."""

import re

import pytest

from contracts.chat.vocabulary import SpokenSentence, SpokenSlot, Vocabulary
from voice.grammar import grammar_of

pytestmark = pytest.mark.voice

VERBS = ("open", "close", "find", "start", "stop", "play", "lock", "clean", "water", "feed")
PLACE = SpokenSentence(text="feed the {place}", slots={"place": SpokenSlot(values=("cat", "dog"))})


def letters(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def grammar(names: int) -> str:
    verbs = tuple(SpokenSentence(text=f"{verb} {{name}}", slots={"name": SpokenSlot()}) for verb in VERBS)
    named = tuple(letters(number) for number in range(names))
    vocabulary = Vocabulary(language="en", sentences=(*verbs, PLACE), names=named)
    made = grammar_of(vocabulary, lambda word: True)
    assert made is not None
    return made


def copied(made: str) -> int:
    """How many values the decoder copies: those of each reference."""
    lists: dict[str, str] = dict(re.findall(r"(<\w+>) = \(([^()]*)\);", made))
    sentences = "".join(line for line in made.splitlines() if line.startswith(("public", "<sentence>")))
    del lists["<sentence>"]
    return sum(sentences.partition("=")[2].count(name) * len(said.split("|")) for name, said in lists.items())


def test_a_small_home_has_all_of_its_sentences(caplog: pytest.LogCaptureFixture) -> None:
    made = grammar(100)
    assert copied(made) == 100 * (len(VERBS) + 1) + 2
    assert caplog.messages == []


@pytest.mark.parametrize("names", [2_000, 2_600, 5_000])
def test_in_a_large_home_the_sentences_with_the_longest_lists_are_left_out(
    names: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = grammar(names)
    assert copied(made) <= 5_000
    assert "feed the <values" in made
    assert "another engine" in caplog.text


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("light[s] on", "(lights|light) on"),
        ("open([ed]|ing)", "(opened|open|opening)"),
        ("open(e[d]|ing)", "(opened|opene|opening)"),
        ("light[s ]all", "(lights all|lightall)"),
        ("[(un|)]lock", "(unlock|lock)"),
        ("turn [on] {name}", "turn [on] <names>"),
        ("light({name}|s)", None),
    ],
)
def test_alternatives_that_touch_letters_are_parts_of_a_word(sentence: str, said: str | None) -> None:
    spoken = SpokenSentence(text=sentence, slots={"name": SpokenSlot()})
    vocabulary = Vocabulary(language="en", sentences=(spoken,), names=("desk",))
    made = grammar_of(vocabulary, lambda word: True)
    assert made is None if said is None else f"<sentence> = ({said});" in str(made)
