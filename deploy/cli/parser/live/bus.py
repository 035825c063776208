"""``strawberry bus``: the values of topics."""

from deploy.cli.parser.shared import LINKS, Commands, Parents, add_actions, positive
from deploy.cli.parser.usage import Parser

_ABOUT = (
    "Reads and publishes MQTT topics through the hub: on Strawberry's own bus, or with --link home on the "
    "broker of [home_broker]."
)


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands."""
    actions = add_actions(commands, "bus", help_="read and publish MQTT topics", description=_ABOUT)
    latest = actions.add_parser(
        "latest",
        parents=[parents.client],
        help="show the last value of a topic, or of all that a filter matches",
        description="Shows the last value of each topic. With --json and --follow, one JSON object per line.",
    )
    _add_topic(latest, "topic, or topic filter with + and #")
    latest.add_argument("--follow", action="store_true", help="go on with new values until Ctrl-C")
    latest.set_defaults(run="deploy.cli.live.bus:latest")
    history = actions.add_parser(
        "history",
        parents=[parents.client],
        help="show the recent values of a topic",
        description="Shows the recent values of a topic, oldest first. They are kept from the first time "
        "that it is watched, recorded or asked for.",
    )
    _add_topic(history, "topic")
    history.add_argument(
        "--since", default="1h", metavar="TIME", help="10m, 2h, 1d, or a date and time; default %(default)s"
    )
    history.add_argument(
        "--limit",
        type=positive,
        default=100,
        metavar="N",
        help="at most so many, the newest; default %(default)s",
    )
    history.set_defaults(run="deploy.cli.live.bus:history")
    publish = actions.add_parser(
        "publish",
        parents=[parents.client],
        help="publish on a topic",
        description="Publishes on the home broker, after a confirmation unless [home_broker] publish has the "
        "topic; on the bus only on users/<your id>/events/<name>.",
    )
    _add_topic(publish, "topic")
    publish.add_argument("payload", metavar="PAYLOAD", help="text or JSON, sent as it is")
    publish.add_argument(
        "--retain", action="store_true", help="have the broker keep it for later subscribers"
    )
    publish.add_argument("--qos", type=int, choices=(0, 1), default=0, help="1 waits until the broker has it")
    publish.set_defaults(run="deploy.cli.live.bus:publish")


def _add_topic(parser: Parser, help_: str) -> None:
    parser.add_argument("topic", metavar="TOPIC", help=help_)
    parser.add_argument("--link", choices=LINKS, default="bus", help="default %(default)s")
