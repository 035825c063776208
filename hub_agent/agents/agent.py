"""One agent: what its file and the functions beside it say, and what is wrong with them."""

import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from agent_core.files.edited_file import EditedFile
from agent_core.files.yaml_files import line_of, parse_yaml
from agent_core.models.entries import ModelEntry, Models, choose, read_entries, read_keys, read_variable
from agent_core.skills.availability import explained
from agent_core.skills.loading.exposure import LoadedMethod
from agent_core.skills.loading.loader import import_file
from agent_core.skills.schema import SchemaError, method_schema
from agent_core.skills.skill import MethodOptions
from contracts.chat.messages import AGENTS, HOME_ASSISTANT
from contracts.errors import ConfigError, FileProblem
from hub_agent.agents.files import AgentFiles
from hub_agent.agents.profile import NAME, AgentProfile, HttpTool, OwnModel, PythonTool

DIRECTORY: Final = "agents"
SUFFIX: Final = ".yml"

_TEMPLATE: Final = """\
# An agent of this home. Ask it: strawberry chat --agent {name} "…"
# The file is read again when it changes; 'strawberry agents check {name}' says what is wrong.

description: Says in a line what it is for

prompt: |
  You are {name}, an assistant for one thing. Say here which, and how it should answer.

# Which entry of [[models]] in strawberry.toml it asks, or a list of them in order. All of them if left out.
# model: house
# One of its own:
# model:
#   provider: openai
#   model: gpt-5-mini
#   api_key_env: {variable}_API_KEY

# What it can do besides talking. The file tools see its own folder, data/{name}, and nothing else.
tools:
  - calculator
  - file_reader
  - file_writer
  - file_list
# A function of a Python file beside this one:
#  - python: {variable_lower}.py:monthly_total
# A request to an HTTP API, with a secret from .env:
#  - http: exchange_rate
#    description: Gives the rate of a currency in euros.
#    url: https://api.example.com/v1/rates/{{currency}}
#    parameters:
#      currency: {{in: path, description: "ISO code, such as USD"}}
#    headers: {{Authorization: "Bearer ${{{variable}_API_KEY}}"}}
#    open_world: true    # false: no question before it is asked again after a stranger's text was read

# data_dir: data/{name}
# quota: {{files: 1000, bytes: 104857600}}

# Whether sentences such as "turn on the lamp" act at once, without a model.
sentences: off

# What it may call: devices.<device>.<Skill>.<method>, with * for any. Nothing else can be called.
skills:
  allow: []
#  allow: ["devices.*.LampSkill.*", "devices.hub.WorldSkill.*"]
#  read_only: true
"""


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
        return None if self.profile is None else self.profile.skills.allow

    @property
    def read_only(self) -> bool:
        return self.profile is not None and self.profile.skills.read_only

    @property
    def acts_on_sentences(self) -> bool:
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

AgentFile: TypeAlias = EditedFile[Agent | None]


@dataclass(frozen=True)
class AgentState:
    """An agent, and what is wrong with it.

    Attributes:
        agent: What is in force; None where there was never a good file.
    """

    name: str
    file: Path
    agent: Agent | None
    problems: tuple[ConfigError, ...]


def read_files(home: Path, known: Mapping[str, AgentFile] = MappingProxyType({})) -> dict[str, AgentFile]:
    """Return the files of the agents by name, in order.

    Args:
        known: Those that were read before; what stays of them has the last good content in force.
    """
    found = sorted(path for path in (home / DIRECTORY).glob(f"*{SUFFIX}") if path.is_file())
    return {
        path.stem: known.get(path.stem)
        or EditedFile(path, partial(parse_agent, home, path.stem), absent=None)
        for path in found
    }


def parse_agent(home: Path, name: str, text: str) -> Agent:
    """Read the profile of an agent.

    Raises:
        FileProblem: If it is not one.
    """
    if not NAME.match(name):
        hint = "Letters, digits, '-' and '_', at most 64."
        raise FileProblem("{name!r} cannot be the name of an agent", name=name[:100], hint=hint)
    if name in (*AGENTS, HOME_ASSISTANT):
        raise FileProblem("{name} is a name that the hub itself uses", name=name, hint="Rename the file.")
    profile = parse_yaml(text, AgentProfile)
    AgentFiles.of(home, name, profile).make_directory()
    return Agent(name, profile)


def state_of(file: AgentFile, home: Path, *, functions: bool = False) -> AgentState:
    """Return an agent, and what is wrong with its file, its models and its secrets.

    Args:
        functions: Whether to look at the functions of Python files, too, which imports these.
    """
    agent, problem = file.value, file.problem
    problems: list[ConfigError] = []
    if problem is not None:
        problems.append(problem)
    elif agent is not None:
        text = file.path.read_text("utf-8", "replace")
        for steps, error in _missing(agent, home, functions=functions):
            line = line_of(text, *steps)
            problems.append(
                FileProblem(
                    "{path}:{line}: {text}", path=file.path, text=error.message, hint=error.hint, line=line
                )
            )
    return AgentState(file.path.stem, file.path, agent, tuple(problems))


def _missing(
    agent: Agent, home: Path, *, functions: bool
) -> Iterator[tuple[tuple[str | int, ...], ConfigError]]:
    """Yield what a good profile names and is not there, each with the way to it in the profile."""
    try:
        models = models_of(agent, home)
        is_chosen = agent.own_model is not None or bool(agent.model_names)
        if is_chosen or not models.usable:
            for problem in models.problems or (() if models.usable else ("no model is configured",)):
                yield ("model",), ConfigError(problem, hint=models.hint)
    except ConfigError as error:
        yield ("model",), error
    for number, tool in enumerate(agent.profile.tools if agent.profile else ()):
        try:
            if isinstance(tool, HttpTool):
                for name in tool.secrets:
                    read_variable(home, name)
            elif isinstance(tool, PythonTool) and functions:
                load_function(tool, home / DIRECTORY)
        except ConfigError as error:
            yield ("tools", number), error


def models_of(agent: Agent, home: Path) -> Models:
    """Return the models of an agent as files and environment have them now, and why others are left out.

    Raises:
        ConfigError: If ``strawberry.toml`` or ``.env`` cannot be used.
    """
    keys = read_keys(home, os.environ)
    if agent.own_model is not None:
        return choose((agent.own_model,), keys, home=home)
    entries, names = read_entries(home), agent.model_names
    chosen = tuple(entry for entry in entries if entry.name in names)
    # Of these alone, so that the hint is about one of them.
    models = choose(chosen if names and len(chosen) == len(names) else entries, keys, home=home)
    return models.only(names)


def load_function(tool: PythonTool, directory: Path) -> LoadedMethod:
    """Load a function. This imports the file, so it blocks and runs the code of its author.

    Args:
        directory: Where the profiles are.

    Raises:
        ConfigError: If it cannot be reached, or its signature cannot be described.
    """
    name, _, function_name = tool.python.partition(":")
    file = directory / name
    if not file.is_file():
        raise ConfigError("there is no file {file}", file=file, hint="It lies beside the profile.")
    try:
        module = import_file(file)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an import runs the author's code
        raise ConfigError(
            "{file} cannot be imported: {reason}", file=file, reason=explained(error, file)
        ) from None
    function = getattr(module, function_name, None)
    if not inspect.isroutine(function):
        raise ConfigError("{file} has no function {function}", file=file, function=function_name)
    options = MethodOptions(flags=tool.flags, timeout_s=tool.timeout_s)
    try:
        return LoadedMethod(method_schema(function, function_name, options), function, None)
    except SchemaError as error:
        raise ConfigError(
            "{file}: {function_name}: {text}",
            file=file,
            function_name=function_name,
            text=error.message,
            hint=error.hint,
        ) from None
    except Exception as error:  # noqa: BLE001 - hints and defaults are the author's code, too
        raise ConfigError(
            "{file}: {function_name}: {explained}",
            file=file,
            function_name=function_name,
            explained=explained(error, file),
        ) from None


def template(name: str) -> str:
    """Return the commented profile of a new agent."""
    variable = name.replace("-", "_")
    return _TEMPLATE.format(name=name, variable=variable.upper(), variable_lower=variable.lower())
