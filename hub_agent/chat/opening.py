"""The assistant with what it records and runs: its turns, their record, its agents."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from agent_core.gateway.opening import LiveGateway
from chat.questions import Questions
from chat.sandbox import Sandbox
from chat.tasks import supervise
from chat.turns import Turn, Turns
from hub_agent.agents.agents import open_agents
from hub_agent.calls.audit import AuditTrail
from hub_agent.calls.confirmations import ConfirmationTokens
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.calls.direct import DirectCalls
from hub_agent.calls.rate import Quotas
from hub_agent.chat.agent_skill import AgentSkill
from hub_agent.chat.assistant import Assistant
from hub_agent.chat.history import Histories
from hub_agent.chat.record import ConversationRecord
from hub_agent.chat.traces import Traces
from hub_agent.prompt import Contribution, Prompter, open_soul
from hub_agent.settings import HubSettings
from hub_registry.registry import Registry


@dataclass(frozen=True)
class AgentParts:
    """The assistant, and what is beside it."""

    assistant: Assistant
    calls: DirectCalls
    skill: AgentSkill
    traces: Traces


@asynccontextmanager
async def open_agent(
    settings: HubSettings,
    registry: Registry,
    *,
    manager: DeviceManager,
    gateway: LiveGateway,
    histories: Histories,
    sandbox: Sandbox,
    trail: AuditTrail,
    contributions: Mapping[str, Contribution],
    tasks: asyncio.TaskGroup,
    on_ended: Sequence[Callable[[Turn], None]],
) -> AsyncIterator[AgentParts]:
    """Answer messages for as long as the context is open.

    Args:
        contributions: See `Prompter`.
        on_ended: Called with each turn that has ended.
    """
    record = ConversationRecord(registry.store, instance=settings.instance)
    await record.clean_up()
    quotas = Quotas(settings.quotas)
    turns = Turns(record, tasks=tasks, slots=quotas.turns, on_ended=on_ended)
    supervise(tasks, partial(record.keep_answers, turns), name="answers so far")
    prompter = Prompter(
        settings.household,
        registry.directory,
        soul=open_soul(settings.directory),
        contributions=contributions,
    )
    questions = Questions()
    calls = DirectCalls(
        manager=manager,
        registry=registry,
        sandbox=sandbox,
        questions=questions,
        quotas=quotas,
        settings=settings,
        confirmations=ConfirmationTokens(
            expires_s=settings.turns.confirm_s, issuer=settings.instance if settings.is_replica else ""
        ),
    )
    async with open_agents(settings.home, gateway) as agents:
        assistant = Assistant(
            settings=settings,
            registry=registry,
            manager=manager,
            record=record,
            histories=histories,
            running=turns,
            questions=questions,
            sandbox=sandbox,
            gateway=gateway,
            quotas=quotas,
            trail=trail,
            prompter=prompter,
            agents=agents,
        )
        # A program that asks an agent keeps its sandbox process, and agents need one for theirs.
        most = settings.sandbox.processes - 1
        skill = AgentSkill(assistant.ask, agents, turns, hub_id=registry.hub_id, most=most)
        yield AgentParts(assistant, calls, skill, Traces(registry.store, turns))
