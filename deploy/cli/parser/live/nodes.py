"""``strawberry nodes``: programs that run on the devices."""

from deploy.cli.parser.shared import Commands, Parents, add_actions, positive

_ACTS = {
    "start": "start a program; it is kept running from now on",
    "stop": "stop a program with all that it started",
    "restart": "stop and start a program",
    "build": "build a program as its node.yaml says, and show what the build writes",
}


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands."""
    actions = add_actions(commands, "nodes", help_="programs that run on the devices")
    each = actions.add_parser("list", parents=[parents.client], help="list the programs of all devices")
    each.add_argument("--device", metavar="NAME", help="only of this device")
    each.set_defaults(run="deploy.cli.live.nodes:list_nodes")
    for action, about in _ACTS.items():
        act = actions.add_parser(
            action, parents=[parents.client], help=about, usage="%(prog)s [OPTION ...] [DEVICE] NODE"
        )
        act.add_argument(
            "node", nargs="+", metavar="[DEVICE] NODE", help="the device is needed if several have one"
        )
        act.set_defaults(run="deploy.cli.live.nodes:act", action=action)
    logs = actions.add_parser(
        "logs",
        parents=[parents.client],
        help="show what a program wrote last",
        usage="%(prog)s [OPTION ...] [DEVICE] NODE",
    )
    logs.add_argument(
        "node", nargs="+", metavar="[DEVICE] NODE", help="the device is needed if several have one"
    )
    logs.add_argument(
        "--lines", type=positive, default=50, metavar="N", help="default %(default)s, at most 1000"
    )
    logs.set_defaults(run="deploy.cli.live.nodes:logs")
