"""The agents of the home as a skill: the assistant asks them on behalf of a person."""

from typing import Annotated, Final

from pydantic import Field

from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from chat.turns import Turns
from contracts.chat.messages import AGENTS, MAX_MESSAGE, ChatRequest, TurnFinal
from contracts.errors import CallError, ErrorCode, Forbidden
from contracts.wire import Json
from hub_agent import limits
from hub_agent.agents.agents import Agents
from hub_agent.calls.own_skills import HubSkill
from hub_agent.chat.assistant import Ask
from hub_registry.access.bearer import Bearer

_READ: Final = "The assistant asks this for a person, after it has read what devices or strangers wrote."


class AgentSkill(HubSkill):
    """Agents beside the assistant: specialists with instructions, files and tools of their own."""

    labels = labels_of("AgentSkill", english={"AgentSkill": "Assistants"})

    def __init__(self, ask: Ask, agents: Agents, running: Turns, *, hub_id: str, most: int) -> None:
        self._ask = ask
        self._agents = agents
        self._running = running
        self._hub_id = hub_id
        self._most = most
        self._asked = 0

    @skill_method(read_only=True)
    async def list_agents(self) -> list[dict[str, Json]]:
        """List the agents that can be asked, with what each is for."""
        found = self._agents.all()
        return [
            {"name": each.name, "description": each.profile.description} for each in found if each.profile
        ]

    @skill_method(untrusted_output=True, timeout_s=limits.AGENT_ANSWER_S)
    async def ask(
        self, agent: str, message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
    ) -> str:
        """Ask an agent, and return its answer. It knows nothing of this conversation.

        It acts with the rights of the person, within what its profile allows. What needs a confirmation it
        cannot do so: there the person asks it directly.

        Args:
            agent: Its name, as list_agents gives it.
            message: Everything that it must know.
        """
        asking = self.asking
        outer = self._running.get(asking.user.id, asking.actor.turn or "")
        if outer is None or asking.actor.agent not in AGENTS or agent in AGENTS:
            raise Forbidden(
                "only the assistant asks agents, in a conversation, and agents ask none",
                agent=agent[:64],
                hint="Choose it in the chat. Or ask it directly: strawberry chat --agent {agent}.",
            )
        profile = self._agents.find(agent)
        # The consent of the turn counts this answer already.
        has_read = asking.untrusted or bool(outer.consent.heard)
        request = ChatRequest(
            message=message, agent=profile.name, device=outer.device, notes=_READ if has_read else ""
        )
        # A part of the hub asks: no person confirms through it.
        name = f"agents {asking.user.id}"
        if self._asked >= self._most:
            raise CallError(
                ErrorCode.BUSY,
                "at most {most} agents can be asked at once, and as many are",
                most=self._most,
                hint="Ask one after the other, or again later.",
            )
        self._asked += 1
        try:
            # The clock of the program that asks stands still: an agent asks a model several times. The turn's
            # goes on.
            with asking.waiting():
                turn = await self._ask(request, Bearer.inside(self._hub_id, name, asking.user))
                last = await turn.last()
        finally:
            self._asked -= 1
        if isinstance(last, TurnFinal):
            return last.answer
        raise CallError(
            ErrorCode.SKILL_ERROR, "{name}: {text}", name=profile.name, text=last.message, hint=last.hint
        )
