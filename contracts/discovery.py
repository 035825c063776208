"""What a hub says about itself on the local network (DNS-SD, RFC 6763); it only suggests an address.

Nothing of it is signed: a device that finds a hub by it checks the key as with any other address.
"""

from typing import Final

SERVICE: Final = "_strawberry._tcp.local."

HUB_ID: Final = "id"
KEY: Final = "key"
"""Fingerprint of the hub's key."""
PATH: Final = "path"
"""Base path of its HTTP API; empty for the root."""
TLS: Final = "tls"
"""``1`` for https, ``0`` for http."""
