"""A NATS server, or a cluster of them, as the bus."""

from importlib.util import find_spec

from contracts.errors import ConfigError

if find_spec("nats") is None or find_spec("nkeys") is None:
    raise ConfigError("NATS is not installed", hint="Install it with: pip install 'strawberry-home[nats]'")
