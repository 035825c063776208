"""The world: devices, skills, areas and entities of the home, with what they are at this moment.

``thing``       what there is
``discovery``   entities that announce themselves on the home broker
``entities``    those of them that there are
``world``       all of it, found by area, kind and name
``section``     what a prompt says of it
``skill``, ``http``   the ways in
"""

from hub_agent.live.world.thing import Thing
from hub_agent.live.world.world import World, WorldView, open_world

__all__ = ["Thing", "World", "WorldView", "open_world"]
