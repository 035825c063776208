"""Confirmations in words: the question that a call needs, as the answer of a turn."""

import re
from collections.abc import Mapping
from typing import Final

from agent_core.search.catalogue import SkillCall
from agent_core.skills.questions import questions_of
from agent_core.tools.skill_calls import Consent, all_shown
from agent_core.turn import TurnContext
from contracts.errors import CallError, ErrorCode
from contracts.wire import shown_digest
from hub_agent import limits

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
        asked = questions_of(call.target, call.arguments).get(self._language, "")
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
