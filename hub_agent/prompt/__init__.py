"""What models are told: by Strawberry, by the owner of the home, and by the home as it is now."""

from hub_agent.prompt.prompter import Asked, Contribution, Prompter, Told
from hub_agent.prompt.soul import open_soul

__all__ = ["Asked", "Contribution", "Prompter", "Told", "open_soul"]
