"""The commands that stay: ``up``, ``hub``, ``broker run`` and ``spoke run``; and ``spoke join``."""

import argparse

from contracts.addresses import BROKER_PORTS
from deploy.cli.parser.shared import Commands, Parents, add_actions, add_port, port

TRUST = (
    "use a broker that Strawberry did not set up, with its ordinary login ([broker] in strawberry.toml): "
    "all topics stand below strawberry/, and everybody who may use that broker reads along"
)

_INSECURE = "also where others in the network can read along: the hub runs with --insecure-lan"


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
    run.set_defaults(run="deploy.cli.serve:run_broker")


def _add_up(commands: Commands, parents: Parents) -> None:
    up = commands.add_parser(
        "up",
        parents=[parents.common],
        help="run broker, hub and a local spoke",
        description="Run broker, hub and a local spoke; on loopback unless --lan is given.",
    )
    add_up_options(up)
    up.set_defaults(run="deploy.cli.serve:up")


def add_up_options(up: argparse.ArgumentParser) -> None:
    """Add what ``up`` can be told."""
    up.add_argument(
        "--broker",
        metavar="WHICH",
        help="embedded (default), mosquitto to run an installed one, or the address of one that runs "
        "already, for example mqtt://127.0.0.1:1883",
    )
    up.add_argument("--trust-broker", action="store_true", help=TRUST)
    add_port(up, "--http-port", 8321)
    add_port(up, "--mqtt-port", BROKER_PORTS["mqtt"])
    _add_lan(up)
    add_port(up, "--https-port", 8443, what="with --lan")
    _add_bus_listeners(up)
    up.add_argument("--no-spoke", action="store_true", help="without the local spoke")


def _add_hub(commands: Commands, parents: Parents) -> None:
    hub = commands.add_parser("hub", parents=[parents.common], help="run the hub alone")
    add_hub_options(hub)
    hub.set_defaults(run="deploy.cli.serve:run_hub")


def add_hub_options(hub: argparse.ArgumentParser) -> None:
    """Add what ``hub`` can be told."""
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
        help="let other machines in, with TLS; makes the certificates that it needs",
    )
    choice.add_argument(
        "--insecure-lan",
        action="store_true",
        help="let other machines in without TLS: whoever is in the network can read tokens and act with them",
    )


def _add_bus_listeners(parser: argparse.ArgumentParser) -> None:
    add_port(parser, "--mqtts-port", BROKER_PORTS["mqtts"], what="with --lan")
    parser.add_argument(
        "--ws-port", type=port, metavar="N", help="speak MQTT over WebSocket, too; 0 for any free port"
    )


def _add_spoke(commands: Commands, parents: Parents) -> None:
    actions = add_actions(commands, "spoke", help_="run a spoke: the skills of this machine")
    join = actions.add_parser(
        "join",
        parents=[parents.common],
        help="join a hub by a code that its owner approves",
        description="Shows a code, and waits until somebody types it where the hub is: "
        "'strawberry devices approve CODE'. Both screens must show the same fingerprint.",
    )
    join.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="for example https://hub.local:8443; without it, hubs are sought",
    )
    join.add_argument("--name", help="what people call this device; default: the name of this machine")
    join.add_argument("--hub-key", metavar="F", help="fingerprint that the hub's key must have")
    join.add_argument("--insecure", action="store_true", help=_INSECURE)
    join.set_defaults(run="deploy.cli.hub.join:join")

    run = actions.add_parser(
        "run",
        parents=[parents.common],
        help="offer the skills of a folder to the hub",
        description="A spoke that has not joined takes an enrolment token from HUB_DEVICE_TOKEN, "
        "--token-file or standard input; 'strawberry spoke join' is the other way in. "
        "Afterwards the spoke uses what it stored.",
    )
    add_spoke_options(run)
    # `strawberry up` starts its spoke with it: the spoke ends when standard input is closed.
    run.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    run.set_defaults(run="deploy.cli.serve:run_spoke")


def add_spoke_options(run: argparse.ArgumentParser) -> None:
    """Add what ``spoke run`` can be told."""
    run.add_argument(
        "--hub", metavar="URL", help="for example https://hub.local:8443; default: the one that was joined"
    )
    run.add_argument(
        "--hub-key", metavar="F", help="fingerprint of the hub's key, as 'devices add' prints it"
    )
    run.add_argument("--insecure", action="store_true", help=_INSECURE)
    run.add_argument(
        "--skills",
        metavar="DIR",
        action="append",
        help="folder of skills, may be given several times; default: skills in the data directory",
    )
    run.add_argument("--samples", action="store_true", help="offer the sample skills too")
    run.add_argument(
        "--token-file", metavar="FILE", help="file with the enrolment token; - for standard input"
    )
