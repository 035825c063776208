"""``strawberry skills install``, ``enable``, ``packages`` …: what skills are on this machine."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from contracts.errors import ConfigError
from deploy.cli.hub.calling import typed_value
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.parser import Actions, Parser
from deploy.directory import Home

if TYPE_CHECKING:
    from spoke.installing.installation import Fetched, Installation


_INSTALLED: Final = ("name", "as 'skills list --installed' shows it")


def packages(options: argparse.Namespace) -> None:
    """Show the packages that a skill needs, and install them.

    Chooses the versions, shows them, and installs them into an environment that only this skill has. Each
    file is checked against the hash that it had when it was shown.
    """
    from spoke.installing.installed import Installed
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
    with Installed(home.spoke).alone():
        environment.install(lock)
    text = f"Packages installed: {len(lock.packages)}. A spoke that runs offers the skill in a few seconds."
    Output(options.json).result({"packages": list(lock.packages)}, text=text)


def install(options: argparse.Namespace) -> None:
    """Install a skill from a folder, an archive or a commit.

    Shows what its methods say that they may do, when it runs by itself, and its packages, before anything of
    it runs. What you agree to is what is installed.
    """
    with _installation().fetched(options.source, builds=options.build) as found:
        _install(options, found)


def update(options: argparse.Namespace) -> None:
    """Install an installed skill again, from its source or another.

    Shows what has changed since. From a git repository it takes the newest commit.
    """
    with _installation().update(options.name, options.source or "", builds=options.build) as found:
        _install(options, found)


def remove(options: argparse.Namespace) -> None:
    """Remove an installed skill, with its packages; its data and settings are kept."""
    installation = _installation()
    installation.find(options.name)
    if is_sure(f"Remove the skill {options.name}?", yes=options.yes):
        installation.remove(options.name)
        Output(options.json).result({"name": options.name}, text=f"{options.name} is removed.")


def uploads(options: argparse.Namespace) -> None:
    """Allow or forbid to install archives on this machine that its owner uploads in the web."""
    is_on = options.choice == "on"
    _installation().allow_uploads(is_on)
    text = "The owner of this device and admins can install skills on it in the web."
    text = text if is_on else "No skill can be uploaded to this device."
    Output(options.json).result({"uploads": is_on}, text=text)


def list_installed(options: argparse.Namespace) -> None:
    """List the skills that were installed on this machine."""
    empty = "None. 'strawberry skills install SOURCE' installs one."
    rows = [each.model_dump() for each in _installation().list()]
    Output(options.json).rows(rows, lambda row: row, empty=empty)


def _installation() -> "Installation":
    from spoke.installing.installation import Installation

    return Installation(Home.named().directory)


def _install(options: argparse.Namespace, found: "Fetched") -> None:
    manifest, before = found.manifest, found.before
    what = " ".join(each for each in (manifest.name, manifest.version) if each)
    if before is None:
        note(f"{what} from {manifest.source}, as its files say:")
    else:
        same = "the same files" if before.digest == manifest.digest else "other files"
        note(f"{what} from {manifest.source}, {same} as {before.version or 'the installed version'}:")
    note("\n".join(f"  {each}" for each in found.changes or ["what it declares is the same"]))
    if found.overwrites:
        note(f"The files in {found.target} were changed since they were installed: that is lost.")
    if is_sure(f"Install {manifest.name}? Its code runs with your rights.", yes=options.yes):
        found.install()
        text = f"{manifest.name} is installed. A spoke that runs offers it in a few seconds."
        Output(options.json).result(manifest.model_dump(mode="json"), text=text)


def _entry(skills: Path, name: str) -> Path:
    """Return the folder of a skill.

    Raises:
        ConfigError: There is none of this name.
    """
    from agent_core.skills.loading.loader import is_isolated

    found = {each.name: each for each in skills.iterdir() if is_isolated(each)} if skills.is_dir() else {}
    if name not in found:
        hint = f"Those that name packages are: {', '.join(sorted(found))}." if found else ""
        raise ConfigError("there is no skill {name!r} with packages", name=name, hint=hint)
    return found[name]


def available(options: argparse.Namespace) -> None:
    """List the integrations that can be turned on.

    Lists the integrations that come with Strawberry, and which of them are on for this machine.
    """
    from spoke import integrations

    on = integrations.enabled(Home.named().spoke)
    known = integrations.available()
    rows = [{"name": name, "on": name in on, "about": integrations.summary(name)} for name in known]
    Output(options.json).rows(rows, lambda row: row, empty="There are none.")


def enable(options: argparse.Namespace) -> None:
    """Turn an integration on for this machine, with its settings.

    Turns an integration on for this machine; a spoke that runs loads it within seconds.
    """
    from agent_core.skills.settings import StoredSettings
    from spoke import integrations

    home, skill = Home.named(), integrations.skill_of(options.name)
    fields = skill.Settings.model_fields if skill.Settings is not None else {}
    later = f"'strawberry skills settings {skill.__name__}' sets them later."
    if options.settings and options.name in integrations.enabled(home.spoke):
        raise ConfigError("{name} is on already", name=options.name, hint=later)
    given: dict[str, Any] = {}
    for word in options.settings:
        setting, _, text = word.partition("=")
        if setting not in fields:
            known = ", ".join(fields) or "none"
            raise ConfigError("there is no setting {name!r}", name=setting, hint=f"The settings are {known}.")
        if fields[setting].annotation is SecretStr:
            reason = "{name} is a secret, which others could see on a command line"
            raise ConfigError(reason, name=setting, hint=later)
        given[setting] = typed_value(text)
    if skill.Settings is not None:
        folder = home.spoke / "data" / skill.__name__
        StoredSettings(skill.Settings, folder, skill=skill.__name__, variables={}).change(given)
    integrations.switch(home.spoke, options.name, on=True)
    _tell(options, f"{skill.__name__} is on. A spoke that runs loads it within seconds.")


def disable(options: argparse.Namespace) -> None:
    """Turn an integration off for this machine; its settings are kept."""
    from spoke import integrations

    integrations.switch(Home.named().spoke, options.name, on=False)
    _tell(options, f"{options.name} is off.")


def _tell(options: argparse.Namespace, text: str) -> None:
    Output(options.json).result({"name": options.name, "on": options.command == "enable"}, text=text)


def register(actions: Actions) -> None:
    """Declare the commands of this module."""
    command = actions.add_parser("packages", run=packages)
    command.takes("name", "its folder in the folder of your skills, for example vacuum")
    _install_options(command)
    command = actions.add_parser("install", run=install)
    command.takes("source", "a folder, a .zip or .tar.gz, or git+URL@COMMIT with all 40 digits of the commit")
    _install_options(command)
    command = actions.add_parser("update", run=update, on=_INSTALLED)
    command.takes("source", "another source; by default where it came from", nargs="?")
    _install_options(command)
    command = actions.add_parser("remove", run=remove, on=_INSTALLED)
    command.add_flag("--yes", "remove it without a question")
    command = actions.add_parser("uploads", run=uploads)
    command.takes("choice", "off by default", choices=("on", "off"))


def _install_options(command: Parser) -> None:
    command.add_flag("--build", "allow packages without a wheel: building one runs its code")
    command.add_flag("--yes", "install without a question")
