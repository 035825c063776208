"""Which releases of this program the package index has."""

import os
import re
import subprocess
import sys
from typing import Any, Final

from contracts.errors import StrawberryError
from deploy.update.installation import PACKAGE

_VARIABLES: Final = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*")
_PATIENCE_S: Final = 15


def newest_release() -> str | None:
    """Ask the package index that the environment names, else the one of pip; None where it has no release.

    Raises:
        StrawberryError: If it cannot be asked.
    """
    index = next(filter(None, map(os.environ.get, _VARIABLES)), None)
    return _newest_by_pip() if index is None else _newest_of(index.rstrip("/"))


def _newest_by_pip() -> str | None:
    command = (sys.executable, "-m", "pip", "index", "versions", PACKAGE)
    options = ("--disable-pip-version-check", "--retries", "1", "--timeout", str(_PATIENCE_S))
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
            f"{index}/{PACKAGE}/", headers={"Accept": _JSON}, timeout=_PATIENCE_S, follow_redirects=True
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
    """Return whether a release is newer than another one."""
    return _order(release) > _order(than)


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))
