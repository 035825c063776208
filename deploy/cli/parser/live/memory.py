"""``strawberry memory``: what the assistant remembers."""

from deploy.cli.parser.shared import Commands, Parents, add_actions


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands."""
    actions = add_actions(commands, "memory", help_="what the assistant remembers")
    each = actions.add_parser("list", parents=[parents.client], help="list everything that is remembered")
    each.set_defaults(run="deploy.cli.live.memory:list_entries")
    new = actions.add_parser("add", parents=[parents.client], help="remember something")
    new.add_argument("category", metavar="CATEGORY", help="for example Chores")
    new.add_argument("text", nargs="+", metavar="TEXT", help="what to remember")
    new.add_argument("--private", action="store_true", help="for you alone, not for the household")
    new.set_defaults(run="deploy.cli.live.memory:add")
    search = actions.add_parser("search", parents=[parents.client], help="find entries, best match first")
    search.add_argument("query", nargs="+", metavar="WORD")
    search.set_defaults(run="deploy.cli.live.memory:search")
    forget = actions.add_parser("forget", parents=[parents.client], help="forget an entry for good")
    forget.add_argument("entry", nargs="+", metavar="ENTRY", help="its id, or a part of its text")
    forget.set_defaults(run="deploy.cli.live.memory:forget")
