"""The prompt as a model would get it, with what each of its parts takes."""

import json
from collections.abc import Callable, Iterable
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from agent_core.gateway.protocol import ToolSpec
from agent_core.models.entries import ToolMode
from agent_core.prompt import Section, estimate_tokens
from agent_core.tools.toolset import TOOL_SPECS
from chat.http.requests import Answer, answer, read_query
from contracts.answers.system import PromptSection, PromptTokens, PromptTool, ShownPrompt
from contracts.chat import AGENTS
from contracts.errors import FileProblem
from contracts.wire import Strict
from hub_agent.agents.agents import Agents
from hub_agent.prompt.prompter import Asked, Prompter
from hub_registry.access.bearer import Gate


class _Query(Strict):
    agent: str = AGENTS[0]
    message: Annotated[str, Field(max_length=4_000)] = ""
    mode: ToolMode = "code"


def _measured(tool: ToolSpec) -> PromptTool:
    tokens = estimate_tokens(json.dumps([tool.name, tool.description, tool.parameters]))
    return PromptTool(name=tool.name, tokens=tokens)


_TOOLS: Final = tuple(map(_measured, TOOL_SPECS))


def prompt_route(
    prompter: Prompter, agents: Agents, gate: Gate, *, problems: Callable[[], Iterable[FileProblem]]
) -> BaseRoute:
    """Make the route ``/api/prompt``.

    Args:
        problems: Returns those of other files that prompts are made of.
    """
    # What is remembered for the owner is in it.
    may_chat = gate.require_user("chat")

    async def show(request: Request) -> Answer[ShownPrompt]:
        bearer, query = await may_chat(request), read_query(request, _Query)
        agent = agents.find(query.agent)
        stable = prompter.system(agent, bearer.user, query.mode)
        # A model without Python gets the methods themselves as tools, by what is asked.
        tools = list(_TOOLS) if query.mode == "code" and agent.allow != () else []
        if (own := await agents.tools(agent)) is not None:
            tools += map(_measured, own.specs)
        asked = Asked(bearer.user, (query.message,))
        context = await prompter.context(agent, asked)
        soul = prompter.soul.problem
        return answer(
            ShownPrompt(
                agent=query.agent,
                stable=[_shown(section) for section in stable],
                tools=tools,
                changing=[_shown(section) for section in context.sections],
                tokens=PromptTokens(
                    stable=sum(each.tokens for each in stable) + sum(each.tokens for each in tools),
                    changing=sum(section.tokens for section in context.sections),
                ),
                problems=[each.message for each in (*([soul] if soul else []), *problems())],
            )
        )

    return Route("/api/prompt", show)


def _shown(section: Section) -> PromptSection:
    return PromptSection(name=section.name, tokens=section.tokens, text=section.text)
