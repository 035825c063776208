"""Which releases of this program the package index has."""

import os
import re
from typing import Any, Final

from contracts.errors import StrawberryError
from deploy.update.installation import PACKAGE

_INDEX: Final = "https://pypi.org/simple"
_VARIABLES: Final = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*")
_PATIENCE_S: Final = 15


def newest_release() -> str | None:
    """Ask the package index, which pip and uv name in the same way; None where it has no release.

    Raises:
        StrawberryError: If it cannot be asked.
    """
    import httpx

    index = next(filter(None, map(os.environ.get, _VARIABLES)), _INDEX).rstrip("/")
    try:
        answer = httpx.get(
            f"{index}/{PACKAGE}/", headers={"Accept": _JSON}, timeout=_PATIENCE_S, follow_redirects=True
        )
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        files: list[dict[str, Any]] = answer.raise_for_status().json()["files"]
        wheels = [str(file["filename"]) for file in files if not file.get("yanked")]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        raise StrawberryError(
            "the package index cannot be asked for versions",
            hint="Is this machine connected? Try again later.",
        ) from None
    names = [name.split("-")[1] for name in wheels if name.endswith(".whl") and "-" in name]
    return max(filter(_RELEASE.fullmatch, names), key=_order, default=None)


def is_newer(release: str, than: str) -> bool:
    """Return whether a release is newer than another one."""
    return _order(release) > _order(than)


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))
