"""The system prompt of an agent: its own instructions in place of the assistant's."""

from typing import Final

from agent_core.models.entries import ToolMode
from agent_core.prompt import Section
from agent_core.provenance import EMPTY, Prompt
from hub_agent.agents.agent import ASSISTANT, Agent
from hub_agent.prompt import Asked, Context, Prompter
from hub_registry.access.accounts import User

_ACTING: Final = Prompt("""\
# How you act
- To do something, call a tool. A call that fails gives an error with a hint. Correct the call once.
- Never say that something was done when its call failed. When a person refuses a call, accept it.
- Where you can answer without a tool, just answer.

""")
_BESIDE: Final = Prompt("- Your other tools are called by themselves, not in a program.\n\n")


def system_of(
    agent: Agent, prompter: Prompter, user: User, mode: ToolMode = "code", *, skills: bool = True
) -> tuple[Section, ...]:
    """Return the system prompt of an agent; the same from turn to turn until its profile changes.

    Args:
        skills: Whether it has its tools; not where a client offers tools in their place.
    """
    profile = agent.profile
    if profile is None:
        sections = prompter.system(user, mode)
        return sections if skills else tuple(map(_without_skills, sections))
    sections = prompter.system(user, mode, soul=profile.prompt)
    texts = {section.name: section for section in sections if section.name != "role"}
    if not skills:
        texts["acting"] = _without_skills(texts["acting"])
    elif not profile.skills.allow:
        texts["acting"] = Section("acting", _ACTING if profile.tools else EMPTY)
    elif profile.tools:
        texts["acting"] = Section("acting", Prompt(f"{texts['acting'].text.rstrip()}\n{_BESIDE}"))
    return texts.pop("soul"), *texts.values()


def _without_skills(section: Section) -> Section:
    return Section("acting", _ACTING) if section.name == "acting" else section


async def context_of(agent: Agent, prompter: Prompter, asked: Asked) -> Context:
    """Return what changes from turn to turn; what is known of the home is for the assistant alone."""
    return await prompter.context(asked, devices=agent.allow != (), home=agent is ASSISTANT)
