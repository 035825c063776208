"""Questions in words: the answer of a turn, to which the next message says yes or no."""

import re
import time
from dataclasses import dataclass, replace
from typing import Final

from agent_core.sentences.index import SentenceCall
from chat import limits
from chat.turns import Turn
from contracts.chat.messages import ChatRequest, TextDelta, TurnFinal
from contracts.rates import Clock

_YES: Final = frozenset(
    {"yes", "yes please", "yes do it", "ja", "ja bitte", "ja mach das", "ja bitte mach das"}
)
"""Only the whole message counts: "yes, but not the hall" is none."""
_NO: Final = frozenset(
    {"no", "no thanks", "no thank you", "nope", "nein", "nein danke", "nee", "nö", "lieber nicht"}
)
_ALL_RIGHT: Final = {"en": "All right.", "de": "In Ordnung."}


@dataclass(frozen=True)
class WordQuestion:
    """A question that waits for a yes or a no.

    Attributes:
        matched: The call that a yes confirms.
        offer: In place of a call, the sentence that a yes says ("Did you mean …?").
        digest: Of the call and all that was shown of it.
        text: What was asked, which is the answer of that turn.
        said: The message that led to it.
        language: In which it was asked.
        is_refused: Whether the answer was no.
    """

    matched: SentenceCall | None
    offer: str
    digest: str
    text: str
    said: str
    token: str
    user: str
    conversation: str
    expires: float
    language: str
    is_refused: bool = False

    def is_next(self, request: ChatRequest) -> bool:
        """Return whether a message is the one after the question in its conversation.

        A program that keeps its conversation itself sends the question along.
        """
        if request.conversation is not None:
            return request.conversation == self.conversation
        last = request.history[-1] if request.history else None
        return last is not None and (last.question, last.answer) == (self.said, self.text)


class WordQuestions:
    """The open questions in words; each is taken once, by whatever comes next.

    Args:
        clock: Seconds.
    """

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._open: list[WordQuestion] = []

    def add(
        self,
        turn: Turn,
        text: str,
        *,
        language: str,
        matched: SentenceCall | None = None,
        digest: str = "",
        offer: str = "",
    ) -> None:
        """Keep what a turn has asked."""
        asked = WordQuestion(
            matched,
            offer,
            digest,
            text,
            turn.request.message,
            turn.token,
            turn.user,
            turn.conversation_name,
            self._clock() + limits.SPOKEN_YES_S,
            language,
        )
        self._open = [*self._open[1 - limits.MOST_WORD_QUESTIONS :], asked]

    def take(self, request: ChatRequest, *, user: str, token: str) -> WordQuestion | None:
        """End the question of this conversation; return it where the message answers it in time."""
        now = self._clock()
        ended = [
            each
            for each in self._open
            if each.expires <= now or ((each.user, each.token) == (user, token) and each.is_next(request))
        ]
        self._open = [each for each in self._open if each not in ended]
        words = " ".join(re.findall(r"\w+", request.message.casefold()))
        found = [each for each in ended if each.expires > now]
        is_answer = not request.steps and not request.has_files and request.replaces is None
        if not found or not is_answer or words not in _YES | _NO:
            return None
        return replace(found[-1], is_refused=words in _NO)


async def accept_no(question: WordQuestion, turn: Turn) -> None:
    """Answer a no."""
    text = _ALL_RIGHT.get(question.language, _ALL_RIGHT["en"])
    turn.emit(TextDelta(text=text))
    turn.emit(TurnFinal(answer=text, mode="sentence", device=turn.device))
