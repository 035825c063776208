"""The command line as a person runs it: a process of its own, with a home of its own."""

import os
import subprocess
from pathlib import Path

from tests.forkserver import COMMAND


def environment_of(home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a command: this one's, without what says anything about homes or models."""
    mine = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STRAWBERRY", "HUB_", "OLLAMA_HOST")) and not name.endswith("_API_KEY")
    }
    fixed = {"STRAWBERRY_HOME": str(home), "STRAWBERRY_LOCAL_MODELS_ONLY": "1"}
    return {**mine, **fixed, "PYTHONPATH": str(Path(__file__).parents[2]), **variables}


def run(
    environment: dict[str, str], *words: str, shell: str = "", text: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, without a terminal.

    Args:
        shell: A script that runs it as ``"$@"``.
    """
    return subprocess.run(
        [*(("/bin/sh", "-c", shell, "sh") if shell else ()), *COMMAND, *words],
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
