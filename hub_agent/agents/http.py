"""Agents over HTTP: ``/api/agents``."""

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat.http.requests import answer, read
from contracts.errors import Conflict, FileProblem, Forbidden, InvalidMessage
from hub_agent.agents.agent import AgentState
from hub_agent.agents.agents import Agents
from hub_agent.agents.template import template
from hub_agent.calls.confirmations import cannot_confirm
from hub_registry.access.bearer import Bearer, Gate


class _Source(BaseModel):
    """The text of a profile."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str


class _New(BaseModel):
    """A new agent.

    Attributes:
        source: The text of its profile; None for a template.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    source: str | None = None


def agent_routes(agents: Agents, gate: Gate, *, may_confirm: Callable[[Bearer], bool]) -> list[BaseRoute]:
    """Make the routes.

    Args:
        may_confirm: Whether a person confirms calls through a caller.
    """
    may_chat = gate.require("chat")

    async def may_write(request: Request) -> None:
        # A profile decides what may be called without being asked.
        if not may_confirm(await gate.require_admin(request)):
            raise cannot_confirm()

    async def list_agents(request: Request) -> Response:
        await may_chat(request)
        return answer([shown(state) for state in agents.states()])

    async def show(request: Request) -> Response:
        await gate.require_admin(request)
        state = agents.state(request.path_params["name"])
        return answer({**shown(state), "source": state.file.read_text("utf-8", "replace")})

    async def add(request: Request) -> Response:
        await may_write(request)
        body = await read(request, _New)
        if body.name in (state.name for state in agents.states()):
            raise Conflict(f"there is an agent {body.name!r} already", hint="PUT changes it.")
        return answer(shown(_written(agents, body.name, body.source or template(body.name))), status=201)

    async def change(request: Request) -> Response:
        await may_write(request)
        name = agents.state(request.path_params["name"]).name
        return answer(shown(_written(agents, name, (await read(request, _Source)).source)))

    async def remove(request: Request) -> Response:
        await may_write(request)
        agents.state(request.path_params["name"]).file.unlink()
        return Response(status_code=204)

    return [
        Route("/api/agents", list_agents),
        Route("/api/agents", add, methods=["POST"]),
        Route("/api/agents/{name}", show),
        Route("/api/agents/{name}", change, methods=["PUT"]),
        Route("/api/agents/{name}", remove, methods=["DELETE"]),
    ]


def _written(agents: Agents, name: str, source: str) -> AgentState:
    try:
        agent = agents.parse(name, source)
    except FileProblem as problem:
        where = f"line {problem.line}: " if problem.line is not None else ""
        raise InvalidMessage(f"{where}{problem.message}", hint=problem.hint) from None
    profile = agent.profile
    if profile is not None and profile.data_dir is not None and PurePath(profile.data_dir).is_absolute():
        raise Forbidden(
            "a folder outside of the data directory is named in the file itself, not over HTTP",
            hint=f"Edit {agents.file(name)} where the hub runs.",
        )
    agents.write(name, source)
    return agents.state(name)


def shown(state: AgentState) -> dict[str, Any]:
    """Return an agent as programs read it; what it is is null where there was never a good file."""
    made: dict[str, Any] = {"name": state.name, "file": str(state.file)}
    profile = state.agent.profile if state.agent is not None else None
    if state.agent is not None and profile is not None:
        own = state.agent.own_model
        made |= {
            "description": profile.description,
            "models": [f"{own.provider}: {own.model}"] if own else list(state.agent.model_names),
            "tools": [tool if isinstance(tool, str) else tool.name for tool in profile.tools],
            "sentences": profile.sentences,
            "allow": list(profile.skills.allow),
            "read_only": profile.skills.read_only,
            "data_dir": profile.data_dir or f"data/{state.name}",
        }
    made["problems"] = [{"message": each.message, "hint": each.hint} for each in state.problems]
    return made
