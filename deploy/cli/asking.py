"""Asking the person who typed a command."""

import getpass
import os
import sys

from pydantic import SecretStr

from contracts.errors import ConfigError
from deploy.logs.terminal import visible


def agreed(question: str) -> bool:
    """Ask a question on standard error; anything but a clear yes, and no answer at all, is a no."""
    print(visible(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def ask_password(question: str, *, variable: str) -> SecretStr:
    """Get a password from where no other user can see it: never from an argument.

    The variable counts first; then it is typed unseen at a terminal, or read from standard input.

    Raises:
        ConfigError: If there is none.
    """
    # Taken out of the environment, so that no child finds it there.
    given = os.environ.pop(variable, "")
    if not given:
        given = getpass.getpass(f"{question}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not given:
        raise ConfigError("no password was given", hint=f"Type it, or set {variable}.")
    return SecretStr(given)
