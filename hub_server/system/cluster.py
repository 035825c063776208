"""The replicas of the hub and the nodes of its bus: ``/api/cluster`` and ``strawberry cluster status``."""

from dataclasses import dataclass
from typing import Literal

from chat.operations import ADMIN, Command, Resource
from contracts.answers.system import ClusterMember
from hub_agent.bus.connection import ListNodes
from hub_registry.access.bearer import Bearer
from hub_registry.storage.store import Store
from hub_registry.storage.tables import ReplicaRow, now


@dataclass(frozen=True)
class Cluster:
    """The replicas of this home.

    Attributes:
        is_replica: Whether this hub is one; a hub alone does not look for others.
        nodes: Lists the nodes of the bus; None where it has none.
    """

    store: Store
    is_replica: bool
    nodes: ListNodes | None


cluster: Resource[Cluster, Bearer] = Resource(
    "cluster",
    "/api/cluster",
    columns=("name", "state", "term", "leads_since", "seen_s", "bus", "clients", "bytes", "url", "version"),
)


@cluster.get(ADMIN, command=Command("status", empty="This hub serves its home alone."))
async def status(cluster: Cluster, asking: Bearer) -> list[ClusterMember]:
    """List the [replicas](scale.md#replicas) of the hub, the leader first, and the [nodes](scale.md#nats).

    `kind` is `replica` or `node`, `state` is `leads`, `serves` or `gone`; `seen_s` how long ago a replica
    said that it is there, once a second; `bus` whether a replica is connected to the broker, or a node has
    caught up with the others; `clients` counts the connections to a node, `bytes` what it stores.
    """
    nodes = await cluster.nodes() if cluster.nodes is not None else []
    if not cluster.is_replica:
        return nodes
    from hub_registry.storage.replicas import replicas

    found = await cluster.store.read(replicas)
    latest = max(row.term for row, _ in found)
    return [_shown(row, is_there=there, leads=row.term == latest) for row, there in found] + nodes


def _shown(row: ReplicaRow, *, is_there: bool, leads: bool) -> ClusterMember:
    leads = leads and row.leads_since is not None
    state: Literal["leads", "serves", "gone"] = "gone" if not is_there else "leads" if leads else "serves"
    return ClusterMember(
        kind="replica",
        name=row.instance,
        state=state,
        term=row.term,
        leads_since=row.leads_since if state == "leads" else None,
        # The clocks of two machines differ.
        seen_s=round(max(0.0, (now() - row.seen_at).total_seconds()), 1),
        bus=row.on_bus and is_there,
        started_at=row.started_at,
        url=row.url,
        version=row.version,
    )
