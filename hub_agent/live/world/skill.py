"""The world as a skill of the hub."""

from agent_core.skills.skill import skill_method
from contracts.errors import InvalidMessage
from hub_agent.live.world.world import World, WorldView
from hub_agent.own_skills import HubSkill

MAX_THINGS = 500
"""A thing has some 300 bytes as JSON, and a result at most 256 kB."""


class WorldSkill(HubSkill):
    """What there is in the home, and how it is now: devices, areas, lights, sensors, states, nodes."""

    def __init__(self, world: World) -> None:
        self._world = world

    @skill_method(read_only=True, idempotent=True, untrusted_output=True)
    async def get_world(
        self, area: str | None = None, kind: str | None = None, name: str | None = None, limit: int = 100
    ) -> WorldView:
        """Look up what there is in the home and how it is now: is the light on, how warm is it, since when.

        Args:
            area: Only what is there, for example Kitchen.
            kind: Only device, skill, node, area, state, or a kind of entity such as light or sensor;
                entity for everything that has a state.
            name: Only what is called so.
            limit: At most so many; "more" counts the others.

        Returns:
            "things"; topic, link and field of a thing are what a watcher or a capture follows.
        """
        if not 1 <= limit <= MAX_THINGS:
            raise InvalidMessage(f"limit is 1 to {MAX_THINGS}, not {limit}")
        user = self.asking.user.id
        return await self._world.seen(self._world.view(user, area=area, kind=kind, name=name, limit=limit))
