"""Answers people at this device: an exact sentence first, then the hub, then a model of its own.

A turn runs on one side only. What this device may do after the hub was asked is decided in ``hub_turn``; here
it is decided who answers, and one notice says for each change that this device works offline, or that the hub
is back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from agent_core.conversation import take_in
from agent_core.history import Beginning
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.tools.sentence_turn import run_sentence
from agent_core.tools.skill_calls import Consent
from agent_core.turn import Emit
from chat.questions import Questions, TurnConfirmer
from chat.service import unknown_conversation
from chat.turns import Turn, Turns
from chat.word_questions import WordQuestions, accept_no
from contracts.chat.messages import (
    AGENTS,
    ChatRequest,
    ConversationSummary,
    Exchange,
    Notice,
    TurnError,
    TurnRecord,
    TurnState,
)
from contracts.chat.vocabulary import Vocabulary
from contracts.devices.rpc import Actor
from contracts.errors import Forbidden, InvalidMessage, NotFound, NotServed, StrawberryError, Unsure
from contracts.rates import Slots
from spoke.chat.hub_turn import HubTurns
from spoke.chat.own_skills import OwnCaller, OwnSkills
from spoke.chat.record import SpokeRecord
from spoke.chat.sync import Sync
from spoke.settings import ChatSettings, SpokeSettings
from spoke.skill_host import SkillHost

if TYPE_CHECKING:
    from agent_core.gateway.opening import ModelState
    from spoke.chat.local_turn import LocalAgent

T = TypeVar("T")

_OWNER: Final = "here"
"""The one user of this device's own address: its owner."""


@dataclass(eq=False)
class Agent:
    """The agent of one spoke; see `chat.service.ChatService`. Its callers are all the owner.

    Attributes:
        settings: Returns them as they are now; other models may be set.
        chat: How people at this device are answered.
        owner: Id of the user to whom this device belongs; what it does is done on their behalf.
        epoch: Of this start of the spoke.
        tasks: Owns the turns, and what they open.
    """

    settings: Callable[[], SpokeSettings]
    _: KW_ONLY
    chat: ChatSettings
    skills: OwnSkills
    host: SkillHost
    owner: str
    epoch: int
    hub: HubTurns
    record: SpokeRecord
    sync: Sync
    tasks: asyncio.TaskGroup

    def __post_init__(self) -> None:
        self._questions = Questions()
        self._words = WordQuestions()
        self._turns = Turns(self.record, tasks=self.tasks, slots=Slots(each=self.chat.open_turns))
        self._local: LocalAgent | None = None
        # Conversations whose last notice was that this device works offline.
        self._offline: set[str] = set()

    async def ask(self, request: ChatRequest, caller: None) -> Turn:
        """See `chat.service.ChatService`.

        Raises:
            InvalidMessage: If another device is named as the current one.
            Forbidden: If it replaces an earlier turn: the record is at the hub.
        """
        if request.replaces is not None:
            raise Forbidden("a device replaces nothing that was said", hint="Use your own token, at the hub.")
        device = self.skills.own.id
        if request.device not in (None, device):
            raise InvalidMessage(
                f"here {device} is the current device, not {request.device}",
                hint="Name the other device in the message, or ask the hub.",
            )
        matched = asked = None
        # Every other agent is the hub's, and so are its rights and files.
        if request.agent in AGENTS:
            self.skills.refresh()
            language = self.settings().household.language
            asked = self._words.take(request, user=_OWNER, token="")
            said = request.message if asked is None else asked.offer
            if asked is None or not asked.is_refused:
                matched = await self.skills.finder.understand(said, language=language, current=device)
        turn = Turn(request, user=_OWNER, device=device)
        if asked is not None and asked.is_refused:
            return await self._turns.open(turn, partial(accept_no, asked))
        if matched is not None:
            return await self._turns.open(turn, partial(self._run_sentence, matched))
        return await self._turns.open(turn, self._answer)

    async def cancel(self, turn: str, caller: None) -> TurnState:
        return await self._turns.cancel(_OWNER, turn)

    def model_states(self) -> "list[ModelState]":
        return [] if self._local is None else self._local.states()

    def cancel_all(self) -> None:
        self._turns.cancel_where(lambda _: True)

    async def confirm(self, turn: str, question: str, caller: None, *, approve: bool) -> None:
        """See `chat.service.ChatService`; the question may be this device's or the hub's."""
        if self.hub.has(turn):
            await self.hub.confirm(turn, question, approve=approve)
        else:
            self._questions.answer(_OWNER, turn, question, approve=approve)

    async def agent_names(self, caller: None) -> Sequence[str]:
        """See `chat.service.ChatService`; without the hub, those of the assistant."""
        try:
            return await self._at_hub(self.sync.agent_names)
        except StrawberryError:
            return AGENTS

    async def vocabulary(self, language: str) -> Vocabulary:
        """Return what can be said in this home, as the hub knows it.

        Raises:
            StrawberryError: If the hub cannot be asked.
        """
        return await self._at_hub(partial(self.sync.vocabulary, language))

    async def own_vocabulary(self, language: str) -> Vocabulary:
        """Return what can be said of this device alone."""
        self.skills.refresh()
        return await self.skills.finder.vocabulary(language, current=self.skills.own.id)

    async def conversations(
        self, caller: None, *, limit: int, words: str = ""
    ) -> Sequence[ConversationSummary]:
        """See `chat.service.ChatService`; without the hub, those of the cache by their first question."""
        try:
            return await self._at_hub(partial(self.sync.conversations, limit=limit, words=words))
        except StrawberryError:
            known = await self.record.conversations(limit=limit)
            return [each for each in known if words.casefold() in each.asked.casefold()]

    async def turns(
        self, conversation: str, caller: None, *, limit: int, before: str | None = None
    ) -> Sequence[TurnRecord]:
        """See `chat.service.ChatService`; without the hub, those of the cache."""
        try:
            return await self._at_hub(partial(self.sync.turns, conversation, limit=limit, before=before))
        except StrawberryError:
            return await self.record.turns(conversation, limit=limit, before=before)

    async def title(self, conversation: str, caller: None) -> str | None:
        """See `chat.service.ChatService`; without the hub, no title is known."""
        try:
            return await self._at_hub(partial(self.sync.title, conversation))
        except StrawberryError:
            return None

    async def rename(self, conversation: str, title: str | None, caller: None) -> None:
        """See `chat.service.ChatService`.

        Raises:
            HubUnreachable: If the hub cannot be asked: the record is there.
        """
        await self.sync.push()
        await self.sync.rename(conversation, title)

    async def delete(self, conversation: str, caller: None) -> None:
        """See `chat.service.ChatService`.

        Raises:
            HubUnreachable: If the hub cannot be asked: the record is there.
        """
        self._turns.cancel_where(lambda turn: turn.conversation == conversation)
        await self.sync.push()
        is_cached = bool(await self.record.turns(conversation, limit=1))
        try:
            await self.sync.delete(conversation)
        except NotFound:
            if not is_cached:
                raise unknown_conversation(conversation) from None
        await self.record.forget(conversation)
        if self._local is not None:
            self._local.forget(conversation)

    async def _at_hub(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read from the hub's record, with what was said here in it.

        Raises:
            StrawberryError: If the hub cannot be asked in the time that a message would wait for it.
        """
        try:
            async with asyncio.timeout(self.chat.hub_s):
                now = asyncio.get_running_loop().time()
                # A hub that hangs costs this time once: after that it is known to be silent.
                await self.sync.open(until=now + self.chat.hub_s / 2)
                return await read()
        except TimeoutError:
            raise NotServed("the hub does not answer") from None

    async def _run_sentence(self, matched: SentenceCall | SentenceChoice, turn: Turn) -> None:
        turn.consent = Consent(self._confirmer(turn))
        await run_sentence(
            matched,
            turn=turn.id,
            catalogue=self.skills,
            caller=self._caller(turn),
            consent=turn.consent,
            emit=turn.emit,
            device=turn.device,
        )
        if isinstance(matched, SentenceChoice) and matched.offer:
            self._words.add(turn, matched.question, language=matched.language, offer=matched.offer)

    async def _answer(self, turn: Turn) -> None:
        emit = turn.emit
        # Kept by itself: who answered a turn does not tell which notice was given. A doubtful one is
        # answered here without that of working offline, and one that breaks off is answered by neither.
        was_offline = turn.conversation in self._offline

        async def began() -> None:
            if was_offline:
                emit(Notice(text="The hub is back."))
                self._offline.discard(turn.conversation)

        try:
            await self.hub.run(turn, emit, began=began)
        except NotServed as refusal:
            turn.is_without_hub = refusal.by_hub is None
            is_alone = not self.settings().models.usable
            if turn.request.agent not in AGENTS or (is_alone and refusal.by_hub == "refused"):
                emit(TurnError(code="refused", message=refusal.message, hint=refusal.hint))
                return
            if not was_offline and not is_alone:
                emit(Notice(text=f"Working offline: {refusal}."))
                self._offline.add(turn.conversation)
            await self._answer_here(turn, emit, reason=str(refusal), can_act=True)
        except Unsure as doubt:
            if turn.request.agent not in AGENTS:
                emit(_UNKNOWN)
                return
            emit(Notice(text=f"Nothing was done here, because the hub may be working on it: {doubt}."))
            await self._answer_here(turn, emit, reason=str(doubt), can_act=False)

    async def _answer_here(self, turn: Turn, emit: Emit, *, reason: str, can_act: bool) -> None:
        """Answer with this device's own model."""
        if not self.settings().models.usable:
            emit(self._no_model(reason, turn.request.message) if can_act else _UNKNOWN)
            return
        from spoke.chat.local_turn import LocalAgent

        if self._local is None:
            self._local = LocalAgent(self.skills, settings=self.settings, tasks=self.tasks)
        recorded = await self.record.turns(turn.conversation, limit=self.chat.exchanges, ended=True)
        # The cache has no more of a conversation than that.
        beginning = Beginning(more=len(recorded) >= self.chat.exchanges)
        # What was replaced, or said to another agent of the same conversation, is not for this model.
        own = [each for each in recorded if each.agent in ("", *AGENTS) and each.replaced_by is None]
        history: Sequence[Exchange] = own or turn.request.history
        turn.consent = Consent(self._confirmer(turn))
        take_in(turn.consent, history, reader=turn.device, notes=turn.request.notes)
        # What the hub's skills brought in, this device cannot know before it has the hub's own entry: nor
        # where a sentence made the call, or the answer broke off and has no mode.
        turn.consent.untrusted |= turn.request.has_files
        turn.consent.untrusted |= any(each.mode != "offline" and each.did for each in history)
        await self._local.run(
            turn, emit, history=history, beginning=beginning, can_act=can_act, caller=self._caller(turn)
        )

    def _no_model(self, reason: str, message: str) -> TurnError:
        models = self.settings().models
        said = "; ".join(models.problems) or "no model is configured"
        examples = self.skills.finder.examples(self.settings().household.language, near=message)
        works = f"You can say: {'; '.join(examples)}." if examples else ""
        hint = " ".join(filter(None, (works, models.hint)))
        return TurnError(
            code="no_model",
            message=f"no answer from the hub ({reason}) or from this device ({said})",
            hint=hint,
        )

    def _caller(self, turn: Turn) -> OwnCaller:
        actor = Actor(user=self.owner, device=turn.device, agent=AGENTS[0], turn=turn.id)
        return OwnCaller(self.host, actor, self.epoch)

    def _confirmer(self, turn: Turn) -> TurnConfirmer | None:
        # Its own address serves the owner alone, so every caller may confirm.
        if not turn.request.can_confirm:
            return None
        return TurnConfirmer(self._questions, _OWNER, turn.id, expires_s=self.chat.confirm_s)


_UNKNOWN: Final = TurnError(
    code="broken",
    message="the hub received the message but has not answered; it may or may not act on it",
    hint="Check before you ask again.",
)
