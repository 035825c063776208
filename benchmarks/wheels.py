"""What an installation downloads: the wheels of each extra, resolved for a platform without fetching them."""

import asyncio
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.measure import Effort
from benchmarks.table import Reach, Row, not_measured
from contracts.errors import StrawberryError

ROOT: Final = Path(__file__).parents[1]
UV: Final = Path(sys.executable).with_name("uv")
_PATIENCE_S: Final = 120
_MB: Final = 1e6
PI: Final = "aarch64-manylinux_2_36"
"""Debian 12 and Raspberry Pi OS of 2023, on 64 bits."""

_ROWS: Final[Mapping[str, tuple[tuple[str, ...], str, Reach]]] = {
    "a spoke": ((), PI, Reach(most=60)),
    "make run: hub, web UI, TensorZero, sandbox": (("hub",), PI, Reach(most=160)),
    "make run on x86-64, with token vectors": (("hub",), "x86_64-manylinux_2_36", Reach(most=160)),
}


def resolve(*extras: str, platform: str = PI, python: str = "3.11") -> dict[str, int]:
    """Return the bytes of each wheel that an installation with these extras needs.

    Args:
        platform: As uv names it.

    Raises:
        StrawberryError: If one has no wheel for the platform, or the registry cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="strawberry-wheels-") as folder:
        lock = Path(folder) / "pylock.toml"
        command: Sequence[str] = (
            *(str(UV), "pip", "compile", "--quiet", "--format", "pylock.toml", "--output-file", str(lock)),
            # Nothing is built, so that no Python is needed; uv would fetch one, and try long without network.
            "--no-python-downloads",
            *("--only-binary", ":all:", "--python-platform", platform, "--python-version", python),
            *("--constraint", str(ROOT / "constraints.txt"), str(ROOT / "pyproject.toml")),
            *(word for extra in extras for word in ("--extra", extra)),
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        if done.returncode != 0:
            raise StrawberryError(done.stderr.strip())
        packages = tomllib.loads(lock.read_text("utf-8"))["packages"]
    # Of several wheels that fit, the installer takes one; they hardly differ.
    return {each["name"]: max(wheel["size"] for wheel in each["wheels"]) for each in packages}


def megabytes(wheels: Mapping[str, int]) -> float:
    """Return the size of some wheels together."""
    return sum(wheels.values()) / _MB


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; asks the package registry, and downloads no wheel."""
    made = []
    for who, (extras, platform, reach) in _ROWS.items():
        name = f"wheels of {who}"
        try:
            size = megabytes(await asyncio.to_thread(resolve, *extras, platform=platform))
        except (StrawberryError, OSError, subprocess.TimeoutExpired) as error:
            made.append(not_measured(name, str(error).splitlines()[0]))
        else:
            made.append(Row(name, size, "MB", reach))
    return made
