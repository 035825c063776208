"""Confirmations in words: a question as the answer of a turn, and "yes" as the next message."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent_core.search.catalogue import SkillCall
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.sentences.questions import questions_of
from agent_core.tools.skill_calls import Consent, all_shown
from agent_core.turn import TurnContext
from chat.turns import Turn
from contracts.chat import ChatRequest
from contracts.errors import CallError, ErrorCode
from contracts.rates import Clock
from contracts.wire import shown_digest
from hub_agent import limits

_YES: Final = frozenset(
    {"yes", "yes please", "yes do it", "ja", "ja bitte", "ja mach das", "ja bitte mach das"}
)
"""Only the whole message counts: "yes, but not the hall" is none."""
_TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "several": "“{said}” changes {count} devices: {names}. Say yes to go on.",
        "one": "“{said}” changes {names}. Say yes to go on.",
        "none": "“{said}” needs a confirmation. Say yes to go on.",
        "question": "{question} Say yes to go on.",
        "more": "{names} and {count} more",
    },
    "de": {
        "several": "„{said}“ ändert {count} Geräte: {names}. Sag ja, dann mache ich es.",
        "one": "„{said}“ ändert {names}. Sag ja, dann mache ich es.",
        "none": "„{said}“ braucht eine Bestätigung. Sag ja, dann mache ich es.",
        "question": "{question} Sag ja, dann mache ich es.",
        "more": "{names} und {count} weitere",
    },
}


@dataclass(frozen=True)
class WordQuestion:
    """A question that waits for a yes.

    Attributes:
        matched: The call that a yes confirms.
        offered: In place of a call, the sentence that a yes says ("Did you mean …?").
        digest: Of the call and all that was shown of it.
        text: What was asked, which is the answer of that turn.
        said: The message that led to it.
    """

    matched: SentenceCall | None
    offered: str
    digest: str
    text: str
    said: str
    token: str
    user: str
    conversation: str
    expires: float

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

    def add(self, turn: Turn, matched: SentenceCall, consent: "WordConsent") -> None:
        """Keep what a turn has asked before it makes a call."""
        self._add(turn, matched=matched, digest=consent.digest, text=consent.question)

    def offer(self, turn: Turn, choice: SentenceChoice) -> None:
        """Keep the sentence that a turn has offered; one that is for later is not said by a yes."""
        if choice.said and not choice.is_later:
            self._add(turn, offered=choice.said, text=choice.question)

    def _add(
        self,
        turn: Turn,
        *,
        text: str,
        matched: SentenceCall | None = None,
        offered: str = "",
        digest: str = "",
    ) -> None:
        asked = WordQuestion(
            matched,
            offered,
            digest,
            text,
            turn.request.message,
            turn.token,
            turn.user,
            turn.conversation_name,
            self._clock() + limits.SPOKEN_YES_S,
        )
        self._open = [*self._open[1 - limits.MOST_WORD_QUESTIONS :], asked]

    def take(self, request: ChatRequest, *, user: str, token: str) -> WordQuestion | None:
        """End the question of this conversation; return it where the message says yes to it in time."""
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
        return found[-1] if found and words in _YES and is_answer else None


class WordConsent(Consent):
    """Refuses what needs a yes, and makes a question of it; lets pass what was confirmed.

    Args:
        message: What the person said.
        confirmed: Digest of the call that was confirmed; used up by it.

    Attributes:
        digest: Of the call that is asked for, with all that is shown of it.
    """

    def __init__(self, message: str, language: str, *, confirmed: str = "") -> None:
        super().__init__(None)
        self._message = message
        self._language = language
        self._confirmed = confirmed
        self.digest = ""

    async def ask(self, call: SkillCall, context: TurnContext, *, wanted: CallError | None = None) -> None:
        shown = all_shown(call.arguments, wanted)
        self.digest = shown_digest([call.target.device, call.target.path, shown])
        confirmed, self._confirmed = self._confirmed, ""
        if confirmed == self.digest:
            return
        entities = shown.get("entities") if wanted is not None else None
        names = [str(each) for each in entities] if isinstance(entities, list) else []
        asked = questions_of(call.target.method, call.arguments).get(self._language, "")
        self.question = self._worded(names, asked)
        raise CallError(
            ErrorCode.NEEDS_CONFIRMATION,
            "{method} needs a person's confirmation, which cannot be given here",
            method=f"{call.target.skill}.{call.target.method.name}",
            device=call.target.device,
        )

    def _worded(self, names: list[str], asked: str) -> str:
        texts = _TEXTS.get(self._language, _TEXTS["en"])
        listed = ", ".join(re.sub(r" \([a-z0-9_]+\.\w+\)$", "", each) for each in names[: limits.NAMES_ASKED])
        if len(names) > limits.NAMES_ASKED:
            listed = texts["more"].format(names=listed, count=len(names) - limits.NAMES_ASKED)
        kind = "several" if len(names) > 1 else "one" if names else "question" if asked else "none"
        said = self._message[: limits.MESSAGE_ASKED]
        return texts[kind].format(said=said, names=listed, count=len(names), question=asked)
