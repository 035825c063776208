"""``strawberry completion``: what completes commands and options with Tab."""

import argparse
from importlib import import_module

from deploy.cli.terminal.parser import Parser


def completion(options: argparse.Namespace) -> None:
    """Print what completes commands and options with Tab.

    bash: add eval "$(strawberry completion bash)" to ~/.bashrc. zsh: strawberry completion zsh >
    ~/.zfunc/_strawberry, where ~/.zfunc is in fpath. fish: strawberry completion fish >
    ~/.config/fish/completions/strawberry.fish.
    """
    # Here: all commands are imported for it, and the library itself is needed by this alone.
    from deploy.cli.commands import make_parser

    print(import_module("shtab").complete(make_parser(), shell=options.shell))


def register_completion(parser: Parser) -> None:
    """Declare 'strawberry completion'."""
    parser.runs(completion)
    parser.takes("shell", "bash, zsh or fish", choices=("bash", "zsh", "fish"), metavar="SHELL")
