"""The hub's agent: an exact sentence first, then the model; without both, an error that says what works."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from agent_core.conversation import attached, client_tools, messages_of, notes_of, steps_of, take_in
from agent_core.finder import DirectoryCatalogue
from agent_core.gateway.opening import LiveGateway
from agent_core.loop import TurnRequest as ModelTurn
from agent_core.loop import run_turn
from agent_core.models.entries import Models
from agent_core.prompt import context_block, joined
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.tools.native import NativeMode, native_mode
from agent_core.tools.sentence_turn import run_sentence
from agent_core.tools.skill_calls import Consent
from agent_core.tools.toolset import SkillToolset, Toolset
from chat.questions import Questions, TurnConfirmer
from chat.sandbox import Sandbox
from chat.turns import Turn, Turns, TurnWork
from chat.word_questions import WordQuestion, WordQuestions, accept_no
from contracts.chat.messages import (
    AGENTS,
    HOME_ASSISTANT,
    ChatRequest,
    ConversationSummary,
    Exchange,
    TurnError,
    TurnRecord,
    TurnState,
)
from contracts.devices.rpc import Actor
from contracts.errors import NoModel
from contracts.phrases import Phrase
from contracts.tracing.trace import span
from hub_agent.agents.agent import ASSISTANT, Agent
from hub_agent.agents.agents import Agents
from hub_agent.agents.rights import AllowedCaller, AllowedCatalogue, allowed_sentence
from hub_agent.agents.tools import AgentToolset
from hub_agent.calls.audit import AuditTrail, Origin
from hub_agent.calls.device_manager import ActingCaller, DeviceManager
from hub_agent.calls.rate import Quotas
from hub_agent.chat.history import Histories, History, Reader
from hub_agent.chat.record import ConversationRecord
from hub_agent.chat.spoken_yes import WordConsent
from hub_agent.prompt import Asked, Prompter
from hub_agent.settings import HubSettings
from hub_registry.access.accounts import User
from hub_registry.access.bearer import Bearer, cannot_confirm
from hub_registry.registry import Registry
from identity import tokens

Ask: TypeAlias = Callable[[ChatRequest, Bearer], Awaitable[Turn]]
"""Begins a turn; see `Assistant.ask`."""


@dataclass(frozen=True)
class Assistant:
    """The hub's agent; see `chat.service.ChatService`.

    Attributes:
        gateway: Its models are those that are asked now; they may change while the hub runs.
        quotas: What each token may use, over HTTP and the bus together.
    """

    settings: HubSettings
    registry: Registry
    manager: DeviceManager
    record: ConversationRecord
    histories: Histories
    running: Turns
    questions: Questions
    sandbox: Sandbox
    gateway: LiveGateway
    quotas: Quotas
    trail: AuditTrail
    prompter: Prompter
    agents: Agents
    words: WordQuestions = field(default_factory=WordQuestions)

    async def ask(self, request: ChatRequest, caller: Bearer) -> Turn:
        """See `chat.service.ChatService`.

        Raises:
            TooManyRequests: If a quota of the token is used up.
            CallError: If there is no device of the given name.
        """
        with self.trail.refusals(caller.claims, method="chat"):
            return await self._ask(request, caller)

    async def _ask(self, request: ChatRequest, caller: Bearer) -> Turn:
        person = self.may_confirm(caller)
        self.quotas.sentences.spend(caller.claims, person=person)
        device = caller.device
        if device is None and request.device is not None:
            device = self.registry.directory.seen_by(caller.user.id).resolve(request.device).id
        agent = self.agents.find(request.agent)
        user = caller.user
        await self.registry.search.catch_up()
        matched = None
        asked = self.words.take(request, user=user.id, token=caller.claims.jti)
        refused = asked if asked is not None and asked.is_refused else None
        confirmed = asked if asked is not None and asked.matched is not None else None
        said = request.message if asked is None else asked.offer or asked.said
        if refused is not None:
            pass
        elif confirmed is not None:
            matched = allowed_sentence(confirmed.matched, agent.allow)
        elif agent.acts_on_sentences and not request.steps and not request.has_files:
            language = self.prompter.household(user).language
            meant = await self.registry.search.understand(
                said,
                language=language,
                current=device,
                user=user.id,
                patient=not self.agents.gateway(agent).models.usable,
            )
            matched = allowed_sentence(meant, agent.allow)
        missing = None
        if matched is None and refused is None:
            if self.agents.gateway(agent).models.usable:
                self.quotas.messages.spend(caller.claims, person=person)
            elif caller.device is None:
                missing = self._no_model(user, agent, said)
            else:
                # It may answer this turn itself, and hands it in.
                raise self._no_model(user, agent, said)
        if caller.device is not None:
            # The record of a device's conversations is here; its own instructions are for its own model.
            request = request.model_copy(update={"history": (), "notes": "", "tools": (), "steps": ()})
        if not person:
            request = request.model_copy(update={"can_confirm": False})
        conversation = request.conversation and await self._recorded_as(request.conversation, caller)
        turn = Turn(
            request,
            user=user.id,
            device=device,
            through=key_of(caller),
            conversation=conversation or "",
            token=caller.claims.jti,
            holder=caller.claims.holder,
            is_person=person,
        )
        if self.registry.authority.is_revoked(turn.token):
            # Since it was checked: from here on, a revocation finds the turn.
            raise tokens.revoked()
        by_words: TurnWork | None = None
        if refused is not None:
            by_words = partial(accept_no, refused)
        elif matched is not None:
            by_words = partial(self._run_sentence, caller, agent, matched, confirmed, said)
        if by_words is not None:
            await self.running.open(turn, by_words, slots=self.quotas.sentence_turns)
        else:
            work = partial(self._run_model, caller, agent) if missing is None else partial(_fail, missing)
            await self.running.open(turn, work)
        if request.replaces is not None:
            # What programs that were replaced had read is in their variables.
            self._forget_variables(user.id, turn.conversation)
        if missing is not None:
            turn.release()
            await turn.ended.wait()
            raise missing
        return turn

    async def cancel(self, turn: str, caller: Bearer) -> TurnState:
        return await self.running.cancel(caller.user.id, turn, through=key_of(caller))

    async def confirm(self, turn: str, question: str, caller: Bearer, *, approve: bool) -> None:
        """See `chat.service.ChatService`.

        Raises:
            Forbidden: If no person is known to answer through this caller.
        """
        with self.trail.refusals(caller.claims, method="confirm"):
            if not self.may_confirm(caller):
                raise cannot_confirm()
        self.questions.answer(caller.user.id, turn, question, approve=approve)
        if approve and (running := self.running.get(caller.user.id, turn)) is not None:
            running.confirmed_by = caller.claims.jti

    def may_confirm(self, caller: Bearer) -> bool:
        return self.registry.directory.may_confirm(caller.claims)

    async def agent_names(self, caller: Bearer) -> Sequence[str]:
        return self.agents.names()

    async def conversations(
        self, caller: Bearer, *, limit: int, words: str = ""
    ) -> Sequence[ConversationSummary]:
        """See `chat.service.ChatService`; a device sees those that it began."""
        user, key = caller.user.id, key_of(caller)
        near = await self.histories.near(user, words)
        return await self.record.conversations(user, limit=limit, through=key, words=words, near=near)

    async def turns(
        self, conversation: str, caller: Bearer, *, limit: int, before: str | None = None
    ) -> Sequence[TurnRecord]:
        """See `chat.service.ChatService`."""
        user, key = caller.user.id, key_of(caller)
        return await self.record.turns(user, conversation, limit=limit, before=before, through=key)

    async def title(self, conversation: str, caller: Bearer) -> str | None:
        return await self.record.title(caller.user.id, await self._recorded_as(conversation, caller))

    async def rename(self, conversation: str, title: str | None, caller: Bearer) -> None:
        """See `chat.service.ChatService`."""
        name = await self._recorded_as(conversation, caller)
        await self.record.rename(caller.user.id, name, title, through=key_of(caller))

    async def delete(self, conversation: str, caller: Bearer) -> None:
        """See `chat.service.ChatService`."""
        user, name = caller.user.id, await self._recorded_as(conversation, caller)
        await self.record.delete(user, name, through=key_of(caller))
        self.running.cancel_where(lambda turn: (turn.user, turn.conversation) == (user, name))
        self._forget_variables(user, name)

    async def forget_person(self, user: str) -> None:
        """Delete all that was said with a person who was removed."""
        self.running.cancel_where(lambda turn: turn.user == user)
        for conversation in await self.record.forget_person(user):
            self._forget_variables(user, conversation)

    def _forget_variables(self, user: str, conversation: str) -> None:
        for agent in (ASSISTANT, *self.agents.all()):
            self.sandbox.forget(user, _place(conversation, agent))

    async def _recorded_as(self, conversation: str, caller: Bearer) -> str:
        key = key_of(caller)
        if key is None:
            return conversation
        return await self.record.recorded_as(caller.user.id, conversation, through=key)

    async def _run_sentence(
        self,
        asker: Bearer,
        agent: Agent,
        matched: SentenceCall | SentenceChoice,
        confirmed: WordQuestion | None,
        said: str,
        turn: Turn,
    ) -> None:
        caller = self._caller(asker, agent, turn)
        turn.consent = self._consent(turn, caller)
        in_words = None
        if (
            not turn.request.can_confirm
            and "say_yes" in asker.claims.scopes
            and isinstance(matched, SentenceCall)
        ):
            digest = confirmed.digest if confirmed is not None else ""
            turn.consent = in_words = WordConsent(said, matched.language, confirmed=digest)
            if confirmed is not None:
                turn.confirmed_by = turn.token
        await run_sentence(
            matched,
            turn=turn.id,
            catalogue=DirectoryCatalogue(self.registry.search, turn.device, user=asker.user.id),
            caller=caller,
            consent=turn.consent,
            emit=turn.emit,
            device=turn.device,
        )
        if in_words is not None and in_words.question and isinstance(matched, SentenceCall):
            self.words.add(
                turn,
                in_words.question,
                language=matched.language,
                matched=matched,
                digest=in_words.digest,
            )
        elif isinstance(matched, SentenceChoice) and matched.offer:
            self.words.add(turn, matched.question, language=matched.language, offer=matched.offer)

    async def _run_model(self, asker: Bearer, agent: Agent, turn: Turn) -> None:
        with span("hub", "prompt"):
            reader, read, run = await self._prepared(asker, agent, turn)
        await run()
        self.histories.keep_up(reader, read, self.agents.gateway(agent))

    async def _prepared(
        self, asker: Bearer, agent: Agent, turn: Turn
    ) -> tuple[Reader, History, Callable[[], Awaitable[None]]]:
        """Return the conversation as it is read, who reads it, and the run of the agent."""
        reader = Reader(turn.user, turn.conversation, turn.through, _names(agent))
        read = await self.histories.read(reader)
        history: Sequence[Exchange] = read.turns or turn.request.history
        caller = self._caller(asker, agent, turn)
        turn.consent = self._consent(turn, caller)
        summary = read.beginning.summary
        take_in(turn.consent, history, reader=None, notes=turn.request.notes, summary=summary)
        turn.consent.untrusted |= bool(turn.request.steps) or turn.request.has_files
        # "And in the hall?" is about what the message before was about.
        said = (*(exchange.question for exchange in history[-1:]), turn.request.message)
        asked = Asked(asker.user, said, turn.device, notes_of(turn.request))
        context = await self.prompter.context(agent, asked)
        turn.consent.untrusted |= context.untrusted
        request = ModelTurn(
            turn=turn.id,
            message=turn.request.message,
            system=joined(self.prompter.system(agent, asker.user, skills=not turn.request.tools)),
            history=messages_of(history, reader=None),
            beginning=read.beginning,
            context=context_block(context.sections),
            device=turn.device,
            client_tools=client_tools(turn.request),
            steps=steps_of(turn.request),
            attached=attached(turn.request.files),
            images=turn.request.images,
        )
        gateway = self.agents.gateway(agent)
        toolset, native = None, None
        if not turn.request.tools:
            toolset, native = await self._toolsets(agent, asker.user, turn, caller, gateway.models, said)
        run = partial(
            run_turn,
            request,
            gateway=gateway,
            toolset=toolset,
            emit=turn.emit,
            native=native,
            limits=self.settings.turns.limits,
        )
        return reader, read, run

    async def _toolsets(
        self,
        agent: Agent,
        user: User,
        turn: Turn,
        caller: ActingCaller,
        models: Models,
        said: tuple[str, ...],
    ) -> tuple[Toolset | None, NativeMode | None]:
        """Return the tools of an agent for a turn, and those for models with ``tools = "native"``."""
        catalogue = AllowedCatalogue(self.registry.search, turn.device, user=user.id, allow=agent.allow)
        toolset: Toolset | None = None
        native: NativeMode | None = None
        if agent.allow != ():
            toolset = skills = SkillToolset(
                catalogue,
                caller=caller,
                session=self.sandbox.session(turn.user, _place(turn.conversation, agent), owner=turn.holder),
                consent=turn.consent,
            )
            system = joined(self.prompter.system(agent, user, "native"))
            native = await native_mode(models, catalogue, skills, system=system, said=said)
        tools = await self.agents.tools(agent)
        if tools is None:
            return toolset, native
        beside = partial(
            AgentToolset,
            tools,
            # That it may only read what devices do says nothing about its own tools.
            caller=replace(caller, actor=caller.actor.model_copy(update={"read_only": user.read_only})),
            catalogue=catalogue,
            consent=turn.consent,
        )
        return beside(beside=toolset), native and replace(native, toolset=beside(beside=native.toolset))

    def _caller(self, asker: Bearer, agent: Agent, turn: Turn) -> ActingCaller:
        def origin() -> Origin:
            return replace(Origin.of(asker.claims), confirmed_by=turn.confirmed_by)

        user = asker.user
        actor = Actor(
            user=user.id,
            device=turn.device,
            agent=HOME_ASSISTANT if asker.claims.jti == HOME_ASSISTANT else agent.name,
            turn=turn.id,
            read_only=user.read_only or agent.read_only,
        )
        return AllowedCaller(self.manager, actor, origin, turn.conversation, allow=agent.allow)

    def _consent(self, turn: Turn, caller: ActingCaller) -> Consent:
        if not turn.request.can_confirm:
            return Consent(None, on_refused=caller.note_refused)
        expires_s = self.settings.turns.confirm_s
        confirmer = TurnConfirmer(self.questions, turn.user, turn.id, expires_s)
        return Consent(confirmer, on_refused=caller.note_refused)

    def _no_model(self, user: User, agent: Agent, message: str) -> NoModel:
        if agent is not ASSISTANT:
            models = self.agents.models(agent)
            said = Phrase.joined("; ", models.problems or ["none is configured"])
            return NoModel(
                "the agent {agent} has no model: {said}", agent=agent.name, said=said, hint=models.hint
            )
        models = self.gateway.models
        said = Phrase.joined("; ", models.problems or [Phrase("no model is configured")])
        language = self.prompter.household(user).language
        examples = self.registry.search.examples(language, user.id, near=message, read_only=user.read_only)
        works = Phrase("You can say: {examples}.", examples="; ".join(examples)) if examples else ""
        return NoModel(said, hint=Phrase.joined(" ", [each for each in (works, models.hint) if each]))


async def _fail(error: NoModel, turn: Turn) -> None:
    # What was asked is stored with the reason.
    turn.emit(TurnError(code="no_model", message=error.message, hint=error.hint))


def key_of(caller: Bearer) -> str | None:
    """Return what a device or a login of the broker is known by in the record; None for a user's token.

    Of a device that is the thumbprint of its key, of a login the SHA-256 of its name.
    """
    claims = caller.claims
    if claims.kind == "client":
        return hashlib.sha256(f"login {claims.sub}".encode()).hexdigest()
    if caller.device is None:
        return None
    return claims.cnf.jkt if claims.cnf else caller.device


def _place(conversation: str, agent: Agent) -> str:
    # Each agent has variables of its own.
    return conversation if agent is ASSISTANT else f"{conversation} {agent.name}"


def _names(agent: Agent) -> tuple[str, ...]:
    return (*AGENTS, "") if agent is ASSISTANT else (agent.name,)
