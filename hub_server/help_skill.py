"""What can be said, as a skill: the answer to "help" and to "what can I say"."""

from typing import Any, Final

from agent_core.skills.skill import skill_method
from chat.operations import LOOK
from hub_agent.calls.own_skills import HubSkill
from hub_server.http.sentences import Sentences

_EACH: Final = 2
"""Sentences of a skill that are named: an answer is heard, too."""
_MOST: Final = 12


class HelpSkill(HubSkill):
    """What a person can say to this home."""

    labels = {
        "de": {"HelpSkill": "Hilfe", "help": "Was kann ich sagen?"},
        "en": {"help": "What can I say?"},
    }

    def __init__(self, sentences: Sentences) -> None:
        self._sentences = sentences

    @skill_method(
        read_only=True,
        untrusted_output=True,
        responses={
            "en": "You can say, for example: {result.sentences}.",
            "de": "Du kannst zum Beispiel sagen: {result.sentences}.",
        },
    )
    async def help(self) -> dict[str, Any]:
        """Say what a person can say without a model, some sentences of each skill."""
        user = self.asking.bearer(LOOK).user
        groups = await self._sentences.listed(user, "", None)
        plain = [[text for text in group.sentences if "<" not in text][:_EACH] for group in groups]
        said = list(dict.fromkeys(text for texts in plain for text in texts))
        return {"sentences": [f"\u201c{text}\u201d" for text in said[:_MOST]]}
