"""What the model of an agent is told: its own instructions in place of the assistant's."""

from agent_core.models.entries import ToolMode
from agent_core.prompt import Section
from hub_agent.agents.profiles import ASSISTANT, Agent
from hub_agent.prompt import Asked, Context, Prompter
from hub_registry.access.accounts import User


def system_of(agent: Agent, prompter: Prompter, user: User, mode: ToolMode = "code") -> tuple[Section, ...]:
    """Return the system prompt of an agent; the same from turn to turn until its profile changes."""
    profile = agent.profile
    if profile is None:
        return prompter.system(user, mode)
    sections = prompter.system(user, mode, soul=profile.prompt)
    texts = {section.name: section for section in sections if section.name != "role"}
    if not profile.skills.allow:
        del texts["acting"]
    return texts.pop("soul"), *texts.values()


async def context_of(agent: Agent, prompter: Prompter, asked: Asked) -> Context:
    """Return what changes from turn to turn; what is known of the home is for the assistant alone."""
    return await prompter.context(asked, devices=agent.allow != (), home=agent is ASSISTANT)
