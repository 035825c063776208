"""A NATS server of this home in its own process: ``broker run --kind nats``."""

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from broker.nats.config import Node
from broker.nats.keys import NatsKeys, NodeKeys
from broker.nats.process import RunningNats, open_nats_server, own_addresses
from contracts.addresses import LOOPBACK
from contracts.errors import ConfigError
from deploy.directory import Home
from deploy.home.brokers.processes import load_identity
from deploy.home.brokers.registry import OurBroker, announced, only_broker, report_broker
from deploy.home.running import Reporter, enter_lan, forever
from deploy.settings.options import ANY, NODE_PORT_OPTIONS, BrokerPorts, LanOptions, NodeOptions, chosen_by
from identity.files import make_private_directory
from identity.keys import KeyPair

if TYPE_CHECKING:
    from deploy.home.lan import Lan

_log = logging.getLogger(__name__)


async def run_nats(
    home: Home, *, ports: BrokerPorts, node: NodeOptions, lan: LanOptions, report: Reporter
) -> None:
    """Run a NATS server until cancelled.

    Raises:
        ConfigError: If NATS is not installed or does not start, another broker runs with this home, a port
            is taken, or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(only_broker(home))
        # The other nodes look whether the certificate is for the address that they know.
        own = [each.rpartition(":")[0] for each in own_addresses(node.nodes, node.cluster)]
        opened = await enter_lan(stack, home, lan, report=report, names=own)
        named = {f"{host}:{node.cluster}" for host in (opened.hosts if opened is not None else ())}
        if node.nodes and not own and named.isdisjoint(node.nodes):
            _log.warning("--cluster names no address of this machine: name all nodes, this one among them")
        opening = open_nats_server(
            home.broker / "nats", await node_keys(home, node), _node(home, ports, node, lan, opened)
        )
        with chosen_by(NODE_PORT_OPTIONS):
            running = await stack.enter_async_context(opening)
        if opened is not None:
            # It has no other way to read renewed certificates; clients use another node meanwhile.
            opened.on_renewed(running.process.restart)
        broker = _announcement(running, opened)
        stack.enter_context(announced(home, broker))
        report_broker(report, broker)
        url = broker.urls[0]
        report.ready(f"Ready: NATS at {url}. Ctrl-C ends.", status=f"NATS at {url}", broker=url)
        await forever()


async def node_keys(home: Home, node: NodeOptions) -> NodeKeys:
    """Return what a node knows of the hub; beside the hub's key the file for the other nodes is written.

    Raises:
        ConfigError: If it has neither the key nor that file, and is to be one of several.
    """
    file, key = home.broker / "nats" / "cluster.json", home.hub / "key.pem"
    if key.exists():
        keys = NatsKeys(KeyPair.load(key)).for_nodes()
    elif file.exists():
        return NodeKeys.load(file)
    elif node.nodes:
        raise ConfigError(
            f"a node of a cluster needs to know the hub of the home, and there is neither {key} nor {file}",
            hint="Copy strawberry.toml, hub/key.pem, broker/nats/cluster.json, certs/ca.pem and certs/ca.key "
            "from the first machine, as docs/scale.md shows. The first node of a new home is started without "
            "--cluster.",
        )
    else:
        keys = NatsKeys((await load_identity(home)).key).for_nodes()
    make_private_directory(file.parent)
    keys.save(file)
    return keys


def _node(home: Home, ports: BrokerPorts, node: NodeOptions, lan: LanOptions, opened: "Lan | None") -> Node:
    certificate = opened.certificate if opened is not None else None
    return Node(
        lan.host if certificate is None else ANY,
        mqtt=(ports.mqtt or 0) if certificate is None else ports.mqtts,
        hub=node.nats,
        cluster=node.cluster if node.nodes else None,
        websocket=ports.websocket,
        nodes=node.nodes,
        tls=certificate,
        ca=home.certs / "ca.pem",
        insecure=lan.exposure == "insecure",
    )


def _announcement(running: RunningNats, lan: "Lan | None") -> OurBroker:
    node = running.node
    mqtt, own, web = ("mqtt", "nats", "ws") if node.tls is None else ("mqtts", "tls", "wss")

    def addresses(scheme: str, port: int) -> tuple[str, ...]:
        return lan.urls(scheme, port) if lan is not None else (f"{scheme}://{LOOPBACK}:{port}",)

    return OurBroker(
        "nats",
        # With TLS, this machine too goes by a name that its certificate is for.
        urls=addresses(mqtt, node.mqtt) if node.tls is not None else (running.url,),
        addresses=addresses(mqtt, node.mqtt),
        nodes=addresses(own, node.hub)[:1] if node.tls is not None else (running.hub_url,),
        websocket=f"{addresses(web, node.websocket)[0]}/mqtt" if node.websocket is not None else None,
        ca=lan.ca if lan is not None else None,
        insecure=node.insecure,
    )
