"""The prompts of models: Strawberry's text, the owner's, and the state of the home."""

from hub_agent.prompt.prompter import Asked, Context, Contribution, Prompter, PromptPart, list_part
from hub_agent.prompt.soul import open_soul

__all__ = ["Asked", "Context", "Contribution", "PromptPart", "Prompter", "list_part", "open_soul"]
