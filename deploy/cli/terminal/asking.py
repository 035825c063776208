"""Questions to the person who typed a command."""

import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contracts.errors import ConfigError
from contracts.text import escaped
from deploy import limits
from deploy.logs.terminal import visible

if TYPE_CHECKING:
    from pydantic import SecretStr

_YES: Final = ("y", "yes")
_NO: Final = ("n", "no")


class NobodyToAsk(ConfigError):
    """A question came up where no person can answer it."""


def agreed(question: str, *, otherwise: str = "Run it in a terminal.") -> bool:
    """Ask a question on standard error; only a clear yes is one.

    Args:
        otherwise: What to do where no person can answer, for example which option answers beforehand.

    Raises:
        NobodyToAsk: If standard input has ended and is no terminal.
    """
    return answer_to(question, otherwise=otherwise) is True


def is_sure(question: str, *, yes: bool) -> bool:
    """Return whether a person wants what is lost for good, or said ``--yes``.

    Raises:
        NobodyToAsk: As ``agreed``.
    """
    if yes or agreed(question, otherwise="Nothing was changed. Add --yes."):
        return True
    print("Nothing was changed.", file=sys.stderr)
    return False


def answer_to(question: str, *, otherwise: str = "Run it in a terminal.") -> bool | None:
    """Ask until the answer is yes or no; Enter alone and Ctrl-D leave it open, which is None.

    Raises:
        NobodyToAsk: As ``agreed``.
    """
    while True:
        print(visible(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            if not sys.stdin.isatty():
                raise NobodyToAsk(
                    "a confirmation is needed, and standard input is no terminal", hint=otherwise
                )
        answer = line.strip().lower()
        if answer in _YES:
            return True
        if answer in _NO:
            return False
        if not answer:
            return None
        print("Please answer y or n.", file=sys.stderr)


def call_question(called: str, arguments: Mapping[str, Any], *, cut: bool = False) -> str:
    """Write a question about a call: device and method come last, where no argument can push them away.

    Args:
        called: Device and method.
        cut: Whether the arguments are not whole as given.
    """
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    if cut or len(given) > limits.MAX_ARGUMENTS_SHOWN:
        given = f"{given[: limits.MAX_ARGUMENTS_SHOWN]} … (cut)"
    called = escaped(called)
    return f"{called}({escaped(given)})\n{called}?" if given else f"{called}()?"


def number_up_to(most: int, question: str, *, otherwise: str) -> int:
    """Ask until the answer is a number from 1 to ``most``.

    Raises:
        NobodyToAsk: If standard input has ended.
    """
    while True:
        print(visible(f"{question} [1-{most}] "), end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            raise NobodyToAsk("a number is needed, and standard input has ended", hint=otherwise)
        if line.strip().isdecimal() and 1 <= int(line) <= most:
            return int(line)
        print(f"Please answer with a number from 1 to {most}.", file=sys.stderr)


def typed_unseen(question: str) -> str:
    """Ask at a terminal for what is not shown there; Ctrl-D ends the command, as Ctrl-C does."""
    try:
        return getpass.getpass(question)
    except EOFError:
        raise KeyboardInterrupt from None


def ask_password(question: str, *, variable: str) -> "SecretStr":
    """Return a password from where no other user can see it: never from an argument.

    The variable comes first; then it is typed unseen at a terminal, or read from standard input.

    Raises:
        ConfigError: If there is none.
    """
    # Imported here: 'strawberry chat' asks questions too, and starts without pydantic.
    from pydantic import SecretStr

    # Taken out of the environment, so that no child finds it there.
    given = os.environ.pop(variable, "")
    if not given:
        given = typed_unseen(f"{question}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not given:
        raise ConfigError("no password was given", hint=f"Type it, or set {variable}.")
    return SecretStr(given)


def secret_in(file: str, *, what: str) -> str:
    """Return a secret in a file, or for ``-`` in the first line of standard input: it is never an argument.

    Raises:
        ConfigError: If the file cannot be read.
    """
    if file == "-":
        return sys.stdin.readline().rstrip("\r\n")
    try:
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the {what} file {file}: {error}") from None
