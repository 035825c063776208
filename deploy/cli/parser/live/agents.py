"""``strawberry agents``: assistants with instructions, tools and rights of their own."""

from deploy.cli.parser.shared import Commands, Parents, add_actions


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands."""
    actions = add_actions(commands, "agents", help_="agents beside the assistant")
    each = actions.add_parser("list", parents=[parents.client], help="list the agents of the hub")
    each.set_defaults(run="deploy.cli.live.agents:list_agents")
    new = actions.add_parser(
        "new",
        parents=[parents.common],
        help="write the commented file of a new agent",
        description="Writes agents/NAME.yml in the data directory, to be edited; it counts at once.",
    )
    new.add_argument("name", metavar="NAME", help="for example finance")
    new.set_defaults(run="deploy.cli.live.agents:new")
    check = actions.add_parser(
        "check",
        parents=[parents.common],
        help="say what is wrong with the files of agents",
        description="Checks agents/*.yml in the data directory: mistakes with file and line, models, missing "
        "secrets, and Python functions, whose files it imports.",
    )
    check.add_argument("names", nargs="*", default=[], metavar="NAME", help="only these")
    check.set_defaults(run="deploy.cli.live.agents:check")
