"""The grammar of what can be said: its size in a large home, and what is understood by it."""

import re

import pytest

from contracts.chat.vocabulary import SpokenSentence, SpokenSlot, Vocabulary
from tests.requirements import require
from tests.voice.spoken import HINT, can_speak, frames, spoken
from voice.engines.pronunciation import in_sounds
from voice.engines.speech_to_text.pocketsphinx import PocketSphinx
from voice.grammar import alike, grammar_of, with_digits

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


NAMES = (
    "kitchen light",
    "desk lamp",
    "ceiling fan",
    "front door",
    "bedroom",
    "garage",
    "office",
    "heater",
    "tv",
)
HOME = Vocabulary(
    language="en",
    names=(*NAMES, "living room", "bathroom", "coffee machine", "hall lamp", "thermomix"),
    sentences=(
        SpokenSentence(text="turn (on|off) [the] {name}", slots={"name": SpokenSlot()}),
        SpokenSentence(text="(lock|unlock) [the] {name}", slots={"name": SpokenSlot()}),
        SpokenSentence(
            text="set [the] {name} to {n} [percent]",
            slots={"name": SpokenSlot(), "n": SpokenSlot(is_number=True)},
        ),
        SpokenSentence(text="set a timer for {n} minutes", slots={"n": SpokenSlot(is_number=True)}),
    ),
)
ZUHAUSE = Vocabulary(
    language="de",
    names=("Deckenlampe", "Heizung", "Küche", "Büro"),
    sentences=(
        SpokenSentence(text="schalte [die] {name} (an|aus)", slots={"name": SpokenSlot()}),
        SpokenSentence(text="stelle die lautstärke auf {n}", slots={"n": SpokenSlot(is_number=True)}),
    ),
)


@pytest.mark.parametrize(
    ("home", "text", "voice"),
    [
        (HOME, "lock the front door", "espeak:en-us"),
        (HOME, "turn off the ceiling fan", "flite:slt"),
        (HOME, "turn on the thermomix", "flite:rms"),
        (ZUHAUSE, "schalte die heizung aus", "espeak:de"),
        (ZUHAUSE, "stelle die lautstärke auf fünfunddreißig prozent", "espeak:de"),
    ],
)
async def test_a_sentence_of_a_home_is_understood(home: Vocabulary, text: str, voice: str) -> None:
    """With the decoder's own limits and mean, most of these ended in nothing."""
    require(can_speak(), HINT)
    engine = PocketSphinx()
    await engine.learn(home)
    nothing = await engine.transcribe(frames(b""), language=home.language)
    heard = await engine.transcribe(frames(spoken(text, voice=voice)), language=home.language)
    assert (nothing.text, nothing.certain) == ("", False)
    assert heard.text == with_digits(text)
    assert heard.certain


def test_a_word_with_an_unknown_sound_is_left_out() -> None:
    assert in_sounds("k ˈy ç ə", language="de") == "K IH SH AH"
    assert in_sounds("w ˈɔː ɾ ɚ", language="en") == "W AO D ER"
    assert in_sounds("ǃ ˈa", language="de") == ""


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("set a timer for 90 minutes", "set a timer for 19 minutes"),
        ("set it to 13", "set it to 30"),
        ("set it to 20", ""),
        ("set it to 42", ""),
        ("set it to 16.5", ""),
    ],
)
def test_numbers_that_sound_alike_are_known(text: str, other: str) -> None:
    assert alike(text) == other
