"""``strawberry certs``, ``purge`` and ``doctor``: the state of this home."""

from deploy.cli.parser.shared import Commands, Parents


def add(commands: Commands, parents: Parents) -> None:
    """Add these commands."""
    certs = commands.add_parser(
        "certs",
        parents=[parents.common],
        help="make and show the certificates for --lan",
        description="Makes a certificate authority of this home, once, and a server certificate with the "
        "names and addresses of this machine. Devices that join trust that authority and no other.",
    )
    certs.add_argument(
        "--name",
        metavar="N",
        action="append",
        default=[],
        help="another name or address under which this machine is reached; may be given several times",
    )
    certs.add_argument("--renew", action="store_true", help="a new server certificate, even if this is good")
    certs.set_defaults(run="deploy.cli.certs:certs")

    purge = commands.add_parser(
        "purge",
        parents=[parents.client],
        help="empty every topic that Strawberry ever published, on all brokers",
    )
    purge.add_argument("--yes", action="store_true", help="without asking")
    purge.set_defaults(run="deploy.cli.purge:purge")

    doctor = commands.add_parser("doctor", parents=[parents.client], help="check this installation")
    doctor.set_defaults(run="deploy.cli.doctor:doctor")
