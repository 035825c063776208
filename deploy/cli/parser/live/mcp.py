"""``strawberry mcp``: the Model Context Protocol."""

from deploy.cli.parser.shared import Commands, Parents


def add(commands: Commands, parents: Parents) -> None:
    """Add the command."""
    mcp = commands.add_parser(
        "mcp",
        parents=[parents.client],
        help="serve the home to an MCP client, or list the MCP servers of mcp.json",
        description="Serves the skills of the home over standard input and output, for MCP clients that "
        "start servers themselves. 'list' shows the servers of mcp.json, whose tools are skills of the hub.",
    )
    mcp.add_argument(
        "action",
        nargs="?",
        choices=("serve", "list"),
        default="serve",
        help="serve the home, or list servers; default %(default)s",
    )
    mcp.set_defaults(run="deploy.cli.mcp:run")
