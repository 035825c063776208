"""The agents of a home: one file each in ``agents/``, read again when it changes."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from agent_core.gateway.opening import ChosenModels, LiveGateway
from agent_core.models.entries import ModelEntry, Models, choose, read_entries, read_keys
from agent_core.skills.execution import in_thread
from agent_core.yaml_files import MAX_BYTES, parse_yaml
from contracts.chat import AGENTS, unknown_agent
from contracts.errors import ConfigError, FileProblem, NotFound
from hub_agent.agents.files import AgentFiles
from hub_agent.agents.profile import NAME, AgentProfile, OwnModel
from hub_agent.agents.tools import Tools, open_tools
from hub_agent.live.files import EditedFile

DIRECTORY: Final = "agents"
SUFFIX: Final = ".yml"

_IMPORT_S: Final = 15.0


@dataclass(frozen=True)
class Agent:
    """An agent that can be asked.

    Attributes:
        profile: None of the assistant, which may do whatever its user may.
    """

    name: str = AGENTS[0]
    profile: AgentProfile | None = None

    @property
    def allow(self) -> tuple[str, ...] | None:
        """The skill methods that it may call; None for all."""
        return None if self.profile is None else self.profile.skills.allow

    @property
    def read_only(self) -> bool:
        """Whether it may call only methods that modify nothing."""
        return self.profile is not None and self.profile.skills.read_only

    @property
    def acts_on_sentences(self) -> bool:
        """Whether declared sentences act at once, without a model."""
        return self.profile is None or self.profile.sentences

    @property
    def own_model(self) -> ModelEntry | None:
        """A model that only this agent uses, under its name."""
        model = self.profile and self.profile.model
        return model.model_copy(update={"name": self.name}) if isinstance(model, OwnModel) else None

    @property
    def model_names(self) -> tuple[str, ...]:
        """The entries of ``[[models]]`` that it asks, in this order; empty for all of them."""
        match self.profile and self.profile.model:
            case str() as name:
                return (name,)
            case tuple() as names:
                return names
        return ()


ASSISTANT: Final = Agent()


class Agents:
    """The agents beside the assistant.

    Args:
        home: ``STRAWBERRY_HOME``.
        gateway: The models of the hub.
        own: The models that agents have for themselves.
    """

    def __init__(self, home: Path, *, gateway: LiveGateway, own: LiveGateway) -> None:
        self.directory = home / DIRECTORY
        self._home = home
        self._gateway = gateway
        self._own = own
        self._files: dict[str, EditedFile[Agent | None]] = {}
        self._tools: dict[str, tuple[Agent, tuple[tuple[int, int], ...], Tools]] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names of all agents that can be asked, the assistant's first."""
        return (*AGENTS, *(agent.name for agent in self.all()))

    def all(self) -> list[Agent]:
        """Return the agents that can be asked, by name."""
        return [agent for file in self._look() if (agent := file.value) is not None]

    def problems(self) -> list[FileProblem]:
        """Return what is wrong with files, each with its file and line."""
        return [problem for file in self._look() if (problem := file.problem) is not None]

    def find(self, name: str) -> Agent:
        """Return the agent of a name.

        Raises:
            NotFound: If there is none, or there was never a good file of it.
        """
        if name in AGENTS:
            return ASSISTANT
        self._look()
        file = self._files.get(name)
        if file is None or (file.value is None and file.problem is None):
            raise unknown_agent(name, self.names())
        if file.value is not None:
            return file.value
        problem = file.problem
        assert problem is not None
        raise NotFound(f"the agent {name!r} cannot be used: {problem.message}", hint=problem.hint)

    def gateway(self, agent: Agent) -> ChosenModels:
        """Return what asks the models of an agent."""
        if agent.own_model is None:
            return ChosenModels(self._gateway, agent.model_names)
        own = [model for each in self.all() if each.own_model for model in self.models(each).usable]
        self._own.reload(Models(tuple(own)), kind=self._gateway.kind)
        return ChosenModels(self._own, (agent.name,))

    def models(self, agent: Agent) -> Models:
        """Return the models of an agent as files and environment have them now, and why others are left out.

        Raises:
            ConfigError: If ``strawberry.toml`` or ``.env`` cannot be used.
        """
        return models_of(agent, self._home)

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
            make = partial(_open_tools, agent, home=self._home, directory=self.directory)
            try:
                async with asyncio.timeout(_IMPORT_S):
                    # In a daemon thread: what never ends would keep the hub from ending.
                    made = await in_thread(make, name=f"tools of {agent.name}")
            except TimeoutError:
                raise ConfigError(
                    f"the Python files of the agent {agent.name} took longer than {_IMPORT_S:g} s to import",
                    hint="Do long work in the functions.",
                ) from None
            if isinstance(made, ConfigError):
                raise made
            known = self._tools[agent.name] = (agent, stamps, made)
        return known[2]

    def _look(self) -> list[EditedFile[Agent | None]]:
        """Return the files that there are, in the order of their names."""
        found = sorted(path for path in self.directory.glob(f"*{SUFFIX}") if path.is_file())
        self._files = {
            path.stem: self._files.get(path.stem)
            or EditedFile(path, partial(_parse, self._home, path.stem), absent=None, max_bytes=MAX_BYTES)
            for path in found
        }
        return list(self._files.values())


@asynccontextmanager
async def open_agents(home: Path, gateway: LiveGateway) -> AsyncIterator[Agents]:
    """Open the agents of a home.

    Args:
        gateway: The models of the hub.
    """
    async with LiveGateway(Models(), kind=gateway.kind) as own:
        yield Agents(home, gateway=gateway, own=own)


def models_of(agent: Agent, home: Path) -> Models:
    """See ``Agents.models``."""
    keys = read_keys(home, os.environ)
    if agent.own_model is not None:
        return choose((agent.own_model,), keys, home=home)
    entries, names = read_entries(home), agent.model_names
    chosen = tuple(entry for entry in entries if entry.name in names)
    # Of these alone, so that the hint is about one of them.
    models = choose(chosen if len(chosen) == len(names) else entries, keys, home=home)
    return models.only(names)


def _open_tools(agent: Agent, *, home: Path, directory: Path) -> Tools | ConfigError:
    assert agent.profile is not None
    try:
        return open_tools(agent.name, agent.profile, home=home, directory=directory)
    except ConfigError as error:
        return error


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_size


def _parse(home: Path, name: str, text: str) -> Agent:
    if not NAME.match(name):
        raise FileProblem(
            "its name cannot be that of an agent", hint="Letters, digits, '-' and '_', at most 64."
        )
    if name in AGENTS:
        raise FileProblem(f"{name} is the name of the assistant", hint="Rename the file.")
    profile = parse_yaml(text, AgentProfile)
    AgentFiles.of(home, name, profile)
    return Agent(name, profile)
