"""Answers messages: an exact sentence first, then the model; else an honest word about what is missing."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from agent_core.conversation import Exchange, messages_of
from agent_core.gateway.opening import LiveGateway
from agent_core.loop import TurnRequest as ModelTurn
from agent_core.loop import run_turn
from agent_core.prompt import Household, Presence, context_block, system_prompt
from agent_core.search.finder import DirectoryCatalogue
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.sentences.sentence_turn import run_sentence
from agent_core.tools.native import native_mode
from agent_core.tools.toolset import SkillToolset
from chat.questions import Questions, TurnConfirmer
from chat.sandbox import Sandbox
from chat.turns import Turn, TurnKey, TurnRequest, Turns
from contracts.chat import AGENTS, check_agent
from contracts.errors import NoModel
from contracts.events import TurnEvent
from contracts.history import hub_writer
from contracts.rpc import Actor
from hub_agent.calls.device_manager import ActingCaller, DeviceManager
from hub_agent.chat.conversations import Conversations
from hub_agent.settings import HubSettings
from hub_registry.access.accounts import User
from hub_registry.devices.directory import Entry
from hub_registry.registry import Registry
from hub_registry.storage.tables import now


@dataclass(frozen=True)
class Asking:
    """A message of a person, and how it came.

    Attributes:
        user: On whose behalf.
        token: ``jti`` of the token.
        device: Id of the current device, where there is one.
        through: Id of the device that asks, where one does.
        can_confirm: Whether whoever follows the turn can show questions and answer them.
        history: Earlier exchanges as the client knows them; used where the hub knows none.
        notes: Material of the client for the model, not instructions of ours.
    """

    user: User
    token: str
    turn: str
    conversation: str
    message: str
    device: str | None = None
    through: str | None = None
    can_confirm: bool = False
    agent: str = AGENTS[0]
    history: tuple[Exchange, ...] = ()
    notes: str = ""


@dataclass(frozen=True)
class Assistant:
    """The hub's agent.

    Attributes:
        gateway: Its models are those that are asked now; they may change while the hub runs.
    """

    settings: HubSettings
    registry: Registry
    manager: DeviceManager
    conversations: Conversations
    turns: Turns
    questions: Questions
    sandbox: Sandbox
    gateway: LiveGateway

    async def ask(self, asking: Asking) -> Turn:
        """Begin a turn, if it can be served; until then nothing of it is kept.

        Raises:
            Conflict: If this turn came before, or was cancelled.
            NoModel: If no sentence matches and there is no model; says what works.
            NotFound: If there is no such agent.
        """
        check_agent(asking.agent)
        matched = self.registry.search.match(
            asking.message, language=self._household(asking.user).language, current=asking.device
        )
        if matched is not None:
            run = partial(self._say, asking, matched)
        elif self.gateway.models.usable:
            run = partial(self._think, asking)
        else:
            raise self._no_model(asking.user)
        request = TurnRequest(
            key=TurnKey(asking.user.id, asking.turn),
            conversation=asking.conversation,
            message=asking.message,
            token=asking.token,
            device=asking.device,
            through=asking.through,
            agent=asking.agent,
        )
        return await self.turns.open(request, run)

    def catalogue(self, device: str | None) -> DirectoryCatalogue:
        """Return the skills as they are seen from a device."""
        return self.registry.search.catalogue(device)

    def _say(
        self, asking: Asking, matched: SentenceCall | SentenceChoice, turn: Turn
    ) -> AsyncGenerator[TurnEvent, None]:
        return run_sentence(
            matched,
            turn=asking.turn,
            catalogue=self.catalogue(asking.device),
            caller=ActingCaller(self.manager, self._actor(asking)),
            confirmer=self._confirmer(asking),
            device=asking.device,
        )

    async def _think(self, asking: Asking, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        known = await self.conversations.history(
            asking.user.id, asking.conversation, limit=self.settings.turns.exchanges
        )
        history = known or list(asking.history)
        catalogue = self.catalogue(asking.device)
        toolset = SkillToolset(
            catalogue,
            caller=ActingCaller(self.manager, self._actor(asking)),
            session=self.sandbox.session(asking.user.id, asking.conversation),
            confirmer=self._confirmer(asking),
            limits=self.settings.turns.tools,
            untrusted=any(exchange.untrusted for exchange in history),
        )
        household = self._household(asking.user)
        request = ModelTurn(
            turn=asking.turn,
            message=asking.message,
            system=system_prompt(household),
            history=messages_of(history, reader=hub_writer(self.settings.instance)),
            context=self._context(household, asking),
            device=asking.device,
        )
        events = run_turn(
            request,
            gateway=self.gateway,
            toolset=toolset,
            native=await native_mode(
                self.gateway.models,
                catalogue,
                toolset,
                system=system_prompt(household, "native"),
                # "And in the hall?" is about what the message before was about.
                said=(*(exchange.question for exchange in history[-1:]), asking.message),
            ),
            limits=self.settings.turns.limits,
        )
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        finally:
            turn.untrusted = toolset.untrusted

    def _actor(self, asking: Asking) -> Actor:
        return Actor(
            user=asking.user.id,
            device=asking.device,
            agent=AGENTS[0],
            turn=asking.turn,
            read_only=asking.user.read_only,
        )

    def _confirmer(self, asking: Asking) -> TurnConfirmer | None:
        if not asking.can_confirm:
            return None
        return TurnConfirmer(
            self.questions, asking.user.id, asking.turn, expires_s=self.settings.turns.confirm_s
        )

    def _household(self, user: User) -> Household:
        household = self.settings.household
        return replace(
            household,
            language=user.language or household.language,
            time_zone=user.time_zone or household.time_zone,
        )

    def _context(self, household: Household, asking: Asking) -> str:
        entries = self.registry.directory.entries()
        here = next((entry for entry in entries if entry.id == asking.device), None)
        return context_block(
            household,
            now(),
            current=_presence(here) if here else None,
            devices=tuple(_presence(entry) for entry in entries if not entry.device.revoked),
            notes=asking.notes,
        )

    def _no_model(self, user: User) -> NoModel:
        models = self.gateway.models
        said = "; ".join(models.problems) or "no model is configured"
        examples = self.registry.search.examples(self._household(user).language)
        works = f"These sentences work without one: {'; '.join(examples)}." if examples else ""
        return NoModel(f"{said}", hint=" ".join(filter(None, (works, models.hint))))


def _presence(entry: Entry) -> Presence:
    device = entry.device
    return Presence(key=device.key, name=device.display_name, area=device.area or "", online=entry.connected)
