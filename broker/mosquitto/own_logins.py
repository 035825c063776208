"""Logins of hub and administrator on Mosquitto. Their passwords follow from the hub's key; none is stored.

The administrator of a Mosquitto that we start is written into the plugin's file before the first start.
"""

import base64
import hashlib
import json
import logging
import secrets
from pathlib import Path
from typing import Any, Final

from contracts import topics
from contracts.devices.joining import Login
from identity.files import write_private
from identity.keys import KeyPair

__all__ = ["ADMIN", "HUB", "admin_login", "hub_login", "keep_admin"]

ADMIN: Final = "strawberry-admin"
"""User name of the administrator of a Mosquitto that we start ourselves."""

HUB: Final = "strawberry-hub-"
"""The user name of a hub process is this and its instance."""


def hub_login(key: KeyPair, instance: str) -> Login:
    """Return the login of a hub process, which may also let devices in and out."""
    password = key.secret(f"mosquitto hub {instance}").get_secret_value()
    return Login(username=f"{HUB}{instance}", password=password)


def admin_login(key: KeyPair) -> Login:
    return Login(username=ADMIN, password=key.secret("mosquitto admin").get_secret_value())


_log = logging.getLogger(__name__)

_SALT_BYTES: Final = 12
"""What Mosquitto 2.0 reads, no more and no less."""

_ITERATIONS: Final = 101
"""Mosquitto's own number; ours are 256 bits of chance, which no number of tries finds."""

_ADMIN_ROLE: Final = "strawberry-admin"


def keep_admin(path: Path, admin: Login) -> None:
    """Make sure that the administrator can log in with this password; everything else stays.

    A file that cannot be read is renamed: the hub adds all logins again.

    Args:
        path: The file, which no running Mosquitto uses.
    """
    content = _read(path)
    clients: list[dict[str, Any]] = content.setdefault("clients", [])
    for client in clients:
        if client.get("username") == admin.username and _holds(client, admin) and not client.get("disabled"):
            return
    content["clients"] = [each for each in clients if each.get("username") != admin.username]
    content["clients"].append(_client(admin))
    roles: list[dict[str, Any]] = content.setdefault("roles", [])
    content["roles"] = [each for each in roles if each.get("rolename") != _ADMIN_ROLE] + [_role()]
    # What a client may do where no role says anything; replies to requests have to reach the one who asked.
    content.setdefault(
        "defaultACLAccess",
        {"publishClientSend": False, "publishClientReceive": True, "subscribe": False, "unsubscribe": True},
    )
    write_private(path, json.dumps(content, indent=1).encode())


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    aside = path.with_suffix(".broken")
    path.replace(aside)
    _log.warning("%s could not be read and is now %s; all logins are added again", path, aside)
    return {}


def _holds(client: dict[str, Any], admin: Login) -> bool:
    try:
        salt = base64.b64decode(client["salt"])
        return bool(client["password"] == _hash(admin, salt, client.get("iterations", _ITERATIONS)))
    except (KeyError, TypeError, ValueError):
        return False


def _client(admin: Login) -> dict[str, Any]:
    salt = secrets.token_bytes(_SALT_BYTES)
    return {
        "username": admin.username,
        "textName": "Strawberry's administrator",
        "password": _hash(admin, salt, _ITERATIONS),
        "salt": base64.b64encode(salt).decode(),
        "iterations": _ITERATIONS,
        "roles": [{"rolename": _ADMIN_ROLE}],
    }


def _role() -> dict[str, Any]:
    allowed = ("publishClientSend", "publishClientReceive", "subscribePattern", "unsubscribePattern")
    acls = [{"acltype": each, "topic": topics.ALL_DYNAMIC_SECURITY, "allow": True} for each in allowed]
    return {"rolename": _ADMIN_ROLE, "acls": acls}


def _hash(admin: Login, salt: bytes, iterations: int) -> str:
    password = (admin.password or "").encode()
    return base64.b64encode(hashlib.pbkdf2_hmac("sha512", password, salt, iterations)).decode()
