"""All resources of the hub, in the order of the documentation."""

from typing import Any, Final

from chat.conversations import conversations
from chat.operations import Resource
from hub_agent.agents.operations import agents
from hub_agent.prompt.operations import prompt
from hub_home_assistant.outward.operations import home_assistant
from hub_live.captures.operations import captures
from hub_live.events.operations import events
from hub_live.memory.operations import memory
from hub_live.nodes import nodes
from hub_live.notifications import notifications
from hub_live.push import push
from hub_live.topics.operations import bus
from hub_live.watchers.operations import timers, watchers
from hub_live.world.operations import world
from hub_registry.access.bearer import Bearer
from hub_registry.http.clients import clients
from hub_registry.http.devices import devices, joining
from hub_registry.http.sessions import home, sessions
from hub_registry.http.skills import skills
from hub_registry.http.tokens import tokens
from hub_registry.http.users import users
from hub_server.http.audit import audit
from hub_server.http.installation import installation
from hub_server.http.sentences import sentences
from hub_server.http.skills import calls
from hub_server.http.turns import turns
from hub_server.mcp.clients import mcp_servers
from hub_server.system.cluster import cluster
from hub_server.system.first_steps import first_steps
from hub_server.system.models import models
from hub_server.system.operations import system

RESOURCES: Final[tuple[Resource[Any, Bearer], ...]] = (
    conversations,
    turns,
    prompt,
    sentences,
    calls,
    agents,
    bus,
    skills,
    mcp_servers,
    captures,
    watchers,
    timers,
    events,
    world,
    nodes,
    memory,
    sessions,
    users,
    home,
    devices,
    installation,
    joining,
    tokens,
    clients,
    audit,
    home_assistant,
    notifications,
    push,
    models,
    system,
    first_steps,
    cluster,
)
