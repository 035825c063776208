"""The world: devices, skills, areas and entities of the home, with what they are at this moment.

``thing``       what there is
``discovery``   entities that announce themselves on the home broker
``entities``    those of them that there are
``world``       all of it, found by area, kind and name; also by the assistant
``section``     what a prompt says of it
``operations``  the same for programs
"""

from hub_live.world.thing import Thing
from hub_live.world.world import World, WorldSkill, WorldView, open_world

__all__ = ["Thing", "World", "WorldSkill", "WorldView", "open_world"]
