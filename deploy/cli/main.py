"""Parse the command line and run one command.

Only what the command needs is imported, so that ``strawberry chat`` sends its request at once.
"""

# ruff: noqa: E402
import signal

_raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _raises:
    # Ctrl-C during the imports ends the process without a traceback of them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import io
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from contracts.errors import StrawberryError
from deploy.cli.commands import make_parser
from deploy.cli.terminal.parser import USAGE_ERROR
from deploy.logs.terminal import BAD, coloured, discard_output, visible

if _raises:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code: 0, 1 after an error, 2 after a wrong command line, 130 after Ctrl-C, and after Ctrl-D
        where a password is asked for.
    """
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def _run(words: Sequence[str]) -> int:
    # Pydantic looks for plugins in the metadata of all packages: 20 ms of each start, and we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    _open_streams()
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    parser = make_parser(words)
    if not words:
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    options = parser.parse_args(words, argparse.Namespace(json=False, debug=False))
    if "no_colour" in options:
        os.environ["NO_COLOR"] = "1"  # rich and the programs that a command starts know it, too
    try:
        code = options.run(options) or 0
        sys.stdout.flush()  # here, where a reader that is gone is no error
        return code
    except BrokenPipeError:
        # `strawberry skills list | head`: that is no error.
        discard_output()
        return 0
    except StrawberryError as error:
        return _failed(options, error.message, error.hint)
    except OSError as error:
        from deploy.directory import explained

        return _failed(options, *explained(error))


def _failed(options: argparse.Namespace, message: str, hint: str) -> int:
    """Print the error that is being handled, with what to do about it; return the exit code."""
    if options.debug:
        traceback.print_exc()
    print(f"{coloured('strawberry', BAD, sys.stderr)}: {visible(message)}", file=sys.stderr)
    if hint:
        from deploy.update.installation import fitting

        print(visible(f"  {fitting(hint)}"), file=sys.stderr)
    if options.json and options.run.__module__ == "deploy.cli.serve":
        # Who reads the states of a server learns from them why there is none.
        print(json.dumps({"state": "failed", "error": message, "hint": hint}))
    return 1


def _open_streams() -> None:
    """Make the standard streams usable for every command.

    Python gives None for a stream that the caller has closed, and raises for a letter that the locale does
    not know.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  for as long as the process
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
