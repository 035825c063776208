"""Everything that the author of a skill imports: ``from strawberry_skills import Skill, skill_method``.

Within one number of ``API``, names are added and none is changed or removed.
"""

from typing import Final

from agent_core.skills.availability import SkillUnavailable
from agent_core.skills.skill import Skill, SkillCancelled, Unit, at, every, on_event, on_value, skill_method
from contracts.errors import CallError

__all__ = [
    "API",
    "CallError",
    "Skill",
    "SkillCancelled",
    "SkillUnavailable",
    "Unit",
    "at",
    "every",
    "on_event",
    "on_value",
    "skill_method",
]

API: Final = 1
