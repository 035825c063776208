"""The agents of a home: one file each in ``agents/``, read again when it changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from agent_core.gateway.opening import ChosenModels, LiveGateway
from agent_core.models.entries import Models
from agent_core.skills.running.execution import in_thread
from contracts.chat.messages import AGENTS, unknown_agent
from contracts.errors import ConfigError, NotFound
from hub_agent import limits
from hub_agent.agents.agent import (
    ASSISTANT,
    DIRECTORY,
    Agent,
    AgentFile,
    AgentState,
    models_of,
    read_files,
    state_of,
)
from hub_agent.agents.files import AgentFiles
from hub_agent.agents.tools import Tools, open_tools


class Agents:
    """The agents beside the assistant.

    Args:
        gateway: The models of the hub.
        own: The models that agents have for themselves.

    Attributes:
        home: ``STRAWBERRY_HOME``.
    """

    def __init__(self, home: Path, *, gateway: LiveGateway, own: LiveGateway) -> None:
        self.directory = home / DIRECTORY
        self.home = home
        self._gateway = gateway
        self._own = own
        self._files: dict[str, AgentFile] = {}
        self._tools: dict[str, tuple[Agent, tuple[tuple[int, int], ...], Tools]] = {}

    def names(self) -> tuple[str, ...]:
        return (*AGENTS, *(agent.name for agent in self.all()))

    def all(self) -> list[Agent]:
        return [agent for file in self._look() if (agent := file.value) is not None]

    def find(self, name: str) -> Agent:
        """Return the agent of a name.

        Raises:
            NotFound: If there is none, or there was never a good file of it.
        """
        if name in AGENTS:
            return ASSISTANT
        self._look()
        file = self._files.get(name)
        if file is not None and file.value is not None:
            return file.value
        if file is not None and (problem := file.problem) is not None:
            raise NotFound(
                "the agent {name!r} cannot be used: {problem}",
                name=name,
                problem=problem.message,
                hint=problem.hint,
            )
        raise unknown_agent(name, self.names())

    def gateway(self, agent: Agent) -> ChosenModels:
        """Return what asks the models of an agent."""
        if agent.own_model is None:
            return ChosenModels(self._gateway, agent.model_names)
        own = [model for each in self.all() if each.own_model for model in self.models(each).usable]
        self._own.reload(Models(tuple(own)), kind=self._gateway.kind)
        return ChosenModels(self._own, (agent.name,))

    def models(self, agent: Agent) -> Models:
        return models_of(agent, self.home)

    async def tools(self, agent: Agent) -> Tools | None:
        """Return what an agent can do besides calling skills; None if that is nothing.

        Raises:
            ConfigError: If its Python files take too long to be imported.
        """
        if agent.profile is None or not agent.profile.tools:
            return None
        stamps = tuple(map(_stamp, sorted(self.directory.glob("*.py"))))
        known = self._tools.get(agent.name)
        if known is None or known[:2] != (agent, stamps):
            make = partial(open_tools, agent.name, agent.profile, home=self.home, directory=self.directory)
            try:
                async with asyncio.timeout(limits.IMPORT_S):
                    # In a daemon thread: what never ends would keep the hub from ending.
                    made = await in_thread(make, name=f"tools of {agent.name}")
            except TimeoutError:
                raise ConfigError(
                    "the Python files of the agent {agent} took longer than {most:g} s to import",
                    agent=agent.name,
                    most=limits.IMPORT_S,
                    hint="Do long work in the functions.",
                ) from None
            known = self._tools[agent.name] = (agent, stamps, made)
        return known[2]

    def state(self, name: str) -> AgentState:
        """Return an agent that has a file, with what is wrong with it.

        Raises:
            NotFound: If there is no such file.
        """
        self._look()
        if (file := self._files.get(name)) is None:
            raise unknown_agent(name, self.names())
        return state_of(file, self.home)

    def files(self, name: str) -> AgentFiles:
        """Return the files of an agent that can be asked.

        Raises:
            NotFound: If there is none.
        """
        agent = self.find(name)
        if agent.profile is None:
            raise NotFound("the assistant has no files of its own")
        return AgentFiles.of(self.home, name, agent.profile)

    def states(self) -> list[AgentState]:
        """Return all agents with their problems, except those that only their Python files would show."""
        return [state_of(file, self.home) for file in self._look()]

    def _look(self) -> list[AgentFile]:
        self._files = read_files(self.home, self._files)
        return list(self._files.values())


@asynccontextmanager
async def open_agents(home: Path, gateway: LiveGateway) -> AsyncIterator[Agents]:
    """Open the agents of a home.

    Args:
        gateway: The models of the hub.
    """
    async with LiveGateway(Models(), kind=gateway.kind) as own:
        yield Agents(home, gateway=gateway, own=own)


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_size
