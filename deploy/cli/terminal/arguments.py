"""Arguments of the commands that serve; ``service install`` takes them, too."""

import argparse
import re

from contracts.addresses import BROKER_PORTS, HTTP_PORT, HTTPS_PORT
from deploy.cli.terminal.parser import Parser, instance_name, port
from deploy.settings.options import NodeOptions

_FREE = "default %(default)s; 0 for any free one"
_SAMPLES = "samples to offer, as media,lamp, or none"
_HOST = re.compile(r"[A-Za-z0-9._-]+")


def _add_port(parser: Parser, flag: str, *, text: str, default: int | None = None) -> None:
    parser.takes(flag, text, type=port, metavar="N", default=default)


def add_insecure(parser: Parser) -> None:
    parser.add_flag("--insecure", "allow an unencrypted connection, to a hub that runs with --insecure-lan")


def _add_lan(parser: Parser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_flag("--lan", "accept other machines, with TLS; makes the certificates")
    choice.add_flag(
        "--insecure-lan",
        "accept other machines without TLS: anyone in the network can read tokens and use them",
    )


def _add_http(parser: Parser) -> None:
    _add_port(parser, "--http-port", default=HTTP_PORT, text=_FREE)
    _add_port(parser, "--https-port", default=HTTPS_PORT, text=f"with --lan; {_FREE}")


def add_trust(parser: Parser) -> None:
    """Add the options of a broker of others."""
    parser.add_flag(
        "--trust-broker",
        "use a broker that Strawberry did not set up, with the login in [broker] of strawberry.toml; "
        "all topics are below strawberry/, and all users of that broker can read them",
    )


def add_listeners(parser: Parser) -> None:
    """Add the listeners of a broker."""
    _add_port(
        parser,
        "--mqtt-port",
        text="default: port of [broker] in strawberry.toml, else 1883, or the next free one where another "
        "program uses it; 0 for any free one",
    )
    _add_lan(parser)
    _add_port(parser, "--mqtts-port", default=BROKER_PORTS["mqtts"], text=f"with --lan; {_FREE}")
    _add_port(parser, "--ws-port", text="also accept MQTT over WebSocket on this port; 0 for any free one")


def add_node(parser: Parser) -> None:
    """Add what a NATS server needs more than another broker."""
    parser.takes(
        "--kind",
        "default %(default)s; nats needs the extra strawberry-home[nats]",
        choices=("embedded", "nats"),
        default="embedded",
    )
    _add_port(parser, "--nats-port", default=NodeOptions.nats, text=f"of NATS, for hubs; {_FREE}")
    _add_port(
        parser,
        "--cluster-port",
        default=NodeOptions.cluster,
        text="of NATS, for the other nodes; default %(default)s",
    )
    parser.takes(
        "--cluster",
        "all nodes of a NATS cluster, this one among them, as HOST or HOST:PORT with its --cluster-port",
        type=_nodes,
        default=(),
        metavar="HOST,HOST,…",
    )


def _nodes(text: str) -> tuple[str, ...]:
    nodes = dict[str, None]()
    for each in text.split(","):
        host, _, number = each.partition(":")
        if not (_HOST.fullmatch(host) and port(number or "1")):
            raise argparse.ArgumentTypeError(f"{each!r} is not a node such as one.lan or one.lan:6222")
        nodes[f"{host}:{number or NodeOptions.cluster}"] = None
    if len(nodes) == 1:
        raise argparse.ArgumentTypeError(
            "one node is no cluster: name all of them, as one.lan,two.lan,three.lan"
        )
    return tuple(nodes)


def add_up_arguments(parser: Parser) -> None:
    """Add the arguments of 'strawberry up'."""
    parser.takes(
        "--broker",
        "embedded (default), mosquitto (run an installed one), or the address of a running broker, for "
        "example mqtt://127.0.0.1:1883",
        metavar="WHICH",
    )
    add_trust(parser)
    add_listeners(parser)
    _add_http(parser)
    parser.add_flag("--no-spoke", "do not run a local spoke")
    parser.takes("--samples", f"{_SAMPLES}; default: all", metavar="NAMES")


def add_hub_arguments(parser: Parser) -> None:
    """Add the arguments of 'strawberry hub'."""
    parser.takes(
        "--broker", "default: url of [broker] in strawberry.toml, else the broker of this home", metavar="URL"
    )
    parser.takes(
        "--replica",
        "be one of several hubs of this home, under a name of its own; needs [database] url",
        metavar="NAME",
        type=instance_name,
    )
    add_trust(parser)
    _add_lan(parser)
    _add_http(parser)


def add_spoke_arguments(parser: Parser) -> None:
    """Add the arguments of 'strawberry spoke run'."""
    parser.takes("--hub", "for example https://hub.local:8443; default: the hub it has joined", metavar="URL")
    parser.takes("--hub-key", "fingerprint of the hub's key, printed by 'devices add'", metavar="F")
    add_insecure(parser)
    parser.add_list(
        "--skills", "folder of skills; may be repeated; default: skills/ in the data directory", metavar="DIR"
    )
    parser.takes(
        "--samples",
        f"also offer the sample skills; NAMES: {_SAMPLES}",
        metavar="NAMES",
        nargs="?",
        const=True,
        default=False,
    )
    parser.takes("--token-file", "file with the enrolment token, - for standard input", metavar="FILE")
    parser.add_flag("--with-parent", argparse.SUPPRESS)
