"""Looks at everything a user can mend, and says how."""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from contracts.errors import StrawberryError
from deploy.home import Home
from deploy.settings import read_household, read_models
from sandbox_host import find

_OLDEST_PYTHON = (3, 11)
_ROOM_BYTES = 500 * 1024 * 1024
"""Pyodide, its memory image and a copy of the cache for each of five processes come to some 300 MB."""


@dataclass(frozen=True)
class Check:
    """What was looked at, how it is, and what to do about it.

    Attributes:
        ok: False only where something does not work; what is merely not set up is ok.
    """

    check: str
    ok: bool
    detail: str
    hint: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The check as JSON."""
        return asdict(self)


def examine(home: Home, *, health: Callable[[], dict[str, Any]]) -> Iterator[Check]:
    """Look at this installation, one thing after another.

    Args:
        health: Asks the running hub for its health; raises StrawberryError where none can be reached.
    """
    yield _python()
    yield _directory(home)
    yield _sandbox(home)
    yield from _settings(home)
    yield from _certificates(home)
    yield from _hub(health)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST_PYTHON:
        return Check("python", ok=False, detail=version, hint="Install Python 3.11 or newer.")
    bits = 64 if sys.maxsize > 2**32 else 32
    if bits != 64:
        return Check(
            "python",
            ok=False,
            detail=f"{version}, {bits} bits",
            hint="Use a 64-bit system: Deno has no other.",
        )
    return Check("python", ok=True, detail=version)


def _directory(home: Home) -> Check:
    directory = home.directory
    if not directory.exists():
        return Check("data directory", ok=True, detail=f"{directory} is made at the first start")
    if not os.access(directory, os.W_OK):
        return Check(
            "data directory",
            ok=False,
            detail=f"{directory} cannot be written",
            hint=f"chown {directory} to yourself.",
        )
    if os.name == "posix" and directory.stat().st_mode & 0o077:
        return Check(
            "data directory", ok=False, detail=f"others can read {directory}", hint=f"chmod 700 {directory}"
        )
    free = shutil.disk_usage(directory).free
    if free < _ROOM_BYTES:
        return Check(
            "data directory", ok=False, detail=f"{free // 1024**2} MB free", hint="Make room: 500 MB."
        )
    return Check("data directory", ok=True, detail=str(directory))


def _sandbox(home: Home) -> Check:
    try:
        asyncio.run(find(home.sandbox))
    except StrawberryError as error:
        return Check(
            "sandbox", ok=False, detail=error.message, hint=error.hint or "'strawberry up' fetches it."
        )
    return Check("sandbox", ok=True, detail="in place and unchanged")


def _settings(home: Home) -> Iterator[Check]:
    try:
        models, household = read_models(home), read_household(home)
    except StrawberryError as error:
        yield Check("settings", ok=False, detail=error.message, hint=error.hint)
        return
    detail = f"{household.language}, {household.time_zone}, {household.units}"
    yield Check("household", ok=True, detail=detail)
    for problem in models.problems:
        yield Check("model", ok=False, detail=problem, hint=models.hint)
    names = ", ".join(model.entry.name for model in models.usable)
    if names:
        yield Check("models", ok=True, detail=names)
    elif not models.problems:
        yield Check(
            "models", ok=True, detail="none configured: only declared sentences act", hint=models.hint
        )


def _certificates(home: Home) -> Iterator[Check]:
    """Look at the server certificate, where one was made."""
    from deploy.certificates import days_left, load_certificate

    try:
        certificate = load_certificate(home)
    except StrawberryError as error:
        yield Check("certificates", ok=False, detail=error.message, hint=error.hint)
        return
    if certificate is None:
        yield Check(
            "certificates", ok=True, detail="none: other machines come in with --lan, which makes them"
        )
        return
    days = days_left(certificate)
    yield Check(
        "certificates",
        ok=days > 0,
        detail=f"good for {days} days" if days > 0 else "the server certificate has expired",
        hint="" if days > 0 else "'strawberry certs' makes a new one; then start the hub again.",
    )


def _hub(health: Callable[[], dict[str, Any]]) -> Iterator[Check]:
    try:
        state = health()
    except StrawberryError as error:
        yield Check("hub", ok=False, detail=error.message, hint=error.hint)
        return
    yield Check("hub", ok=True, detail=f"version {state['version']}")
    yield _link(
        "broker", state["broker"], hint="Is it running? 'strawberry broker check' tells what is wrong."
    )
    beside = state.get("home_broker")
    if beside is None:
        yield Check("home broker", ok=True, detail="none: [home_broker] in strawberry.toml names one")
    else:
        yield _link(
            "home broker", beside, hint="Is it running, and is [home_broker] in strawberry.toml right?"
        )


def _link(name: str, link: dict[str, Any], *, hint: str) -> Check:
    if not link["connected"]:
        return Check(name, ok=False, detail=str(link.get("error") or "not connected"), hint=hint)
    kind = f"{_KINDS.get(link.get('kind', ''), '')}, " if link.get("kind") else ""
    return Check(name, ok=True, detail=f"{kind}connected with MQTT {link.get('mqtt')}")


_KINDS = {
    "embedded": "embedded",
    "mosquitto": "a Mosquitto of our own",
    "shared": "shared with others",
}
