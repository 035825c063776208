"""``strawberry events``: what happened in the home."""

from deploy.cli.parser.shared import Commands, Parents, positive

_KINDS = ("watcher", "capture", "presence", "notification", "timer", "node")


def add(commands: Commands, parents: Parents) -> None:
    """Add the command."""
    events = commands.add_parser(
        "events",
        parents=[parents.client],
        help="show what happened: watchers, captures, devices, notifications",
        description="Shows the latest events, oldest first. With --json, one event per line.",
    )
    events.add_argument("--follow", action="store_true", help="go on with new events until Ctrl-C")
    events.add_argument("--kind", choices=_KINDS, help="only events of this kind")
    events.add_argument(
        "--last", type=positive, default=20, metavar="N", help="how many of the latest; default %(default)s"
    )
    events.set_defaults(run="deploy.cli.live.events:events")
