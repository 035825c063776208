"""The world: devices, skills, areas and entities of the home, with what they are at this moment.

``discovery``   entities that announce themselves on the home broker
``world``       all of it, found by area, kind and name
``section``     what a prompt says of it
``skill``, ``http``   the ways in
"""

from hub_agent.live.world.world import Thing, World, WorldView, open_world

__all__ = ["Thing", "World", "WorldView", "open_world"]
