"""``strawberry agents``: listed, begun, and checked."""

import argparse

from contracts.answers.system import AgentSummary
from contracts.errors import ConfigError, FileProblem, NotFound
from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.parser import Actions
from deploy.directory import Home


def list_agents(options: argparse.Namespace) -> None:
    """List the agents of the hub."""
    found = hub_of(options).get("/api/agents", list[AgentSummary])
    empty = "There is no agent beside the assistant. 'strawberry agents new NAME' begins one."
    Output(options.json).rows(found, _cells, empty=empty)


def _cells(agent: AgentSummary) -> dict[str, object]:
    return {
        "name": agent.name,
        "description": agent.description,
        "models": agent.models or "all",
        "tools": agent.tools,
        "allow": agent.allow,
        "problems": [problem.message for problem in agent.problems],
    }


def new(options: argparse.Namespace) -> None:
    """Write the commented file of a new agent.

    Writes agents/NAME.yml in the data directory, to be edited; it counts at once.
    """
    from hub_agent.agents.agent import DIRECTORY, SUFFIX, parse_agent, template
    from identity.files import write_private

    home, name = Home.find(), options.name
    file = home.directory / DIRECTORY / f"{name}{SUFFIX}"
    text = template(name)
    try:
        parse_agent(home.directory, name, text)
    except FileProblem as problem:
        raise ConfigError(problem.message, hint=problem.hint) from None
    if file.exists():
        raise ConfigError(f"{file} is there already", hint="Edit it, or choose another name.")
    write_private(file, text.encode())
    Output(options.json).result(
        {"name": name, "file": str(file)},
        text=f'Edit {file}, then ask it: strawberry chat --agent {name} "…"',
    )


def check(options: argparse.Namespace) -> int:
    """Report mistakes in the files of agents.

    Checks agents/*.yml in the data directory: mistakes with file and line, models, missing secrets, and
    Python functions, whose files it imports.
    """
    from hub_agent.agents.agent import DIRECTORY, SUFFIX, read_files, state_of

    home = Home.find().directory
    files = read_files(home)
    wanted = options.names or list(files)
    if unknown := [name for name in wanted if name not in files]:
        raise NotFound(
            f"there is no file {home / DIRECTORY / (unknown[0] + SUFFIX)}",
            hint=f"The agents are: {', '.join(files) or 'none'}.",
        )
    states = [state_of(files[name], home, functions=True) for name in wanted]
    rows = [
        {
            "name": state.name,
            "file": str(state.file),
            "ok": not state.problems,
            "problems": [{"message": each.message, "hint": each.hint} for each in state.problems],
        }
        for state in states
    ]
    lines = []
    for state in states:
        lines += [f"{state.name}: ok"] if not state.problems else []
        for problem in state.problems:
            lines.append(f"{state.name}: {problem.message}")
            lines += [f"  {problem.hint}"] if problem.hint else []
    for stray in sorted((home / DIRECTORY).glob("*.yaml")):
        note(f"{stray} is not read: its name must end in {SUFFIX}")
    Output(options.json).result(rows, text="\n".join(lines) or "There are no agents beside the assistant.")
    return 1 if any(state.problems for state in states) else 0


def add_agents_actions(actions: Actions) -> None:
    """Declare 'strawberry agents'."""
    actions.add_parser("list", run=list_agents, hub=True)
    command = actions.add_parser("new", run=new)
    command.takes("name", "for example finance")
    command = actions.add_parser("check", run=check)
    command.takes("names", "only these", metavar="NAME", nargs="*")
