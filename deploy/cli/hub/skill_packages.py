"""``strawberry skills install``, ``update``, ``remove`` and ``packages``: skills of others, and packages."""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.errors import ConfigError
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.parser import Parser
from deploy.directory import Home

if TYPE_CHECKING:
    from spoke.installing.installed import Manifest


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
    text = f"Packages installed: {len(lock.packages)}. A spoke that runs offers the skill in a few seconds."
    Output(options.json).result({"packages": list(lock.packages)}, text=text)


def install(options: argparse.Namespace) -> None:
    """Install a skill from a folder, an archive or a commit.

    Shows what its methods say that they may do, when it runs by itself, and its packages, before anything of
    it runs. What you agree to is what is installed.
    """
    _install(options, options.source)


def update(options: argparse.Namespace) -> None:
    """Install an installed skill again, from its source or another.

    Shows what has changed since. From a git repository it takes the newest commit.
    """
    from spoke.installing.installed import Installed
    from spoke.installing.sources import newest

    before = Installed(Home.named().spoke).all().get(options.name)
    if before is None:
        raise _unknown(options.name)
    _install(options, options.source or newest(before.source), wanted=options.name)


def remove(options: argparse.Namespace) -> None:
    """Remove an installed skill, with its packages; its data and settings are kept."""
    from spoke.installing.installed import Installed
    from spoke.isolation.environment import Environment

    home = Home.named()
    installed = Installed(home.spoke)
    if options.name not in installed.all():
        raise _unknown(options.name)
    if is_sure(f"Remove the skill {options.name}?", yes=options.yes):
        shutil.rmtree(home.skills / options.name, ignore_errors=True)
        Environment(home.skills / options.name, home.spoke / "environments").remove()
        installed.put(options.name, None)
        Output(options.json).result({"name": options.name}, text=f"{options.name} is removed.")


def list_installed(options: argparse.Namespace) -> None:
    """List the skills that were installed on this machine."""
    from spoke.installing.installed import Installed, digest_of

    home = Home.named()
    rows = []
    for name, each in Installed(home.spoke).all().items():
        folder = home.skills / name
        state = "missing" if not folder.is_dir() else "" if digest_of(folder) == each.digest else "changed"
        rows.append({"name": name, "version": each.version, "source": each.source, "state": state})
    empty = "None. 'strawberry skills install SOURCE' installs one."
    Output(options.json).rows(rows, lambda row: row, empty=empty)


def _install(options: argparse.Namespace, source: str, *, wanted: str = "") -> None:
    from spoke.installing.installed import Installed, changes, describe, digest_of
    from spoke.installing.sources import fetch
    from spoke.isolation.environment import Environment

    home = Home.named()
    installed = Installed(home.spoke)
    home.skills.mkdir(exist_ok=True)
    # Beside its place, so that it is moved there at once; what begins with a dot is not loaded.
    with tempfile.TemporaryDirectory(prefix=".install-", dir=home.skills) as staging:
        source = source if source.startswith("git+") else str(Path(source).absolute())
        fetched = fetch(source, Path(staging, "files"))
        manifest = describe(fetched, name=Path(source).name.partition(".")[0])
        name = manifest.name
        before = installed.all().get(name)
        if wanted not in ("", name):
            raise ConfigError("{source} is the skill {name}", source=source, name=name)
        place = home.skills / name
        if before is None and place.exists():
            raise ConfigError("there is a skill {name} of your own", name=name, hint="Move it away first.")
        new, old = Path(staging, "new"), Path(staging, "old")
        new.mkdir()
        code = fetched.rename(new / name)
        environment = Environment(code, home.spoke / "environments")
        lock = environment.resolve(builds=options.build) if environment.requirements else None
        manifest = manifest.model_copy(
            update={"source": source, "packages": lock.packages if lock is not None else ()}
        )
        _show(before, manifest, list(changes(before, manifest)))
        if before is not None and place.is_dir() and digest_of(place) != before.digest:
            note(f"The files in {place} were changed since they were installed: that is lost.")
        if not is_sure(f"Install {name}? Its code runs with your rights.", yes=options.yes):
            return
        if lock is not None:
            environment.install(lock)
        if place.exists():
            place.rename(old)
        try:
            code.rename(place)
        except OSError:
            if old.exists():
                old.rename(place)
            raise
        installed.put(name, manifest)
    text = f"{name} is installed. A spoke that runs offers it in a few seconds."
    Output(options.json).result(manifest.model_dump(mode="json"), text=text)


def _show(before: "Manifest | None", manifest: "Manifest", lines: list[str]) -> None:
    what = " ".join(each for each in (manifest.name, manifest.version) if each)
    if before is None:
        note(f"{what} from {manifest.source}, as its files say:")
    else:
        same = "the same files" if before.digest == manifest.digest else "other files"
        note(f"{what} from {manifest.source}, {same} as {before.version or 'the installed version'}:")
    note("\n".join(f"  {each}" for each in lines or ["  nothing else declared"]))


def _unknown(name: str) -> ConfigError:
    hint = "'strawberry skills list --installed' shows those that are."
    return ConfigError("{name!r} is no installed skill", name=name, hint=hint)


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


def register(actions: "argparse._SubParsersAction[Parser]") -> None:
    """Declare the commands of this module."""
    command = actions.add_parser("packages", run=packages)
    command.add_argument("name", help="its folder in the folder of your skills, for example vacuum")
    _install_options(command)
    command = actions.add_parser("install", run=install)
    command.add_argument(
        "source", help="a folder, a .zip or .tar.gz, or git+URL@COMMIT with all 40 digits of the commit"
    )
    _install_options(command)
    command = actions.add_parser("update", run=update)
    command.add_argument("name", help="as 'skills list --installed' shows it")
    command.add_argument("source", nargs="?", help="another source; by default where it came from")
    _install_options(command)
    command = actions.add_parser("remove", run=remove)
    command.add_argument("name", help="as 'skills list --installed' shows it")
    command.add_argument("--yes", action="store_true", help="remove it without a question")


def _install_options(command: Parser) -> None:
    command.add_argument(
        "--build", action="store_true", help="allow packages without a wheel: building one runs its code"
    )
    command.add_argument("--yes", action="store_true", help="install without a question")
