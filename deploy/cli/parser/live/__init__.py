"""The words of the commands of the live home: one module for each part."""

from deploy.cli.parser.live import (
    agents,
    bus,
    captures,
    events,
    home_assistant,
    mcp,
    memory,
    nodes,
    notify,
    watchers,
    world,
)
from deploy.cli.parser.shared import Commands, Parents

_PARTS = (agents, bus, captures, events, home_assistant, mcp, memory, nodes, notify, watchers, world)


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands of all parts."""
    for part in _PARTS:
        part.add(commands, parents)
