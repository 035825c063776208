"""What is spoken: answers sentence by sentence, errors and questions in words, and short tones."""

import array
import math
import re
import unicodedata
from typing import Final, Literal

from contracts.chat.messages import ConfirmationWanted, TurnError
from contracts.errors import HubUnreachable, SpeechError, StrawberryError
from contracts.wire import Json
from voice import limits
from voice.sound.audio import Sound

_END: Final = re.compile(r"(?<=[.!?…])[\"')\]]*\s+(?=\S)|\n+")
"""Between two sentences; a dot within a number has no blank after it."""
_ABBREVIATION: Final = re.compile(r"(?:^|\s)(?:\w|Mr|Mrs|Ms|Dr|St|e\.g|i\.e|z\.B|ca|bzw|Nr|No)\.$|\d\.$")
_LONGEST_ABBREVIATION: Final = len(" z.B.")

_CODE: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\([^)\[]*\)")
_URL: Final = re.compile(r"https?://\S+")
_MARK: Final = re.compile(r"[*_`#>|]+|^[ \t]*(?:[-•]|\d+\.)\s+", re.MULTILINE)

_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "not understood": "Sorry, I did not understand that.",
        "not answered": "I will not do that without a yes.",
        "failed": "Sorry, that did not work: {reason}.",
        "confirm": "{given}Shall I run {method} on {device}? Say yes, do it, or no.",
        "question": "{question} On {device}. Say yes, do it, or no.",
        "number": "Was that {number}, {digits}? Say yes, do it, or no.",
        "with": "With {arguments}: ",
        "cut": " and more",
        "no_model": "No model can answer right now, and that is no sentence that works without one.",
        "no_hub": "I cannot reach the hub, and that is no sentence that works without it.",
    },
    "de": {
        "not understood": "Das habe ich leider nicht verstanden.",
        "not answered": "Ohne ein Ja mache ich das nicht.",
        "failed": "Das hat leider nicht geklappt.",
        "confirm": "{given}Soll ich {method} auf {device} ausführen? Sag ja bitte, mach das, oder nein.",
        "question": "{question} Auf {device}. Sag ja bitte, mach das, oder nein.",
        "number": "War das {number}, {digits}? Sag ja bitte, mach das, oder nein.",
        "with": "Mit {arguments}: ",
        "cut": " und mehr",
        "no_model": "Gerade kann kein Modell antworten, und ohne eines geht dieser Satz nicht.",
        "no_hub": "Ich erreiche die Zentrale nicht, und ohne sie geht dieser Satz nicht.",
        "model_failed": "Das Modell hat leider nicht geantwortet.",
        "limit": "Das wurde mir leider zu viel.",
        "cancelled": "Das wurde abgebrochen.",
        "refused": "Das wurde leider abgelehnt.",
        "broken": "Die Antwort ist leider abgebrochen.",
        "speech": "Der Dienst, der Sprache versteht, antwortet gerade nicht.",
    },
}

# More than one word that must fit: one alone, and a second as soft as "please", is near much other speech.
_YES: Final = {"en": ("yes do it",), "de": ("ja bitte mach das",)}
_NO: Final = {
    "en": ("no", "no thanks", "no thank you", "stop", "cancel", "don't do it"),
    "de": ("nein", "nein danke", "stopp", "abbrechen"),
}
_NEAR_YES: Final = {
    "de": ("ja", "bitte", "ja aber", "bitte nicht", "ja bitte nicht", "ja gestern", "jawohl"),
}
"""Neither yes nor no: a grammar with the sounds of another language takes them for a yes without them."""

Tone = Literal["awake", "understood", "nothing"]

_TONES: Final[dict[Tone, tuple[int, ...]]] = {
    "awake": (660, 880),
    "understood": (880,),
    "nothing": (440, 330),
}
_TONE_RATE: Final = 22_050
_TONE_S: Final = 0.09


class Sentences:
    """Divides an answer that comes in pieces into sentences, and leaves out what cannot be spoken."""

    def __init__(self) -> None:
        self._waiting = ""

    def add(self, text: str) -> list[str]:
        """Return the sentences that a piece of the answer completes."""
        self._waiting += text
        if self._waiting.count("```") % 2:
            return []
        done: list[str] = []
        at = 0
        for end in _END.finditer(self._waiting):
            # One character more, so that a word that only ends like an abbreviation is none.
            begin = max(at, end.start() - _LONGEST_ABBREVIATION - 1)
            if not _ABBREVIATION.search(self._waiting[begin : end.start()]):
                done.append(self._waiting[at : end.start()])
                at = end.end()
        self._waiting = self._waiting[at:]
        if len(self._waiting) > limits.MAX_SPOKEN_SENTENCE:
            done.append(self._waiting)
            self._waiting = ""
        return [said for each in done if (said := spoken(each))]

    def rest(self) -> list[str]:
        """Return what is left at the end of the answer."""
        rest, self._waiting = self._waiting, ""
        return [said] if (said := spoken(rest)) else []


def spoken(text: str) -> str:
    """Return a text without what is written and not said: Markdown, code, addresses, symbols."""
    text = _URL.sub("", _LINK.sub(r"\1", _CODE.sub(" ", text)))
    text = _MARK.sub(" ", text)
    text = "".join(
        char for char in text if unicodedata.category(char) not in ("So", "Cc", "Cf", "Co") or char == " "
    )
    text = " ".join(text.split())
    return text if any(map(str.isalnum, text)) else ""


def phrase(name: str, language: str, **values: str) -> str:
    return _TEXTS.get(_primary(language), _TEXTS["en"])[name].format(**values)


def error_phrase(error: StrawberryError | TurnError, language: str) -> str:
    """Return an error in one sentence; only in English with its own text, which is English."""
    code = error.code if isinstance(error, TurnError) else _code(error)
    if code in _TEXTS.get(_primary(language), _TEXTS["en"]):
        return phrase(code, language)
    reason = spoken(_END.split(error.message.strip(), maxsplit=1)[0])
    return phrase("failed", language, reason=reason[:200].rstrip(".!? "))


def _code(error: StrawberryError) -> str:
    if isinstance(error, HubUnreachable):
        return "no_hub"
    return "speech" if isinstance(error, SpeechError) else ""


def number_question(text: str, instead: str, language: str) -> str:
    """Return the question whether a text was meant, by its number: its digits do not sound alike."""
    said = next((one for one, other in zip(text.split(), instead.split(), strict=False) if one != other), "")
    return phrase("number", language, number=said, digits=" ".join(re.findall(r"\d", said)))


def question(wanted: ConfirmationWanted, language: str) -> str:
    """Return the question whether a call may be made; no argument comes after its method and device."""
    if words := wanted.questions.get(_primary(language)):
        return phrase("question", language, question=spoken(words), device=spoken(wanted.device_name))
    arguments = [f"{_name(name)} {_value(value)}" for name, value in wanted.arguments.items()]
    said = ", ".join(arguments[: limits.MOST_ARGUMENTS_SPOKEN])
    if wanted.cut or len(arguments) > limits.MOST_ARGUMENTS_SPOKEN:
        said += phrase("cut", language)
    return phrase(
        "confirm",
        language,
        method=_name(wanted.method),
        device=spoken(wanted.device_name),
        given=phrase("with", language, arguments=said) if said else "",
    )


def answers(language: str) -> tuple[str, ...]:
    """Return what may be said to a question, and what is only near a yes."""
    primary = _primary(language)
    said = (each for texts in (_YES, _NO) for each in texts.get(primary, texts["en"]))
    return (*said, *_NEAR_YES.get(primary, ()))


def refusals(language: str) -> tuple[str, ...]:
    return _NO.get(_primary(language), _NO["en"])


def is_yes(text: str, language: str) -> bool | None:
    """Return what an answer to a question means; None where it is neither.

    Only the whole answer counts: "no, yes, well" is neither.
    """
    said = " ".join(re.findall(r"[\w']+", text.casefold()))
    primary = _primary(language)
    if said in _YES.get(primary, _YES["en"]):
        return True
    return False if said in refusals(language) else None


def tone(kind: Tone) -> Sound:
    """Return a short tone, made here."""
    samples = array.array("h")
    for pitch in _TONES[kind]:
        whole = int(_TONE_RATE * _TONE_S)
        for n in range(whole):
            # It swells and fades, so that it does not click.
            loud = 6_000 * math.sin(math.pi * n / whole)
            samples.append(int(loud * math.sin(2 * math.pi * pitch * n / _TONE_RATE)))
    return Sound(samples.tobytes(), _TONE_RATE)


def _primary(language: str) -> str:
    return language.partition("-")[0].lower()


def _name(name: str) -> str:
    # ``MediaSkill.set_volume`` becomes ``set volume``.
    return spoken(name.rpartition(".")[2].replace("_", " "))


def _value(value: Json) -> str:
    return spoken(str(value))[:80]
