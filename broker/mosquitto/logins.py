"""The hub's own logins on Mosquitto. Their passwords follow from the hub's key, so none is stored."""

from typing import Final

from contracts.joining import Login
from identity.keys import KeyPair

__all__ = ["ADMIN", "HUB", "admin_login", "hub_login"]

ADMIN: Final = "strawberry-admin"
"""User name of the administrator of a Mosquitto that we start ourselves."""

HUB: Final = "strawberry-hub-"
"""The user name of a hub process is this and its instance."""


def hub_login(key: KeyPair, instance: str) -> Login:
    """Give the login of a hub process, which may also let devices in and out."""
    password = key.secret(f"mosquitto hub {instance}").get_secret_value()
    return Login(username=f"{HUB}{instance}", password=password)


def admin_login(key: KeyPair) -> Login:
    """Give the login of the administrator of a Mosquitto that we start ourselves."""
    return Login(username=ADMIN, password=key.secret("mosquitto admin").get_secret_value())
