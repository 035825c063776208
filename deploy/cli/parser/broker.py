"""``strawberry broker``: run, set up and check a broker, and its logins."""

from deploy.cli.parser.servers import TRUST, add_broker_run
from deploy.cli.parser.shared import Commands, Parents, add_actions


def add(commands: Commands, parents: Parents) -> None:
    """Add the command with its actions."""
    actions = add_actions(
        commands, "broker", help_="run, set up and check a broker; logins for MQTT programs"
    )
    add_broker_run(actions, parents)

    provision = actions.add_parser(
        "provision",
        parents=[parents.common],
        help="set up a Mosquitto of your own for Strawberry",
        description="Sets up roles and the hub's login on a Mosquitto with the dynamic security plugin. "
        "Asks for the password of its admin (or takes it from STRAWBERRY_BROKER_PASSWORD or standard input) "
        "and stores it nowhere. Clients that the broker knows already keep working.",
    )
    provision.add_argument("url", metavar="URL", help="for example mqtt://127.0.0.1:1883")
    provision.add_argument(
        "--admin",
        metavar="NAME",
        default="admin",
        help="user name of its dynamic security admin; default %(default)s",
    )
    provision.add_argument(
        "--ca", metavar="FILE", help="certificate authority of an mqtts address; default: those of the system"
    )
    provision.add_argument(
        "--insecure",
        action="store_true",
        help="allow a broker on another machine without TLS: others in the network can read everything",
    )
    provision.set_defaults(run="deploy.cli.broker:provision")

    check = actions.add_parser(
        "check",
        parents=[parents.common],
        help="try whether logins work and foreign access is denied",
    )
    check.add_argument("url", nargs="?", metavar="URL", help="default: the broker in use")
    check.add_argument("--trust-broker", action="store_true", help=TRUST)
    check.set_defaults(run="deploy.cli.broker:check")

    login = actions.add_parser(
        "login",
        parents=[parents.client],
        help="make a login for a program that watches the bus, such as MQTT Explorer",
        description="The login may read presence and values, but no calls. It may subscribe to #.",
    )
    login.add_argument(
        "--home-assistant",
        action="store_true",
        help="for Home Assistant: what is exposed to it, and nothing else",
    )
    login.add_argument("name", metavar="NAME", help="for example mqtt_explorer")
    login.add_argument("--chat", action="store_true", help="also allow chat, over hub/chat/NAME/…")
    login.set_defaults(run="deploy.cli.hub.logins:login")
    logins = actions.add_parser("logins", parents=[parents.client], help="list these logins")
    logins.set_defaults(run="deploy.cli.hub.logins:list_logins")
    logout = actions.add_parser("logout", parents=[parents.client], help="delete a login and disconnect it")
    logout.add_argument("name", metavar="NAME")
    logout.set_defaults(run="deploy.cli.hub.logins:logout")
