"""The argument parser of every command: a mistake is one line that names what may have been meant."""

import argparse
import re
import sys
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from deploy.logs.terminal import visible

USAGE_ERROR: Final = 2
"""The exit code of a command line that is not understood, as in other programs."""

_IN_PLAIN_WORDS: Final = (
    (re.compile(r"argument (.+): expected one argument"), r"\1 needs a value"),
    (re.compile(r"argument (.+): expected at least one argument"), r"\1 needs a value"),
    (re.compile(r"argument (.+): invalid int value: (.+)"), r"\1 needs a whole number, not \2"),
    (re.compile(r"argument (.+): not allowed with argument (.+)"), r"\1 and \2 exclude each other"),
    (re.compile(r"argument (.+): ignored explicit argument (.+)"), r"\1 takes no value"),
    (re.compile(r"the following arguments are required: (.+)"), r"\1 is missing"),
    (re.compile(r"argument (.+?): (.+)"), r"\1: \2"),
)

# argparse looks on the disk for a translation of each word that it may print: 11 ms of every command, and
# there is none, since these commands speak English.
argparse._ = lambda text: text  # type: ignore[attr-defined]


class Parser(argparse.ArgumentParser):
    """Reports what is wrong in one line, with the nearest name there is."""

    def __init__(self, **settings: Any) -> None:
        # Abbreviated, '--hub' would be '--hub-key' where a command has no '--hub'.
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and where help is if that does not name it, and end with code 2."""
        for pattern, words in _IN_PLAIN_WORDS:
            if pattern.fullmatch(message):
                message = pattern.sub(words, message)
                break
        commands = self._commands()
        if commands is not None and message == f"{commands.metavar} is missing":
            self.print_help(sys.stderr)
            self.exit(USAGE_ERROR)
        print(visible(f"{self.prog}: {message}"), file=sys.stderr)
        if "did you mean" not in message:
            print(visible(f"  '{self.prog} --help' lists what there is."), file=sys.stderr)
        self.exit(USAGE_ERROR)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse what is left over here, where the options of the command are known."""
        words = sys.argv[1:] if args is None else list(args)
        if self._commands() is not None and words and words[0].startswith("--"):
            # Else its value would be taken for a command.
            self._check_option(words[0], "; the options of a command come after it")
        known, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self._check_option(unknown[0])
            self.error(f"unexpected argument {unknown[0]!r}")
        return known, unknown

    def _check_option(self, word: str, otherwise: str = "") -> None:
        name = word.partition("=")[0]
        options = self._option_string_actions
        if name.startswith("-") and name != "--" and name not in options:
            self.error(f"unknown option {name!r}{_meant(name, options) or otherwise}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        kind = str(action.metavar or next(iter(action.option_strings), action.dest)).lower().strip("[]")
        choices = [str(choice) for choice in action.choices]
        meant = _meant(str(value), choices) or f"; there are: {', '.join(choices)}"
        # Not an ArgumentError: that would put the metavar in front.
        self.error(f"unknown {kind} {value!r}{meant}")

    def _commands(self) -> "argparse._SubParsersAction[Any] | None":
        actions = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))
        return next(actions, None)


def _meant(word: str, known: Iterable[str]) -> str:
    # Imported here: only a mistake needs it, and it is slow to import.
    from contracts.validation import did_you_mean

    return did_you_mean(word, known)
