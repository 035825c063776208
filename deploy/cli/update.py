"""``strawberry update``: another version of this program, where it was installed so that it can do that."""

import argparse
import os
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from contracts.errors import ConfigError, StrawberryError
from deploy.cli.terminal.output import Output, waiting
from deploy.update.installation import PACKAGE, SCRIPT, Installation, find_installation

_INDEX: Final = "https://pypi.org/simple"
_VARIABLES: Final = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*")
_PATIENCE_S: Final = 15


def update(options: argparse.Namespace) -> int:
    """Update, go back, or say how that is done here."""
    installed = find_installation()
    if options.check:
        _check(options, installed)
        return 0
    if installed.root is None:
        if options.rollback or options.wheel is not None:
            raise ConfigError(
                f"this Strawberry was installed {installed.about}, which keeps no earlier version",
                hint="Use the program that installed it.",
            )
        Output(options.json).result(
            {"installed": installed.kind, "command": installed.command},
            text=f"Strawberry {version(PACKAGE)} was installed {installed.about}. Update it with:\n"
            f"  {installed.command}",
        )
        return 0
    words = ["--rollback"] if options.rollback else ["--update"]
    if options.wheel is not None:
        words += ["--from", str(Path(options.wheel).absolute())]
    # The script says itself what is wrong, and which version is in use then.
    return subprocess.run(
        ["sh", str(SCRIPT), *words], env={**os.environ, "STRAWBERRY_ROOT": str(installed.root)}, check=False
    ).returncode


def _check(options: argparse.Namespace, installed: Installation) -> None:
    own = version(PACKAGE)
    with waiting("asking for the newest version"):
        newest = _newest()
    newer = newest is not None and _order(newest) > _order(own)
    if newer:
        text = f"Version {newest} is available, this is {own}. Update it with: {installed.command}"
    elif newest is None:
        text = f"No version is published yet; this is {own}."
    else:
        text = f"{own} is the newest version."
    Output(options.json).result(
        {"version": own, "newest": newest, "update": newer, "command": installed.command}, text=text
    )


def _newest() -> str | None:
    """Ask the package index, which pip and uv name in the same way; None where it has no release."""
    import httpx

    index = next(filter(None, map(os.environ.get, _VARIABLES)), _INDEX).rstrip("/")
    problem = StrawberryError(
        "the package index cannot be asked for versions", hint="Is this machine connected? Try again later."
    )
    try:
        answer = httpx.get(
            f"{index}/{PACKAGE}/", headers={"Accept": _JSON}, timeout=_PATIENCE_S, follow_redirects=True
        )
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        files: list[dict[str, Any]] = answer.raise_for_status().json()["files"]
        wheels = [str(file["filename"]) for file in files if not file.get("yanked")]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        raise problem from None
    names = [name.split("-")[1] for name in wheels if name.endswith(".whl") and "-" in name]
    return max(filter(_RELEASE.fullmatch, names), key=_order, default=None)


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))
