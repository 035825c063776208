"""``strawberry cluster``: the replicas of the hub."""

from deploy.cli.resources import add_declared
from deploy.cli.terminal.parser import Parser


def register_cluster(parser: Parser) -> None:
    """Declare 'strawberry cluster'."""
    add_declared(parser.add_subparsers(title="actions", metavar="ACTION", required=True), "cluster")
