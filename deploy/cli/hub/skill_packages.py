"""``strawberry skills packages``: the packages of a skill of this machine."""

import argparse
from pathlib import Path

from contracts.errors import ConfigError
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, note
from deploy.directory import Home


def packages(options: argparse.Namespace) -> None:
    """Show the packages that a skill needs, and install them.

    Chooses the versions, shows them, and installs them into an environment that only this skill has. Each
    file is checked against the hash that it had when it was shown.
    """
    from spoke.isolation.environment import Environment

    home = Home.named()
    environment = Environment(_entry(home.skills, options.name), home.spoke / "environments")
    if not environment.requirements:
        Output(options.json).result({"packages": []}, text=f"{options.name} needs no packages.")
        return
    lock = environment.resolve(builds=options.build)
    note(f"{options.name} needs:\n" + "\n".join(f"  {each}" for each in lock.packages))
    if not is_sure("Install these packages? Their code runs with your rights.", yes=options.yes):
        return
    environment.install(lock)
    text = (
        f"{len(lock.packages)} packages are installed. A spoke that runs offers the skill in a few seconds."
    )
    Output(options.json).result({"packages": list(lock.packages)}, text=text)


def _entry(skills: Path, name: str) -> Path:
    """Return the folder of a skill.

    Raises:
        ConfigError: There is none of this name.
    """
    from agent_core.skills.loader import is_isolated

    found = {each.name: each for each in skills.iterdir() if is_isolated(each)} if skills.is_dir() else {}
    if name not in found:
        hint = f"Those that name packages are: {', '.join(sorted(found))}." if found else ""
        raise ConfigError("there is no skill {name!r} with packages", name=name, hint=hint)
    return found[name]
