"""A device of the home, and the base of skills: ``from spoke import Skill, skill_method``."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_core.skills.skill import Skill, SkillCancelled, Unit, skill_method

__all__ = ["Skill", "SkillCancelled", "Unit", "skill_method"]


def __getattr__(name: str) -> Any:
    # Imported on demand, so that commands that only need the package start without the framework.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("agent_core.skills.skill"), name)
