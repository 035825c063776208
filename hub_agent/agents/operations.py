"""Agents: ``/api/agents`` and their pages."""

import asyncio
from collections.abc import Callable
from pathlib import PurePath
from typing import Annotated, Final, TypeVar

from pydantic import Field
from starlette.requests import Request

from chat.http.requests import Download, Uploaded, download
from chat.operations import ADMIN, Needs, Resource
from contracts.answers.system import AgentProblem, AgentSummary
from contracts.errors import ConfigError, Conflict, FileProblem, Forbidden, InvalidMessage, NotFound
from contracts.phrases import Phrase
from contracts.wire import Part
from hub_agent.agents.agent import SUFFIX, AgentState, parse_agent, template
from hub_agent.agents.agents import Agents
from hub_agent.agents.files import AgentFiles, ListedFile
from hub_registry.access.bearer import Bearer
from identity.files import write_private

T = TypeVar("T")

_WRITE: Final = Needs(("admin",), admin=True, confirms=True, password=True)
"""A profile decides what may be called without being asked, and where secrets are sent."""


class AgentFile(AgentSummary):
    """An agent with the text of its profile."""

    source: str


class CheckedProfile(Part):
    """The problem that the text of a profile has, if any."""

    problems: list[AgentProblem]


agents: Resource[Agents, Bearer] = Resource("agents", "/api/agents")


@agents.get(Needs(("chat",), devices=True))
async def list_agents(agents: Agents, asking: Bearer) -> list[AgentSummary]:
    """List the agents beside the assistant.

    Of an agent whose file was never good there are only `name`, `file` and `problems`; `file` and `data_dir`
    are for an admin only.
    """
    shown = _shown if asking.is_admin else _without_paths
    return [shown(state) for state in await asyncio.to_thread(agents.states)]


@agents.post(_WRITE, status=201)
async def add(agents: Agents, asking: Bearer, name: str, source: str | None = None) -> AgentSummary:
    """Write `agents/NAME.yml`.

    Args:
        source: The text of the profile; None for a template.
    """
    if name in (state.name for state in agents.states()):
        raise Conflict("there is an agent {name!r} already", name=name, hint="PUT changes it.")
    return _shown(_written(agents, name, source or template(name)))


@agents.get(ADMIN, "/{name}")
async def show(agents: Agents, asking: Bearer, name: str) -> AgentFile:
    """Return one with `source`, the text of its file."""
    state, source = await asyncio.to_thread(_read, agents, name)
    return AgentFile(**vars(_shown(state)), source=source)


@agents.put(_WRITE, "/{name}")
async def change(agents: Agents, asking: Bearer, name: str, source: str) -> AgentSummary:
    """Write the file of an agent; 422 names the line of a mistake.

    A `data_dir` outside of the data directory is written into the file itself.
    """
    return _shown(_written(agents, agents.state(name).name, source))


@agents.delete(_WRITE, "/{name}")
async def remove(agents: Agents, asking: Bearer, name: str) -> None:
    """Delete the file of an agent; what is below its `data_dir` stays."""
    agents.state(name).file.unlink(missing_ok=True)


@agents.post(ADMIN, "/{name}/check")
async def check(agents: Agents, asking: Bearer, name: str, source: str) -> CheckedProfile:
    """Return what is wrong with a profile; nothing is written."""
    problems: list[AgentProblem] = []
    try:
        await asyncio.to_thread(parse_agent, agents.home, name, source)
    except FileProblem as problem:
        problems.append(_shown_problem(problem))
    return CheckedProfile(problems=problems)


@agents.get(ADMIN, "/{name}/files")
async def list_files(agents: Agents, asking: Bearer, name: str) -> list[ListedFile]:
    """List the files below the `data_dir` of an agent, at most 200."""
    return await asyncio.to_thread(_listed, agents.files(name))


@agents.get(ADMIN, "/{name}/files/{path:path}")
async def file(agents: Agents, asking: Bearer, name: str, path: str) -> Download:
    """Return a file of an agent, up to 16 MB."""
    content = await _with_file(agents, name, path, AgentFiles.content)
    return download(content, path.rpartition("/")[2])


@agents.put(ADMIN, "/{name}/files/{path:path}")
async def store(
    agents: Agents,
    asking: Bearer,
    name: str,
    path: str,
    request: Request,
    at: Annotated[int, Field(ge=0)] = 0,
) -> Uploaded:
    """Write the bytes of a file that are sent, at most 1 MiB a request.

    The quota of the agent holds; 16 MB are the most.

    Args:
        at: Where they begin: 0 starts over, any other is where the file ends.
    """
    piece = await request.body()
    return Uploaded(
        bytes=await _with_file(agents, name, path, lambda own, path: own.store(path, piece, at=at))
    )


@agents.delete(ADMIN, "/{name}/files/{path:path}")
async def remove_file(agents: Agents, asking: Bearer, name: str, path: str) -> None:
    """Remove a file of an agent."""
    await _with_file(agents, name, path, AgentFiles.remove)


async def _with_file(agents: Agents, name: str, path: str, work: Callable[[AgentFiles, str], T]) -> T:
    own = agents.files(name)
    try:
        return await asyncio.to_thread(work, own, path)
    except (OSError, ValueError) as error:
        raise NotFound("{path!r} cannot be used: {error}", path=path[:200], error=error) from None


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
