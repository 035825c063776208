"""The argument parser of every command: a mistake is one line that names what may have been meant."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from contracts.errors import ConfigError
from deploy.cli.terminal.asking import secret_in
from deploy.logs.terminal import BAD, coloured, visible

Run: TypeAlias = Callable[[argparse.Namespace], int | None]
"""A command; the first line of its docstring says what it does, the rest is the text of its help."""

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


def port(text: str) -> int:
    """Read a port; 0 means any free one."""
    if not (text.isascii() and text.isdecimal() and int(text) <= 0xFFFF):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def matching(pattern: str, what: str) -> Callable[[str], str]:
    """Return the type of an argument whose whole text matches a pattern of ASCII letters."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return text

    return read


instance_name = matching(
    r"(?!(chat|watchers|captures)$)[a-z][a-z0-9_-]{0,31}", "a name: small letters, digits, - and _"
)
"""Of a replica."""


def positive(text: str) -> int:
    """Read a whole number above 0."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def days(text: str) -> int:
    return 0 if text == "never" else positive(text)


if TYPE_CHECKING:
    _Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"
else:
    _Subparsers = argparse._SubParsersAction


class Actions(_Subparsers):
    """Commands below one."""

    def add_parser(
        self,
        name: str,
        *,
        run: Run | None = None,
        hub: bool = False,
        on: tuple[str, str] | None = None,
        **settings: Any,
    ) -> "Parser":
        """Add a command.

        Args:
            run: Where it is no group.
            hub: Whether its options name a hub to ask.
            on: The first argument of commands that act on the same kind of thing, and its help.
        """
        if run is not None and "help" not in settings:
            first = (run.__doc__ or "").partition("\n")[0]
            settings["help"] = first[:1].lower() + first[1:].rstrip(".")
        parser = super().add_parser(name, **settings)
        parser.set_defaults(command=name)
        if run is not None:
            parser.runs(run, hub=hub)
        if on is not None:
            parser.add_argument(on[0], help=on[1])
        return parser


class Options(argparse._ActionsContainer):
    """Short forms of the arguments that most commands have."""

    def takes(self, name: str, text: str, **settings: Any) -> None:
        """Add an argument with its help."""
        self.add_argument(name, help=text, **settings)

    def add_flag(self, name: str, text: str, **settings: Any) -> None:
        """Add a switch; with ``const`` it sets that value, and nothing where it is not given."""
        action = "store_const" if "const" in settings else "store_true"
        self.add_argument(name, action=action, help=text, **settings)

    def add_list(self, name: str, text: str, **settings: Any) -> None:
        self.add_argument(name, action="append", default=[], help=text, **settings)

    def add_number(self, name: str, text: str, *, default: int | None = None) -> None:
        self.add_argument(name, type=positive, metavar="N", default=default, help=text)


class Choice(Options, argparse._MutuallyExclusiveGroup):
    """Options that exclude each other."""


class Parser(Options, argparse.ArgumentParser):
    """Reports what is wrong in one line, with the nearest name there is."""

    def __init__(self, **settings: Any) -> None:
        # Abbreviated, '--hub' would be '--hub-key' where a command has no '--hub'.
        super().__init__(allow_abbrev=False, **settings)
        self.register("action", "parsers", Actions)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an argument; one without dashes is shown in capitals."""
        if names and not names[0].startswith("-") and "choices" not in settings:
            settings.setdefault("metavar", names[0].upper())
        return super().add_argument(*names, **settings)

    def add_mutually_exclusive_group(self, **settings: Any) -> Choice:
        """Add a group of options that exclude each other."""
        group = Choice(self, **settings)
        self._mutually_exclusive_groups.append(group)
        return group

    def runs(self, run: Run, *, hub: bool = False) -> None:
        """Make it the parser of a command; see `Actions.add_parser`."""
        self.set_defaults(run=run)
        self.description = " ".join((run.__doc__ or "").partition("\n")[2].split()) or None
        self.add_common_options()
        if hub:
            self.add_argument("--hub", metavar="URL", help="a hub other than the one running here")
            self.add_argument(
                "--token-file",
                metavar="FILE",
                dest="hub_token",
                type=_token_in,
                help="file with the token for that hub, - for standard input; default: STRAWBERRY_TOKEN",
            )

    def add_common_options(self) -> None:
        """Add the options of every command."""
        shared = self.add_argument_group("options of every command")
        # Without a default, a command does not undo what stood in front of it.
        switch: dict[str, Any] = {"action": "store_true", "default": argparse.SUPPRESS}
        shared.add_argument("--json", help="print the result as JSON", **switch)
        shared.add_argument("--debug", help="show tracebacks and debug logs", **switch)
        shared.add_argument("--no-colour", "--no-color", help="no colours, as with NO_COLOR", **switch)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and where help is if that does not name it, and end with code 2."""
        for pattern, words in _IN_PLAIN_WORDS:
            if pattern.fullmatch(message):
                message = pattern.sub(words, message)
                break
        commands = self.commands()
        if commands is not None and message == f"{commands.metavar} is missing":
            self.print_help(sys.stderr)
            self.exit(USAGE_ERROR)
        print(f"{coloured(self.prog, BAD, sys.stderr)}: {visible(message)}", file=sys.stderr)
        if "did you mean" not in message:
            print(visible(f"  '{self.prog} --help' lists what there is."), file=sys.stderr)
        self.exit(USAGE_ERROR)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse what is left over here, where the options of the command are known."""
        words = sys.argv[1:] if args is None else list(args)
        if self.commands() is not None and words and words[0].startswith("--"):
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

    def commands(self) -> "argparse._SubParsersAction[Any] | None":
        """Return the action that holds the commands below this one, if it is a group."""
        actions = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))
        return next(actions, None)


def _token_in(name: str) -> str:
    """Return the token in a file: it is never an argument itself, which other users could read."""
    try:
        # For standard input one line: what follows may be the messages of a conversation.
        token = secret_in(name, what="token").strip()
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.message) from None
    if not token:
        raise argparse.ArgumentTypeError(f"there is no token in {'standard input' if name == '-' else name}")
    return token


def _meant(word: str, known: Iterable[str]) -> str:
    # Imported here: only a mistake needs it, and it is slow to import.
    from contracts.validation import did_you_mean

    return did_you_mean(word, known)
