"""``strawberry certs``, ``purge`` and ``doctor``: maintenance."""

from deploy.cli.parser.shared import Commands, Parents


def add(commands: Commands, parents: Parents) -> None:
    """Add these commands."""
    certs = commands.add_parser(
        "certs",
        parents=[parents.common],
        help="make and show the certificates for --lan",
        description="Makes a certificate authority for this home, once, and a server certificate with the "
        "names and addresses of this machine. Devices that join trust this authority and no other.",
    )
    certs.add_argument(
        "--name",
        metavar="N",
        action="append",
        default=[],
        help="another name or address of this machine; may be repeated",
    )
    certs.add_argument(
        "--renew", action="store_true", help="make a new server certificate even if the present one is valid"
    )
    certs.set_defaults(run="deploy.cli.home:certs")

    purge = commands.add_parser(
        "purge",
        parents=[parents.client],
        help="remove everything that Strawberry published from the brokers",
    )
    purge.add_argument("--yes", action="store_true", help="do not ask")
    purge.set_defaults(run="deploy.cli.home:purge")

    doctor = commands.add_parser(
        "doctor", parents=[parents.client], help="check this installation and say how to fix it"
    )
    doctor.set_defaults(run="deploy.cli.home:doctor")
