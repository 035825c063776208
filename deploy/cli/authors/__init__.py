"""Commands for authors of skills, which need no hub."""

from deploy.cli.authors import checks
from deploy.cli.authors.trying import try_skills
from deploy.cli.terminal.parser import Actions

__all__ = ["add_author_actions"]

_PATH = "a skill by its name, a file or a folder; default: all skills of this machine"


def add_author_actions(actions: Actions) -> None:
    """Declare the actions of 'strawberry skills' that are for authors."""
    command = actions.add_parser("new", run=checks.new)
    command.takes("name", "in small letters, for example coffee")
    command.takes("--folder", "where to put it; default: skills of this machine", metavar="DIR")
    command = actions.add_parser("test", run=checks.test)
    command.takes("path", _PATH, nargs="?")
    command.takes("pytest", "for pytest, behind --: -- -k cups -x", metavar="OPTION", nargs="*")
    command = actions.add_parser("try", run=try_skills)
    command.takes("path", _PATH, nargs="?")
    command.takes("--samples", "samples to offer too, as media,lamp", metavar="NAMES", default="none")
    command.add_flag("--triggers", "run methods at times and events, too")
    command.add_flag("--json-lines", "for programs: one JSON object a line, both ways")
    actions.add_parser("lint", run=checks.lint).takes("path", _PATH, nargs="?")
