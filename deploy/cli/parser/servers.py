"""Commands that run until stopped: ``up``, ``hub``, ``broker run``, ``spoke run``; and ``spoke join``."""

import argparse

from contracts.addresses import BROKER_PORTS
from deploy.cli.parser.shared import Commands, Parents, add_actions, add_port, port

TRUST = (
    "use a broker that Strawberry did not set up, with the login in [broker] of strawberry.toml; all topics "
    "are below strawberry/, and all users of that broker can read them"
)

_INSECURE = "allow an unencrypted connection, to a hub that runs with --insecure-lan"


def add(commands: Commands, parents: Parents) -> None:
    """Add these commands, without those of ``broker``."""
    _add_up(commands, parents)
    _add_hub(commands, parents)
    _add_spoke(commands, parents)


def add_broker_run(actions: Commands, parents: Parents) -> None:
    """Add ``broker run``."""
    run = actions.add_parser("run", parents=[parents.common], help="run the embedded broker alone")
    add_port(run, "--mqtt-port", BROKER_PORTS["mqtt"])
    _add_lan(run)
    _add_bus_listeners(run)
    _add_with_parent(run)
    run.set_defaults(run="deploy.cli.serve:run_broker")


def _add_up(commands: Commands, parents: Parents) -> None:
    up = commands.add_parser(
        "up",
        parents=[parents.common],
        help="run a broker, a hub and a local spoke",
        description="Runs a broker, a hub and a local spoke, for this machine only unless --lan is given.",
    )
    add_up_options(up)
    up.set_defaults(run="deploy.cli.serve:up")


def add_up_options(up: argparse.ArgumentParser) -> None:
    """Add the options of ``up``."""
    up.add_argument(
        "--broker",
        metavar="WHICH",
        help="embedded (default), mosquitto (run an installed one), or the address of a running broker, for "
        "example mqtt://127.0.0.1:1883",
    )
    up.add_argument("--trust-broker", action="store_true", help=TRUST)
    add_port(up, "--http-port", 8321)
    add_port(up, "--mqtt-port", BROKER_PORTS["mqtt"])
    _add_lan(up)
    add_port(up, "--https-port", 8443, what="with --lan")
    _add_bus_listeners(up)
    up.add_argument("--no-spoke", action="store_true", help="do not run a local spoke")


def _add_hub(commands: Commands, parents: Parents) -> None:
    hub = commands.add_parser("hub", parents=[parents.common], help="run the hub alone")
    add_hub_options(hub)
    hub.set_defaults(run="deploy.cli.serve:run_hub")


def add_hub_options(hub: argparse.ArgumentParser) -> None:
    """Add the options of ``hub``."""
    hub.add_argument(
        "--broker",
        metavar="URL",
        help="default: url of [broker] in strawberry.toml, else mqtt://127.0.0.1:1883",
    )
    hub.add_argument("--trust-broker", action="store_true", help=TRUST)
    add_port(hub, "--http-port", 8321)
    _add_lan(hub)
    add_port(hub, "--https-port", 8443, what="with --lan")


def _add_lan(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--lan",
        action="store_true",
        help="accept other machines, with TLS; makes the certificates",
    )
    choice.add_argument(
        "--insecure-lan",
        action="store_true",
        help="accept other machines without TLS: anyone in the network can read tokens and use them",
    )


def _add_with_parent(parser: argparse.ArgumentParser) -> None:
    # For children of `strawberry up`; `deploy.home.child` describes the protocol.
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)


def _add_bus_listeners(parser: argparse.ArgumentParser) -> None:
    add_port(parser, "--mqtts-port", BROKER_PORTS["mqtts"], what="with --lan")
    parser.add_argument(
        "--ws-port",
        type=port,
        metavar="N",
        help="also accept MQTT over WebSocket on this port; 0 for any free one",
    )


def _add_spoke(commands: Commands, parents: Parents) -> None:
    actions = add_actions(commands, "spoke", help_="join a hub, and offer this machine's skills to it")
    join = actions.add_parser(
        "join",
        parents=[parents.common],
        help="join a hub by a code that its owner approves",
        description="Shows a code and waits for its approval with 'strawberry devices approve CODE' on the "
        "hub. Both screens must show the same fingerprint.",
    )
    join.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="for example https://hub.local:8443; default: search the network",
    )
    join.add_argument("--name", help="display name of this device; default: the host name")
    join.add_argument("--hub-key", metavar="F", help="expected fingerprint of the hub's key")
    join.add_argument("--insecure", action="store_true", help=_INSECURE)
    join.set_defaults(run="deploy.cli.hub.join:join")

    run = actions.add_parser(
        "run",
        parents=[parents.common],
        help="offer this machine's skills to the hub",
        description="The device must have joined: with 'strawberry spoke join', or here with an enrolment "
        "token from HUB_DEVICE_TOKEN or --token-file.",
    )
    add_spoke_options(run)
    _add_with_parent(run)
    run.set_defaults(run="deploy.cli.serve:run_spoke")


def add_spoke_options(run: argparse.ArgumentParser) -> None:
    """Add the options of ``spoke run``."""
    run.add_argument(
        "--hub", metavar="URL", help="for example https://hub.local:8443; default: the hub it has joined"
    )
    run.add_argument("--hub-key", metavar="F", help="fingerprint of the hub's key, printed by 'devices add'")
    run.add_argument("--insecure", action="store_true", help=_INSECURE)
    run.add_argument(
        "--skills",
        metavar="DIR",
        action="append",
        help="folder of skills; may be repeated; default: skills/ in the data directory",
    )
    run.add_argument("--samples", action="store_true", help="also offer the sample skills")
    run.add_argument(
        "--token-file", metavar="FILE", help="file with the enrolment token, - for standard input"
    )
