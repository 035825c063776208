"""What models are told: by Strawberry, by the owner of the home, and by the home as it is now."""

from hub_agent.prompt.prompter import Asked, Context, Contribution, Prompter, Told
from hub_agent.prompt.soul import open_soul

__all__ = ["Asked", "Context", "Contribution", "Prompter", "Told", "open_soul"]
