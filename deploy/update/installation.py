"""How this program was installed, the one command that updates it, and the releases that there are."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

from contracts.errors import StrawberryError
from deploy import limits

Kind = Literal["script", "app", "container", "checkout", "pipx", "uv", "uv pip", "pip"]

PACKAGE: Final = "strawberry-home"
CONTAINER: Final = "STRAWBERRY_CONTAINER"
"""Set in the environment of our container image, and to ``app`` in that of the app of Home Assistant."""
SCRIPT: Final = Path(__file__).with_name("install.sh")

_COMMANDS: Final[Mapping[Kind, str]] = {
    "script": "strawberry update --from {source}",
    # With the new version in its folder, as DOCS.md says.
    "app": "ha store reload && ha addons update local_strawberry",
    # The image is built on the machine itself, from the checkout that has compose.yaml.
    "container": "git pull && docker compose up -d --build",
    "checkout": "git pull && make setup",
    "pipx": "pipx install --force {requirement}",
    "uv": "uv tool install --force {requirement}",
    "uv pip": "uv pip install --python {python} --upgrade {requirement}",
    "pip": "{python} -m pip install --upgrade {requirement}",
}
_FROM_INDEX: Final[Mapping[Kind, str]] = {
    # They know themselves which extras were installed.
    "pipx": f"pipx upgrade {PACKAGE}",
    "uv": f"uv tool upgrade {PACKAGE}",
}
_EXTRAS: Final[Mapping[Kind, str]] = {
    "script": "sh install.sh --from WHEEL --extras {extras}",
    "checkout": "{python} -m pip install -e '{checkout}[{extras}]'",
    "pipx": "pipx install --force '{source}[{extras}]'",
    "uv": "uv tool install --force '{source}[{extras}]'",
    "uv pip": "uv pip install --python {python} '{source}[{extras}]'",
    "pip": "{python} -m pip install '{source}[{extras}]'",
}
"""What adds an extra; the others have what they need, or are built again."""
_ABOUT: Final[Mapping[Kind, str]] = {
    "script": "by install.sh",
    "app": "as an app of Home Assistant",
    "container": "as a container",
    "checkout": "as a checkout of the repository",
    "pipx": "with pipx",
    "uv": "with uv tool",
    "uv pip": "with uv pip",
    "pip": "with pip",
}


_VARIABLES: Final = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True)
class Installation:
    """One installation of this program.

    Attributes:
        root: Of one that ``install.sh`` made: the directory with its versions.
        from_file: Whether a wheel was installed: the package index may have another program under our name.
        extras: That are installed, as in ``[voice]``.
    """

    kind: Kind
    root: Path | None = None
    from_file: bool = False
    extras: str = ""

    def command(self, wheel: str | None = None) -> str:
        """Return what updates it, as it is typed.

        Args:
            wheel: The file of the new version, or the name of the package.
        """
        source = wheel or ("./WHEEL" if self.from_file else PACKAGE)
        form = _COMMANDS[self.kind]
        if source == PACKAGE and not self.from_file:
            form = _FROM_INDEX.get(self.kind, form)
        if wheel not in {None, PACKAGE}:
            # A bare name may be taken for that of a package.
            source = str(Path(source).absolute())
        return form.format(
            python=_quoted(sys.executable), source=_quoted(source), requirement=_quoted(source + self.extras)
        )

    @property
    def about(self) -> str:
        return _ABOUT[self.kind]


def _quoted(word: str) -> str:
    return shlex.quote(word) if os.name == "posix" else f'"{word}"'


def script_root(prefix: Path) -> Path | None:
    """Return the directory that ``install.sh`` made for this environment; None where it did not."""
    root = prefix.parent.parent
    return root if prefix.parent.name == "versions" and (root / "current").is_symlink() else None


def fitting(hint: str, prefix: Path = Path(sys.prefix)) -> str:
    """Return a hint with the commands as they are typed where this installation is.

    A hint names the program ``strawberry`` and adds an extra by ``pip install 'strawberry-home[EXTRA]'``.
    """
    installed = find_installation(prefix)
    form = _EXTRAS.get(installed.kind)
    if form is not None:
        extras = installed.extras.strip("[]")
        if installed.root is not None and (installed.root / "extras").exists():
            extras = (installed.root / "extras").read_text("utf-8")
        already = f"{extras}," if extras else ""
        source = "./WHEEL" if installed.from_file else PACKAGE
        values = {"python": _quoted(sys.executable), "source": source, "checkout": SCRIPT.parents[2]}
        hint = re.sub(
            rf"pip install '{PACKAGE}\[(\w+)\]'",
            lambda found: form.format(extras=f"{already}{found[1]}", **values),
            hint,
        )
    return re.sub(r"'strawberry (?=[a-z])", lambda _: f"'{program(installed)} ", hint)


def program(installed: Installation) -> str:
    """Return how this program is called in the shell that it was started from."""
    if installed.kind == "container":
        return "docker compose exec hub strawberry"
    called = Path(sys.argv[0])
    is_found = shutil.which("strawberry") is not None
    return "strawberry" if is_found or called.name != "strawberry" else _quoted(str(called.absolute()))


def find_installation(
    prefix: Path = Path(sys.prefix), environment: Mapping[str, str] = os.environ
) -> Installation:
    """Return how the running program was installed."""
    root = script_root(prefix)
    if root is not None:
        return Installation("script", root)
    if CONTAINER in environment:
        return Installation("app" if environment[CONTAINER] == "app" else "container")
    if (SCRIPT.parents[2] / "pyproject.toml").exists():
        return Installation("checkout")
    kind: Kind = "pip" if importlib.util.find_spec("pip") is not None else "uv pip"
    if (prefix / "pipx_metadata.json").exists():
        kind = "pipx"
    elif (prefix / "uv-receipt.toml").exists():
        kind = "uv"
    # PEP 610: what did not come from an index says where it came from.
    from_file = metadata.distribution(PACKAGE).read_text("direct_url.json") is not None
    return Installation(kind, from_file=from_file, extras=_extras(metadata.requires(PACKAGE) or []))


def _extras(requirements: Iterable[str]) -> str:
    """Return the extras of which everything is installed: pip and uv forget which ones were asked for."""
    there: dict[str, bool] = {}
    for each in requirements:
        name, extra = re.match(r"[\w.-]+", each), re.search(r"extra == ['\"]([\w-]+)", each)
        # Extras that stand for others are there as those.
        if name is not None and extra is not None and name[0] != PACKAGE and "sys_platform" not in each:
            there[extra[1]] = there.get(extra[1], True) and _is_installed(name[0])
    found = [extra for extra, complete in there.items() if complete]
    return f"[{','.join(found)}]" if found else ""


def _is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def newest_release() -> str | None:
    """Ask the package index that the environment names, else the one of pip; None where it has no release.

    Raises:
        StrawberryError: If it cannot be asked.
    """
    index = next(filter(None, map(os.environ.get, _VARIABLES)), None)
    return _newest_by_pip() if index is None else _newest_of(index.rstrip("/"))


def _newest_by_pip() -> str | None:
    command = (sys.executable, "-m", "pip", "index", "versions", PACKAGE)
    options = ("--disable-pip-version-check", "--retries", "1", "--timeout", str(limits.INSTALLATION_CHECK_S))
    asked = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        found = re.search(rf"\(({_RELEASE.pattern})\)", asked.stdout)
        return found[1] if found is not None else None
    if "No matching distribution" in asked.stderr and "Retrying" not in asked.stderr:
        return None
    raise _cannot_ask()


def _newest_of(index: str) -> str | None:
    import httpx

    try:
        answer = httpx.get(
            f"{index}/{PACKAGE}/",
            headers={"Accept": _JSON},
            timeout=limits.INSTALLATION_CHECK_S,
            follow_redirects=True,
        )
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        files: list[dict[str, Any]] = answer.raise_for_status().json()["files"]
        wheels = [str(file["filename"]) for file in files if not file.get("yanked")]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        raise _cannot_ask() from None
    names = [name.split("-")[1] for name in wheels if name.endswith(".whl") and "-" in name]
    return max(filter(_RELEASE.fullmatch, names), key=_order, default=None)


def _cannot_ask() -> StrawberryError:
    return StrawberryError(
        "the package index cannot be asked for versions",
        hint=f"Is this machine connected? Without pip, {_VARIABLES[0]} names the index.",
    )


def is_newer(release: str, than: str) -> bool:
    return _order(release) > _order(than)


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))
