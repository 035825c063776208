"""The replicas of the hub: ``/api/cluster`` and ``strawberry cluster status``."""

from dataclasses import dataclass
from typing import Final, Literal

from chat.operations import ADMIN, Command, Resource
from contracts.answers.system import ReplicaState
from hub_registry.access.bearer import Bearer
from hub_registry.storage.store import Store
from hub_registry.storage.tables import ReplicaRow, now

_COLUMNS: Final = ("name", "state", "term", "leads_since", "seen_s", "bus", "url", "version")


@dataclass(frozen=True)
class Cluster:
    """The replicas of this home.

    Attributes:
        is_replica: Whether this hub is one; a hub alone does not look for others.
    """

    store: Store
    is_replica: bool


cluster: Resource[Cluster, Bearer] = Resource("cluster", "/api/cluster", columns=_COLUMNS)


@cluster.get(ADMIN, command=Command("status", empty="This hub serves its home alone."))
async def status(cluster: Cluster, asking: Bearer) -> list[ReplicaState]:
    """List the [replicas](scale.md#replicas) of the hub, the leader first; none where it is alone.

    `state` is `leads`, `serves` or `gone`; `seen_s` how long ago it said that it is there, once a second.
    """
    if not cluster.is_replica:
        return []
    from hub_registry.storage.replicas import replicas

    found = await cluster.store.read(replicas)
    latest = max(row.term for row, _ in found)
    return [_shown(row, is_there=there, leads=row.term == latest) for row, there in found]


def _shown(row: ReplicaRow, *, is_there: bool, leads: bool) -> ReplicaState:
    leads = leads and row.leads_since is not None
    state: Literal["leads", "serves", "gone"] = "gone" if not is_there else "leads" if leads else "serves"
    return ReplicaState(
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
