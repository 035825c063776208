"""The configuration of a NATS server that is a node of our bus: its file, or values of a Helm chart."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker import limits
from broker.nats.keys import ACCOUNT, NodeKeys
from broker.nats.streams import API
from contracts.addresses import LOOPBACK, bracketed, is_loopback
from contracts.errors import ConfigError
from identity.certificates import ServerCertificate

__all__ = ["ACCOUNT_OF_HUB", "Node", "chart_values", "render"]

ACCOUNT_OF_HUB: Final = "hub"
"""Account in which the hub is asked who may log in; no topic of the home is there."""
_SYSTEM: Final = "system"
_CLUSTER: Final = "strawberry"
_NODE: Final = "node"
_STREAMS: Final = "$JS.API.STREAM.*.*"


@dataclass(frozen=True)
class Node:
    """Where a node listens.

    Attributes:
        host: An address without brackets; ``0.0.0.0`` is every one of IPv4.
        mqtt: Port of devices and clients.
        hub: Port of hubs, with NATS's own protocol.
        cluster: Port of the other nodes; None where it is alone.
        websocket: Port of MQTT over WebSocket; None for none.
        nodes: ``host:port`` of all nodes of its cluster, this one among them.
        tls: For all of them; None for none, which only loopback may do without.
        ca: File of the authority that the other nodes' certificates come from.
        insecure: Other machines may connect without TLS.
    """

    host: str
    mqtt: int
    hub: int
    cluster: int | None = None
    websocket: int | None = None
    nodes: tuple[str, ...] = ()
    tls: ServerCertificate | None = None
    ca: Path | None = None
    insecure: bool = False

    @property
    def ports(self) -> dict[str, int]:
        found = {"mqtt": self.mqtt, "hub": self.hub, "cluster": self.cluster, "websocket": self.websocket}
        return {name: port for name, port in found.items() if port is not None}


def render(node: Node, keys: NodeKeys, *, name: str, store: Path) -> str:
    """Write the file, in JSON, which NATS reads. It holds the secret of the nodes: keep it owner-only.

    Args:
        name: Of the node, always the same and no other's.
        store: Where it keeps retained messages.

    Raises:
        ConfigError: If it would be open to other machines without TLS unasked.
    """
    if node.tls is None and not node.insecure and not is_loopback(node.host):
        raise ConfigError(
            f"NATS would listen on {node.host} without TLS",
            hint="Give it a certificate, or ask for it with --insecure-lan.",
        )
    return json.dumps(dict(_entries(node, keys, name, store)), indent=1) + "\n"


def chart_values(keys: NodeKeys, *, nodes: int) -> dict[str, Any]:
    """Return what NATS's own Helm chart merges into ``config``, and into ``mqtt`` and ``jetstream`` of it.

    Names, ports, routes, folders and certificates are the chart's.
    """
    of_chart = {"server_name", "listen", "cluster", "store_dir"}
    node = Node(LOOPBACK, mqtt=0, hub=0, cluster=0, nodes=("",) * nodes)
    config = dict(_entries(node, keys, "", Path()))
    parts = {"mqtt": config.pop("mqtt"), "jetstream": config.pop("jetstream"), "config": config}
    return {
        part: {name: value for name, value in entries.items() if name not in of_chart}
        for part, entries in parts.items()
    }


def _entries(node: Node, keys: NodeKeys, name: str, store: Path) -> Iterator[tuple[str, Any]]:
    yield "server_name", name
    yield "listen", _endpoint(node.host, node.hub)
    yield "max_payload", 1 << 20
    yield "write_deadline", limits.NATS_WRITE
    yield "max_pending", limits.NATS_PENDING_BYTES
    yield "max_subscriptions", limits.NATS_SUBSCRIPTIONS
    yield "logtime", False
    yield (
        "jetstream",
        {
            "store_dir": str(store),
            "max_file_store": limits.NATS_STORE_BYTES,
            "request_queue_limit": limits.NATS_REQUESTS,
        },
    )
    yield "system_account", _SYSTEM
    yield (
        "accounts",
        {
            ACCOUNT: {
                "jetstream": "enabled",
                "exports": [{"service": _STREAMS, "accounts": [ACCOUNT_OF_HUB]}],
            },
            ACCOUNT_OF_HUB: {
                "users": [{"nkey": keys.hub}],
                "imports": [
                    {"service": {"account": ACCOUNT, "subject": _STREAMS}, "to": f"{API}.STREAM.*.*"}
                ],
            },
            _SYSTEM: {"users": [{"nkey": keys.system, "permissions": _ENDS_CONNECTIONS}]},
        },
    )
    callout = {"issuer": keys.issuer, "auth_users": [keys.hub, keys.system], "account": ACCOUNT_OF_HUB}
    yield "authorization", {"timeout": limits.NATS_LOGIN_S, "auth_callout": callout}
    tls: dict[str, Any] = {}
    if node.tls is not None:
        tls = {"tls": {"cert_file": str(node.tls.certificate), "key_file": str(node.tls.key)}}
    yield from tls.items()
    # A subscription ends with its connection: where its state is lost with a node, so is the connection.
    replicas: dict[str, Any] = {"consumer_memory_storage": True}
    if node.cluster is not None:
        replicas["stream_replicas"] = min(3, len(node.nodes))
        yield "cluster", _cluster(node, node.cluster, keys.secret.get_secret_value(), tls)
    # Of a message with QoS 2 the servers store each step; we have none.
    qos = {"reject_qos2_publish": True, "downgrade_qos2_subscribe": True}
    yield "mqtt", {"listen": _endpoint(node.host, node.mqtt), **qos, **replicas, **tls}
    if node.websocket is not None:
        plain = {} if tls else {"no_tls": True}
        yield "websocket", {"listen": _endpoint(node.host, node.websocket), **plain, **tls}


_ENDS_CONNECTIONS: Final = {
    "publish": [
        "$SYS.REQ.SERVER.PING.STATSZ",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.SERVER.*.HEALTHZ",
        "$SYS.REQ.SERVER.*.KICK",
    ],
    "subscribe": ["_INBOX.>"],
}
"""What the hub may do with the servers themselves."""


def _cluster(node: Node, port: int, secret: str, tls: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": _CLUSTER,
        "listen": _endpoint(node.host, port),
        "authorization": {"user": _NODE, "password": secret},
        "routes": [f"nats://{_NODE}:{secret}@{each}" for each in node.nodes],
        "no_advertise": True,
    }
    if tls:
        entry["tls"] = {**tls["tls"], "ca_file": str(node.ca), "timeout": limits.NATS_LOGIN_S}
    return entry


def _endpoint(host: str, port: int) -> str:
    return f"{bracketed(host)}:{port}"
