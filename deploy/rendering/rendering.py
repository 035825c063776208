"""Templates of this folder, filled in."""

import json
from pathlib import Path
from string import Template
from typing import Final

from broker.limits import NATS_LOGIN_S
from identity.keys import KeyPair

__all__ = ["render_emqx", "render_kubernetes", "render_nats"]


_NODES: Final = 3
"""One may be lost. Their names are in docs/scale.md."""


def render_kubernetes(*, name: str, host: str, image: str, replicas: int) -> str:
    """Return the manifests of the hub's replicas, in YAML.

    Args:
        name: Of the home, and so of its namespace.
        host: Name under which people and devices reach the home.
        image: Of `deploy/container`, with its tag.
    """
    return _filled("kubernetes.yaml", name=name, host=host, image=image, replicas=replicas)


def render_nats(key: KeyPair) -> str:
    """Return the values of NATS's own Helm chart for the bus of a home, in YAML.

    Args:
        key: The hub's, of which the nodes learn public parts.
    """
    # Here: it needs an extra.
    from broker.nats.config import chart_values
    from broker.nats.keys import NatsKeys

    merged = chart_values(NatsKeys(key).for_nodes(), nodes=_NODES)
    values = {part: json.dumps(entries) for part, entries in merged.items()}
    return _filled("nats.yaml", nodes=_NODES, timeout=NATS_LOGIN_S, **values)


def render_emqx(*, hub_id: str, hub: str) -> str:
    """Return the configuration of EMQX 5.7 or newer, in JSON, which it reads.

    Args:
        hub_id: Whose tokens count.
        hub: Address of the hub for other machines, such as ``https://hub.lan:8443``.
    """
    endpoint = f"{hub.rstrip('/')}/.well-known/jwks.json"
    return _filled("emqx.conf", endpoint=json.dumps(endpoint), hub_id=json.dumps(hub_id))


def _filled(template: str, **values: object) -> str:
    return Template((Path(__file__).parent / template).read_text("utf-8")).substitute(values)
