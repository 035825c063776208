"""``strawberry render``: configuration for the programs that a home beyond one machine runs on."""

import argparse
import asyncio
import json

from contracts.errors import ConfigError
from deploy.cli.terminal.output import Output
from deploy.cli.terminal.parser import Parser, matching, positive
from deploy.directory import Home
from deploy.home.brokers.processes import load_identity
from deploy.rendering.rendering import render_emqx, render_kubernetes, render_nats
from identity.keys import KeyPair


def kubernetes(options: argparse.Namespace) -> None:
    """Print Kubernetes manifests for several hubs of one home.

    What must be there first is in the first lines of what is printed: PostgreSQL, NATS, and the secrets.
    """
    text = render_kubernetes(
        name=options.name, host=options.host, image=options.image, replicas=options.replicas
    )
    Output(options.json).result({"manifests": text}, text=text.rstrip("\n"))


def nats(options: argparse.Namespace) -> None:
    """Print the values of NATS's own Helm chart for the bus of this home.

    Nothing in them is secret: hubs and nodes know each other by the public parts of keys, and by certificates
    in the Secret nats-certs.
    """
    text = render_nats(KeyPair.load(_home().hub / "key.pem"))
    Output(options.json).result({"values": text}, text=text.rstrip("\n"))


def emqx(options: argparse.Namespace) -> None:
    """Print a configuration of EMQX 5.7 or newer for the bus of this home.

    EMQX asks the hub for its key, and accepts tokens signed with it until they end. What a token allows is
    in its claim "acl"; put kind = "emqx" into [broker] of strawberry.toml, so that it is there. ca.pem,
    server.pem and server.key belong into /opt/emqx/etc/certs.
    """
    identity = asyncio.run(load_identity(_home()))
    text = render_emqx(hub_id=identity.hub_id, hub=options.hub)
    Output(options.json).result(json.loads(text), text=text.rstrip("\n"))


def _home() -> Home:
    home = Home.find()
    if not home.has_hub:
        raise ConfigError(
            f"there is no hub in {home.directory}", hint="Set STRAWBERRY_HOME to its directory."
        )
    return home


_hub = matching(r"https://[a-z0-9.-]+(:\d{1,5})?/?", "an address such as https://hub.lan:8443")
_label = matching(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a name: small letters, digits and -")
_host = matching(r"[a-z0-9]([a-z0-9.-]{0,252})", "a host name in small letters")
_image = matching(r"[\w.:/@-]+", "the name of an image")


def register_render(parser: Parser) -> None:
    """Declare 'strawberry render'."""
    kinds = parser.add_subparsers(title="programs", metavar="PROGRAM", required=True)
    command = kinds.add_parser("kubernetes", run=kubernetes, help="manifests for several hubs of one home")
    command.takes("--name", "namespace; default: strawberry", type=_label, default="strawberry")
    command.takes("--host", "name under which people and devices reach the home", type=_host, required=True)
    command.takes("--image", "image of deploy/container, with its tag", type=_image, required=True)
    command.takes("--replicas", "hubs; default: 3", type=positive, default=3, metavar="N")
    kinds.add_parser("nats", run=nats)
    command = kinds.add_parser("emqx", run=emqx, help="configuration of EMQX as the bus")
    command.takes(
        "--hub", "address of the hub, such as https://hub.lan:8443", type=_hub, required=True, metavar="URL"
    )
