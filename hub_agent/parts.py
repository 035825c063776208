"""What a hub has opened before anything is served: its registry, its bus, its agent."""

from dataclasses import dataclass

from agent_core.gateway.opening import LiveGateway
from agent_core.lazy import Lazy
from chat.http.streams import Connections
from chat.operations import Operations
from hub_agent.bus.connection import Bus
from hub_agent.calls.audit import AuditTrail
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.calls.own_skills import OwnSkills
from hub_agent.chat.history import Histories
from hub_agent.chat.opening import AgentParts
from hub_agent.settings import HubSettings
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.registry import Registry
from sandbox_host import Pool


@dataclass(frozen=True, kw_only=True)
class HubParts:
    """The parts of a hub that the others work with.

    Attributes:
        registry: Of a replica that leads, with a store that refuses writes when another one leads.
        own: The hub's own skills.
        manager: Of a replica that leads, one that calls nothing when another one leads.
        gateway: The models.
        histories: Knows what was said in all conversations.
        connections: The clients that wait.
        gate: Knows who asks.
        operations: What the hub can do, for others in this process.
        sandbox: The sandbox processes; the first program opens them, or who starts that before.
    """

    settings: HubSettings
    registry: Registry
    trail: AuditTrail
    bus: Bus
    own: OwnSkills
    manager: DeviceManager
    gateway: LiveGateway
    histories: Histories
    agent: AgentParts
    connections: Connections
    gate: Gate
    operations: Operations[Bearer]
    sandbox: Lazy[Pool]
