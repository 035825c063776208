"""Answers those who talk to this device: an exact sentence first, then the hub, then a model of its own.

A turn runs on one side only. What this device may do after the hub was asked is decided in ``hub_turn``;
here is said who answers, once for each change: that it works offline, and that the hub is back.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from agent_core.conversation import Exchange
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.sentences.sentence_turn import run_sentence
from agent_core.turn import Emit, streamed
from chat.questions import Questions, TurnConfirmer
from chat.turns import Turn, TurnKey, TurnRequest, Turns, TurnState
from contracts.chat import AGENTS, check_agent
from contracts.events import Notice, TurnError, TurnEvent
from contracts.rpc import Actor
from spoke.chat.asking import Asking
from spoke.chat.history import History
from spoke.chat.hub_turn import HubQuestion, HubTurns, NotServed, Unsure
from spoke.chat.ledger import SpokeLedger
from spoke.chat.own_skills import OwnCaller, OwnSkills
from spoke.settings import ChatSettings, SpokeSettings
from spoke.skill_host import SkillHost

if TYPE_CHECKING:
    from spoke.chat.local_turn import LocalAgent

_PERSON: Final = "here"
"""Whoever holds the token of this device's own address; there is one."""


@dataclass(frozen=True)
class Means:
    """What a spoke's agent works with.

    Attributes:
        owner: Id of the user to whom this device belongs; what it does is done on their behalf.
        epoch: Of this start of the spoke.
    """

    settings: SpokeSettings
    skills: OwnSkills
    host: SkillHost
    owner: str
    epoch: int
    hub: HubTurns
    ledger: SpokeLedger


class Agent:
    """The agent of one spoke.

    Args:
        chat: How those who talk to it are answered.
        tasks: Owns the turns, and what they open.
    """

    def __init__(self, means: Means, *, chat: ChatSettings, tasks: asyncio.TaskGroup) -> None:
        self._means = means
        self._chat = chat
        self._tasks = tasks
        self._questions = Questions()
        self._turns = Turns(means.ledger, tasks=tasks, open_per_user=chat.open_turns)
        self._local: LocalAgent | None = None

    @property
    def history(self) -> History:
        """What was said here, and in the same conversations elsewhere."""
        return self._means.ledger.history

    async def ask(self, asking: Asking) -> Turn:
        """Begin a turn.

        Raises:
            Conflict: If this turn came before, or was cancelled.
            NotFound: If there is no such agent.
            TooManyRequests: If too many are open.
        """
        check_agent(asking.agent)
        skills, device = self._means.skills, self._means.skills.own.id
        skills.refresh()
        language = self._means.settings.household.language
        matched = skills.finder.match(asking.message, language=language, current=device)
        run = partial(self._say, asking, matched) if matched is not None else partial(self._answer, asking)
        request = TurnRequest(
            key=TurnKey(_PERSON, asking.turn),
            conversation=asking.conversation,
            message=asking.message,
            device=device,
            agent=asking.agent,
        )
        return await self._turns.open(request, run)

    async def cancel(self, turn: str) -> TurnState:
        """Stop a turn, or keep one that has not come from ever running; see ``Turns.cancel``."""
        return await self._turns.cancel(TurnKey(_PERSON, turn))

    def cancel_all(self) -> None:
        """Stop every turn."""
        self._turns.cancel_where(lambda _: True)

    async def confirm(self, turn: str, question: str, *, approve: bool) -> None:
        """Take a person's answer to a question, of this device's or of the hub's.

        Raises:
            NotFound: If nobody was asked this in this turn.
            Conflict: If it was answered before, or the time to answer is over.
        """
        if self._means.hub.has(turn):
            await self._means.hub.confirm(turn, question, approve=approve)
        else:
            self._questions.answer(_PERSON, turn, question, approve=approve)

    def _say(
        self, asking: Asking, matched: SentenceCall | SentenceChoice, turn: Turn
    ) -> AsyncGenerator[TurnEvent, None]:
        return run_sentence(
            matched,
            turn=asking.turn,
            catalogue=self._means.skills,
            caller=self._caller(asking),
            confirmer=self._confirmer(asking),
            device=self._means.skills.own.id,
        )

    def _answer(self, asking: Asking, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        return streamed(partial(self._work, asking, turn), name=f"turn {asking.turn}")

    async def _work(self, asking: Asking, turn: Turn, emit: Emit) -> None:
        ledger, conversation = self._means.ledger, asking.conversation
        history = await ledger.exchanges(conversation, limit=self._chat.exchanges) or list(asking.history)
        # Written down by itself: who answered a turn does not tell what was said in it. A doubtful one is
        # answered here without a word of working offline, and one that breaks off is answered by nobody.
        was_offline = await ledger.history.works_offline(conversation)

        async def began() -> None:
            if was_offline:
                emit(Notice(text="The hub is back."))
                await ledger.history.set_offline(conversation, offline=False)

        question = HubQuestion(asking.turn, conversation, asking.message, tuple(history), asking.can_confirm)
        try:
            await self._means.hub.run(question, emit, began=began)
        except NotServed as refusal:
            if not was_offline and self._means.settings.models.usable:
                emit(Notice(text=f"Working offline: {refusal}."))
                await ledger.history.set_offline(conversation, offline=True)
            turn.untrusted = await self._think(asking, history, emit, reason=str(refusal), can_act=True)
        except Unsure as doubt:
            emit(Notice(text=f"Nothing was done here, because the hub may be working on it: {doubt}."))
            turn.untrusted = await self._think(asking, history, emit, reason=str(doubt), can_act=False)

    async def _think(
        self, asking: Asking, history: Sequence[Exchange], emit: Emit, *, reason: str, can_act: bool
    ) -> bool:
        """Let this device's own model answer; says whether text from outside came in."""
        if not self._means.settings.models.usable:
            emit(self._nobody(reason) if can_act else _UNKNOWN)
            return False
        from spoke.chat.local_turn import LocalAgent, LocalQuestion

        if self._local is None:
            settings, skills = self._means.settings, self._means.skills
            self._local = LocalAgent(skills, settings=settings, tasks=self._tasks)
        question = LocalQuestion(
            asking.turn, asking.conversation, asking.message, history, can_act, asking.notes
        )
        return await self._local.run(
            question, emit, caller=self._caller(asking), confirmer=self._confirmer(asking)
        )

    def _nobody(self, reason: str) -> TurnError:
        settings = self._means.settings
        said = "; ".join(settings.models.problems) or "this device has no model configured"
        examples = self._means.skills.finder.examples(settings.household.language)
        works = f"These sentences work without one: {'; '.join(examples)}." if examples else ""
        hint = " ".join(filter(None, (works, settings.models.hint)))
        return TurnError(code="no_model", message=f"no answer: {reason}; {said}", hint=hint)

    def _caller(self, asking: Asking) -> OwnCaller:
        means = self._means
        actor = Actor(user=means.owner, device=means.skills.own.id, agent=AGENTS[0], turn=asking.turn)
        return OwnCaller(means.host, actor, means.epoch)

    def _confirmer(self, asking: Asking) -> TurnConfirmer | None:
        if not asking.can_confirm:
            return None
        return TurnConfirmer(self._questions, _PERSON, asking.turn, expires_s=self._chat.confirm_s)


_UNKNOWN: Final = TurnError(
    code="broken",
    message="the hub received the message but has not answered; it may or may not act on it",
    hint="Check before you ask again.",
)
