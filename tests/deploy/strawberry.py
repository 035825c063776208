"""The command line as a person runs it: a process of its own, with a home of its own."""

import os
import subprocess
from pathlib import Path

from tests.forkserver import COMMAND


def environment_of(home: Path, **variables: str) -> dict[str, str]:
    """Give the environment of a command: this one's, without what says anything about models."""
    mine = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_API_KEY") and name != "OLLAMA_HOST"
    }
    return {**mine, "STRAWBERRY_HOME": str(home), "STRAWBERRY_LOCAL_MODELS_ONLY": "1", **variables}


def run(environment: dict[str, str], *words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, without a terminal."""
    return subprocess.run(
        [*COMMAND, *words],
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
