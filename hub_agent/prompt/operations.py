"""The prompt as a model would get it, with what each of its parts takes."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from agent_core.gateway.protocol import ToolSpec
from agent_core.models.entries import ToolMode
from agent_core.prompt import Section, estimate_tokens
from agent_core.tools.toolset import TOOL_SPECS
from chat.operations import LOOK, Resource
from contracts.answers.system import PromptSection, PromptTokens, PromptTool, ShownPrompt
from contracts.chat.messages import AGENTS
from contracts.errors import FileProblem
from hub_agent.agents.agents import Agents
from hub_agent.prompt.prompter import Asked, Prompter
from hub_registry.access.bearer import Bearer


def _measured(tool: ToolSpec) -> PromptTool:
    tokens = estimate_tokens(json.dumps([tool.name, tool.description, tool.parameters]))
    return PromptTool(name=tool.name, tokens=tokens)


_TOOLS: Final = tuple(map(_measured, TOOL_SPECS))


@dataclass(frozen=True)
class Prompts:
    """What prompts are made of.

    Attributes:
        problems: Returns those of other files that prompts are made of.
    """

    prompter: Prompter
    agents: Agents
    problems: Callable[[], Iterable[FileProblem]]


prompt: Resource[Prompts, Bearer] = Resource("prompt", "/api/prompt")


# What is remembered for the owner is in it.
@prompt.get(LOOK)
async def show_prompt(
    prompts: Prompts,
    asking: Bearer,
    agent: str = AGENTS[0],
    message: Annotated[str, Field(max_length=4_000)] = "",
    mode: ToolMode = "code",
) -> ShownPrompt:
    """Return the prompt of a message, in sections with an estimate of their tokens.

    Args:
        mode: `code` or `native`.
    """
    prompter, asked_agent = prompts.prompter, prompts.agents.find(agent)
    stable = prompter.system(asked_agent, asking.user, mode)
    # A model without Python gets the methods themselves as tools, by what is asked.
    tools = list(_TOOLS) if mode == "code" and asked_agent.allow != () else []
    if (own := await prompts.agents.tools(asked_agent)) is not None:
        tools += map(_measured, own.specs)
    context = await prompter.context(asked_agent, Asked(asking.user, (message,)))
    soul = prompter.soul.problem
    return ShownPrompt(
        agent=agent,
        stable=[_shown(section) for section in stable],
        tools=tools,
        changing=[_shown(section) for section in context.sections],
        tokens=PromptTokens(
            stable=sum(each.tokens for each in stable) + sum(each.tokens for each in tools),
            changing=sum(section.tokens for section in context.sections),
        ),
        problems=[each.message for each in (*([soul] if soul else []), *prompts.problems())],
    )


def _shown(section: Section) -> PromptSection:
    return PromptSection(name=section.name, tokens=section.tokens, text=section.text)
