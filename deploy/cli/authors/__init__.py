"""Commands for authors of skills, which need no hub."""

import argparse

from deploy.cli.authors import checks
from deploy.cli.authors.trying import try_skills
from deploy.cli.terminal.parser import Parser

__all__ = ["add_author_actions"]

_PATH = "a skill by its name, a file or a folder; default: all skills of this machine"


def add_author_actions(actions: "argparse._SubParsersAction[Parser]") -> None:
    """Declare the actions of 'strawberry skills' that are for authors."""
    command = actions.add_parser("new", run=checks.new)
    command.add_argument("name", help="in small letters, for example coffee")
    command.add_argument("--folder", metavar="DIR", help="where to put it; default: skills of this machine")
    command = actions.add_parser("test", run=checks.test)
    command.add_argument("path", nargs="?", help=_PATH)
    command.add_argument("pytest", metavar="OPTION", nargs="*", help="for pytest, behind --: -- -k cups -x")
    command = actions.add_parser("try", run=try_skills)
    command.add_argument("path", nargs="?", help=_PATH)
    command.add_argument(
        "--samples", metavar="NAMES", default="none", help="samples to offer too, as media,lamp"
    )
    command.add_flag("--triggers", "run methods at times and events, too")
    command.add_flag("--json-lines", "for programs: one JSON object a line, both ways")
    actions.add_parser("lint", run=checks.lint).add_argument("path", nargs="?", help=_PATH)
