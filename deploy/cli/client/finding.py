"""Which hub or spoke a command talks to, and the token for it."""

import argparse
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from contracts.addresses import host_of, is_loopback
from contracts.errors import ConfigError
from deploy import limits
from deploy.cli.client.http import HubClient
from deploy.directory import Home
from identity.files import is_held

_NO_HUB: Final = "Start one with 'strawberry up', or name another with --hub URL."
_HUB_ELSEWHERE: Final = (
    "This machine has joined a hub on another machine. 'strawberry chat' works while its spoke runs "
    "('strawberry spoke run'); for everything else add --hub URL."
)


def hub_of(options: argparse.Namespace) -> HubClient:
    """Return a client of the hub that the options of a command name.

    Raises:
        ConfigError: If no hub is known, or there is no token for it.
    """
    return find_hub(Home.find(), url=options.hub, token=options.hub_token)


def nearest_of(options: argparse.Namespace) -> HubClient:
    """Return a client of the local spoke, or of the hub where the options name one.

    Raises:
        ConfigError: If neither is known.
    """
    if options.hub is None and not options.hub_token:
        return find_nearest(Home.find())
    return hub_of(options)


def find_hub(home: Home, *, url: str | None = None, token: str | None = None) -> HubClient:
    """Find the running hub and the token for it.

    Args:
        home: Where a hub of this machine keeps its address and the owner's token.
        url: Address of another hub.
        token: Token of a user; the default is ``STRAWBERRY_TOKEN``, or the owner's on this machine.

    Raises:
        ConfigError: If no hub is known, or there is no token for it.
    """
    target = _running_hub(home) if url is None else _checked(url)
    token_from = "what --token-file gave" if token else "STRAWBERRY_TOKEN"
    token = token or os.environ.get("STRAWBERRY_TOKEN", "").strip()
    if not token and (url is None or is_loopback(host_of(url))):
        # The owner's token is for this machine's hub; another address must never see it.
        token, token_from = _read(home.token_file), f"what is in {home.token_file}"
    if not token:
        raise ConfigError(
            f"there is no token for the hub at {target}",
            hint="Run 'strawberry tokens add NAME' where the hub runs, then set STRAWBERRY_TOKEN "
            "or use --token-file.",
        )
    if not token.isascii() or not token.isprintable():
        raise ConfigError("the token has characters that no token has", hint="A token is one line of text.")
    authorities = _authorities(home) if urlsplit(target).scheme == "https" else ""
    return HubClient(target, token=token, authorities=authorities, token_from=token_from)


def find_nearest(home: Home) -> HubClient:
    """Find the local spoke, which answers without the hub too, or else the local hub.

    Raises:
        ConfigError: If neither is known.
    """
    # A token in the environment belongs to a user of the hub, not to the owner of this machine's spoke.
    spoke = None if os.environ.get("STRAWBERRY_TOKEN") else _running_spoke(home)
    if spoke is not None and spoke.answers_within(limits.FOUND_HEALTH_TIMEOUT_S):
        return spoke
    try:
        return find_hub(home)
    except ConfigError:
        if spoke is None:
            raise
        # A spoke that hangs must not block the way to the hub; without a hub it is the only choice.
        return spoke


def find_spoke(home: Home) -> HubClient:
    """Find the local spoke.

    Raises:
        ConfigError: If none runs with this home.
    """
    spoke = _running_spoke(home)
    if spoke is None:
        raise ConfigError(f"no spoke is running that uses {home.directory}", hint=_no_spoke(home))
    return spoke


def _no_spoke(home: Home) -> str:
    if home.is_spoke_alone:
        return "Start it with 'strawberry spoke run'."
    return "Start one with 'strawberry up', or join a hub on another machine: 'strawberry spoke join'."


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{url!r} is not the address of a hub", hint="For example http://127.0.0.1:8321.")
    return url


def _authorities(home: Home) -> str:
    """Return the certificate authorities of this home and of its spoke's hub, as PEM."""
    found = _read(home.certs / "ca.pem")
    return "\n".join(filter(None, (found, str(_enrolment(home).get("ca") or ""))))


def is_local_spoke(options: argparse.Namespace, device: str) -> bool:
    """Return whether a device of the hub that the options name is the spoke that its ``up`` runs."""
    home = Home.find()
    if options.hub is not None or _enrolment(home).get("device") != device:
        return False
    import psutil  # 15 ms, which no other command needs

    hub, spoke = (_address(file)[1] for file in (home.address_file, home.spoke_address_file))
    with suppress(psutil.Error):
        return hub in (each.pid for each in psutil.Process(spoke).parents())
    return False


def _enrolment(home: Home) -> dict[str, Any]:
    with suppress(ValueError):
        enrolment = json.loads(_read(home.enrolment_file) or "{}")
        return enrolment if isinstance(enrolment, dict) else {}
    return {}


def _running_spoke(home: Home) -> HubClient | None:
    url, process = _address(home.spoke_address_file)
    if not url or not is_held(home.spoke, by=process):
        return None
    return HubClient(url, token=_read(home.spoke_token_file), server="spoke")


def _running_hub(home: Home) -> str:
    url, process = _address(home.address_file)
    # A hub that was killed leaves its address behind, and another program may have the port by now.
    if not url or not is_held(home.hub, by=process):
        raise ConfigError(
            f"no hub is running that uses {home.directory}",
            hint=_HUB_ELSEWHERE if home.is_spoke_alone else _NO_HUB,
        )
    return url


def _address(file: Path) -> tuple[str, int]:
    """Return address and process id that a running hub or spoke wrote down; an empty address if none."""
    try:
        written = json.loads(file.read_text())
        return str(written["url"]), int(written["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


_SHORTEST: Final = 4
"""Characters that a beginning has at least, as with git: fewer are rather a typo."""


def whole_id(given: str, known: Iterable[str]) -> str:
    """Return the known id that begins so; what begins none of them as it is given.

    Raises:
        ConfigError: If several begin so.
    """
    begun = [each for each in known if each.startswith(given)] if len(given) >= _SHORTEST else []
    if given in begun or not begun:
        return given
    if len(begun) > 1:
        raise ConfigError(f"{given} begins several: {', '.join(begun[:5])}", hint="Type more of it.")
    return begun[0]
