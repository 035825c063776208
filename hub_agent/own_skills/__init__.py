"""The hub's own skills: what the hub itself can do, offered on the virtual device ``hub``.

``skill``   their base class, and who calls
``host``    offers them in the directory and runs them
"""

from hub_agent.own_skills.host import OwnSkills
from hub_agent.own_skills.skill import Asking, HubSkill

__all__ = ["Asking", "HubSkill", "OwnSkills"]
