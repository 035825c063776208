"""Agents over HTTP: ``/api/agents``."""

import asyncio
from collections.abc import Callable
from pathlib import PurePath
from typing import Annotated, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, Download, NoBody, Uploaded, answer, download, read, read_query
from contracts.errors import ConfigError, Conflict, FileProblem, Forbidden, InvalidMessage, NotFound
from contracts.phrases import Phrase
from contracts.wire import OrAbsent, Part, Phrased, PhraseText, Strict
from hub_agent.agents.agent import SUFFIX, AgentState, parse_agent, template
from hub_agent.agents.agents import Agents
from hub_agent.agents.files import AgentFiles, ListedFile
from hub_registry.access.bearer import Bearer, Gate, cannot_confirm
from identity.files import write_private

T = TypeVar("T")


class _Source(Strict):
    """The text of a profile."""

    source: str


class _Piece(Strict):
    """Where the bytes of a request begin in their file; 0 starts over."""

    at: Annotated[int, Field(ge=0)] = 0


class _New(Strict):
    """A new agent.

    Attributes:
        source: The text of its profile; None for a template.
    """

    name: str
    source: str | None = None


class AgentProblem(Phrased):
    """What is wrong with a profile, and in which line."""

    message: PhraseText
    hint: PhraseText
    line: int | None


class AgentSummary(Part):
    """An agent as programs read it; paths are for admins, and the rest needs that there was a good file."""

    name: str
    file: OrAbsent[str] = None
    description: OrAbsent[str] = None
    models: OrAbsent[list[str]] = None
    tools: OrAbsent[list[str]] = None
    sentences: OrAbsent[bool] = None
    allow: OrAbsent[list[str]] = None
    read_only: OrAbsent[bool] = None
    data_dir: OrAbsent[str] = None
    problems: list[AgentProblem]


class AgentFile(AgentSummary):
    """An agent with the text of its profile."""

    source: str


class CheckedProfile(Part):
    """The problem that the text of a profile has, if any."""

    problems: list[AgentProblem]


def agent_routes(agents: Agents, gate: Gate, *, may_confirm: Callable[[Bearer], bool]) -> list[BaseRoute]:
    """Make the routes.

    Args:
        may_confirm: Whether a person confirms calls through a caller.
    """
    may_chat = gate.require("chat")

    async def may_write(request: Request) -> None:
        # A profile decides what may be called without being asked, and where secrets are sent.
        if not may_confirm(await gate.require_admin(request)):
            raise cannot_confirm()
        await gate.require_password(request)

    async def list_agents(request: Request) -> Answer[list[AgentSummary]]:
        shown = _shown if (await may_chat(request)).is_admin else _without_paths
        return answer([shown(state) for state in await asyncio.to_thread(agents.states)])

    async def show(request: Request) -> Answer[AgentFile]:
        await gate.require_admin(request)
        state, source = await asyncio.to_thread(_read, agents, request.path_params["name"])
        return answer(AgentFile(**vars(_shown(state)), source=source))

    async def add(request: Request) -> Answer[AgentSummary]:
        await may_write(request)
        body = await read(request, _New)
        if body.name in (state.name for state in agents.states()):
            raise Conflict("there is an agent {name!r} already", name=body.name, hint="PUT changes it.")
        return answer(_shown(_written(agents, body.name, body.source or template(body.name))), status=201)

    async def change(request: Request) -> Answer[AgentSummary]:
        await may_write(request)
        name = agents.state(request.path_params["name"]).name
        return answer(_shown(_written(agents, name, (await read(request, _Source)).source)))

    async def remove(request: Request) -> NoBody:
        await may_write(request)
        agents.state(request.path_params["name"]).file.unlink(missing_ok=True)
        return NoBody()

    async def check(request: Request) -> Answer[CheckedProfile]:
        await gate.require_admin(request)
        body = await read(request, _Source)
        problems: list[AgentProblem] = []
        try:
            await asyncio.to_thread(parse_agent, agents.home, request.path_params["name"], body.source)
        except FileProblem as problem:
            problems.append(_shown_problem(problem))
        return answer(CheckedProfile(problems=problems))

    async def files(request: Request) -> Answer[list[ListedFile]]:
        await gate.require_admin(request)
        own = agents.files(request.path_params["name"])
        return answer(await asyncio.to_thread(_listed, own))

    async def with_file(request: Request, work: Callable[[AgentFiles, str], T]) -> T:
        await gate.require_admin(request)
        own, path = agents.files(request.path_params["name"]), request.path_params["path"]
        try:
            return await asyncio.to_thread(work, own, path)
        except (OSError, ValueError) as error:
            raise NotFound("{path!r} cannot be used: {error}", path=path[:200], error=error) from None

    async def file(request: Request) -> Download:
        content = await with_file(request, AgentFiles.content)
        return download(content, request.path_params["path"].rpartition("/")[2])

    async def store(request: Request) -> Answer[Uploaded]:
        await gate.require_admin(request)
        at, piece = read_query(request, _Piece).at, await request.body()
        size: int = await with_file(request, lambda own, path: own.store(path, piece, at=at))
        return answer(Uploaded(bytes=size))

    async def drop(request: Request) -> NoBody:
        await with_file(request, AgentFiles.remove)
        return NoBody()

    return [
        Route("/api/agents", list_agents),
        Route("/api/agents", add, methods=["POST"]),
        Route("/api/agents/{name}", show),
        Route("/api/agents/{name}", change, methods=["PUT"]),
        Route("/api/agents/{name}", remove, methods=["DELETE"]),
        Route("/api/agents/{name}/check", check, methods=["POST"]),
        Route("/api/agents/{name}/files", files),
        Route("/api/agents/{name}/files/{path:path}", file),
        Route("/api/agents/{name}/files/{path:path}", store, methods=["PUT"]),
        Route("/api/agents/{name}/files/{path:path}", drop, methods=["DELETE"]),
    ]


def _written(agents: Agents, name: str, source: str) -> AgentState:
    file = agents.directory / f"{name}{SUFFIX}"
    try:
        agent = parse_agent(agents.home, name, source)
    except FileProblem as problem:
        where = f"line {problem.line}: " if problem.line is not None else ""
        raise InvalidMessage("{where}{text}", where=where, text=problem.message, hint=problem.hint) from None
    profile = agent.profile
    if profile is not None and profile.data_dir is not None and PurePath(profile.data_dir).is_absolute():
        raise Forbidden(
            "a folder outside of the data directory is named in the file itself, not over HTTP",
            file=file,
            hint="Edit {file} where the hub runs.",
        )
    write_private(file, source.encode())
    return agents.state(name)


def _shown(state: AgentState) -> AgentSummary:
    problems = [_shown_problem(each) for each in state.problems]
    profile = state.agent.profile if state.agent is not None else None
    if state.agent is None or profile is None:
        return AgentSummary(name=state.name, file=str(state.file), problems=problems)
    own = state.agent.own_model
    return AgentSummary(
        name=state.name,
        file=str(state.file),
        description=profile.description,
        models=[f"{own.provider}: {own.model}"] if own else list(state.agent.model_names),
        tools=[tool if isinstance(tool, str) else tool.name for tool in profile.tools],
        sentences=profile.sentences,
        allow=list(profile.skills.allow),
        read_only=profile.skills.read_only,
        data_dir=profile.data_dir or f"data/{state.name}",
        problems=problems,
    )


def _without_paths(state: AgentState) -> AgentSummary:
    shown = _shown(state)
    problems = [
        AgentProblem(message=_without_folders(each.message), hint=each.hint, line=each.line)
        for each in shown.problems
    ]
    return shown.model_copy(update={"file": None, "data_dir": None, "problems": problems})


def _without_folders(message: str) -> str:
    phrase = Phrase(message)
    if not phrase.values:
        return message.rpartition("/")[2]
    values = phrase.values.items()
    return Phrase(
        phrase.template,
        **{name: _without_folders(each) if isinstance(each, str) else each for name, each in values},
    )


def _shown_problem(problem: ConfigError) -> AgentProblem:
    line: int | None = problem.line if isinstance(problem, FileProblem) else None
    return AgentProblem(message=problem.message, hint=problem.hint, line=line)


def _read(agents: Agents, name: str) -> tuple[AgentState, str]:
    state = agents.state(name)
    return state, state.file.read_text("utf-8", "replace")


def _listed(files: AgentFiles) -> list[ListedFile]:
    try:
        return files.list("")
    except OSError:
        return []
