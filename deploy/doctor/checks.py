"""What can be told of the machine itself: does it have what hub or spoke needs, and what speech needs."""

import asyncio
import os
import platform
import shutil
import sqlite3
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from agent_core.search.vectors import vectors_package
from contracts.errors import StrawberryError
from contracts.phrases import Phrase
from deploy.directory import Home
from deploy.settings.settings import read_voice
from spoke.landlock import has_landlock

if TYPE_CHECKING:
    from contracts.answers.devices import DeviceAnswer
    from contracts.answers.system import ClusterMember
    from voice.wyoming.discovery import Domain

_OLDEST_PYTHON: Final = (3, 11)
_MB: Final = 1024**2
_NEEDED_MB: Final = {"spoke": (400, 100), "hub": (1_500, 500)}
"""Of the whole machine, and free now. A spoke has 80 MB beside a small system's 200; a hub has 200 MB, and
up to 450 MB for each sandbox process."""
_CONTROLLERS: Final = Path("/sys/fs/cgroup/cgroup.controllers")


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


def passed(check: str, detail: str, hint: str = "") -> Check:
    return Check(check, ok=True, detail=detail, hint=hint)


def failed(check: str, detail: str, hint: str = "") -> Check:
    return Check(check, ok=False, detail=detail, hint=hint)


def check_python() -> Check:
    """Look at the interpreter, and whether it is one of 64 bits."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST_PYTHON:
        return failed("python", version, "Install Python 3.11 or newer.")
    bits = struct.calcsize("P") * 8
    detail = Phrase(
        "{version}, {bits} bits, {machine}", version=version, bits=bits, machine=platform.machine()
    )
    if bits != 64:
        # A Raspberry Pi may have a 64-bit kernel under a 32-bit system.
        return failed(
            "python", detail, "Use a 64-bit system, for example Raspberry Pi OS (64-bit): Deno has no other."
        )
    return passed("python", detail)


def check_memory(*, hub: bool) -> Iterator[Check]:
    """Look whether there is room for what runs here, and whether a service's cap would hold."""
    memory = psutil.virtual_memory()
    yield judge_memory(memory.total, memory.available, hub=hub)
    if _CONTROLLERS.exists() and "memory" not in _CONTROLLERS.read_text().split():
        yield passed(
            "memory cap",
            "a service's memory is not limited here: the kernel does not count it",
            "On a Raspberry Pi add 'cgroup_enable=memory' to /boot/firmware/cmdline.txt, and reboot.",
        )


def judge_memory(total: int, available: int, *, hub: bool) -> Check:
    """Check whether this many bytes are enough for a hub, or for a spoke alone."""
    needed, free = _NEEDED_MB["hub" if hub else "spoke"]
    detail = Phrase("{free} of {total} MB free", free=available // _MB, total=total // _MB)
    if total < needed * _MB:
        template = "At least {needed} MB are needed; a spoke needs less."
        hint = Phrase(template if hub else "At least {needed} MB are needed.", needed=needed)
        return failed("memory", detail, hint)
    if available < free * _MB:
        return failed("memory", detail, "'ps aux --sort=-rss | head' shows what has it.")
    return passed("memory", detail)


def check_isolation() -> Check:
    """Check whether the skills beside a hub can read its key."""
    if has_landlock():
        return passed("skills", "those of 'strawberry up' cannot read the files of hub and broker")
    return passed(
        "skills",
        "those of 'strawberry up' run as you, and can read the hub's key and your token",
        "Landlock would keep them from it (Linux 5.19 or newer); or run the spoke as another user.",
    )


def check_search(*, has_model: bool) -> Check:
    """Tell how a hub searches.

    Args:
        has_model: Whether a model of the home embeds.
    """
    if has_model or vectors_package() is not None:
        return passed("search", "by words and by meaning")
    return passed(
        "search",
        "by words alone: the vectors for the search by meaning are not installed",
        "They are in 'strawberry-home[hub]', but for Linux on ARM and for Python 3.14 there are none;"
        " a model in [embeddings] can take their place.",
    )


def check_directory(directory: Path, *, room_mb: int) -> Check:
    """Check that the data directory is a directory, is ours alone, and has room."""
    name = "data directory"
    if directory.is_file():
        return failed(
            name,
            Phrase("{directory} is a file", directory=directory),
            "Move the file away, or set STRAWBERRY_HOME to a directory.",
        )
    if not directory.exists():
        return passed(name, Phrase("{directory} is made at the first start", directory=directory))
    if not os.access(directory, os.W_OK):
        hint = f"sudo chown -R $(id -un) {directory}"
        if os.name == "posix" and os.statvfs(directory).f_flag & os.ST_RDONLY:
            hint = "Its disk is mounted for reading only; STRAWBERRY_HOME sets another directory."
        return failed(name, Phrase("{directory} cannot be written", directory=directory), hint)
    if os.name == "posix" and directory.stat().st_mode & 0o077:
        return failed(
            name, Phrase("others can read {directory}", directory=directory), f"chmod 700 {directory}"
        )
    free = shutil.disk_usage(directory).free
    if free < room_mb * _MB:
        return failed(
            name,
            Phrase("{free} MB free on the disk of {directory}", free=free // _MB, directory=directory),
            Phrase("Free {room} MB.", room=room_mb),
        )
    return passed(name, str(directory))


def check_database(path: Path, *, hint: str) -> Check:
    """Read a database through, as far as SQLite needs to find damage; changes nothing in it.

    Args:
        hint: How to go on without it.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as database:
            problem = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        problem = str(error)
    if problem == "ok":
        return passed("database", Phrase("{path} is sound", path=path))
    return failed(
        "database",
        Phrase("{path} is damaged: {problem}", path=path, problem=" ".join(problem.split())),
        Phrase("Stop Strawberry, then restore a backup, or move the file away: {hint}", hint=hint),
    )


def check_cluster(members: Iterable["ClusterMember"]) -> Iterator[Check]:
    """Name the replicas and the nodes that are missing; nothing where the hub is alone."""
    for each in members:
        if each.kind == "replica" and each.state == "gone":
            # It may have been stopped, or replaced, on purpose.
            yield passed("replica", Phrase("{name} does not run", name=each.name))
        elif each.state == "gone":
            detail = Phrase("{url} cannot be reached", url=each.url)
            yield failed("node", detail, "Start it: the others cannot lose one more.")
        elif not each.bus and each.kind == "node":
            detail = Phrase("{name} has not caught up with the others", name=each.name)
            yield failed(
                "node", detail, "Wait a minute. If it stays so, make room on its disk and restart it."
            )
        elif not each.bus:
            yield failed("replica", Phrase("{name} is not connected to the broker", name=each.name))


def check_devices(found: Sequence["DeviceAnswer"]) -> Iterator[Check]:
    """Look at the devices as the hub lists them: what was refused, and what waits for approval."""
    wrong = [device for device in found if device.problems or device.failing]
    waiting = sum(device.to_review for device in found)
    template = "{all}, {wrong} with problems" if wrong else "{all}, none with problems"
    detail = Phrase(template, all=len(found), wrong=len(wrong))
    if waiting:
        detail = Phrase("{devices}, {waiting} to review", devices=detail, waiting=waiting)
    yield passed(
        "devices", detail, "'strawberry devices review' shows what their skills ask for." if waiting else ""
    )
    for device in wrong:
        for each in device.failing:
            yield failed(
                "skill",
                Phrase(
                    "{skill} on {device}: {reason}", skill=each.skill, device=device.name, reason=each.reason
                ),
                "The log of the device has the whole error.",
            )
        if not device.problems:
            continue
        newest = device.problems[-1].message
        yield failed(
            "device",
            f"{device.name}: {newest}",
            "'strawberry devices list --json' shows all of its problems; everything else of it works.",
        )


def check_voice(home: Home) -> Iterator[Check]:
    """Look at what speech needs where it is on; the sound card is not opened, as a spoke may use it."""
    from voice.opening import open_engines

    settings = read_voice(home)
    if not settings.enabled:
        return
    try:
        engines = open_engines(settings)
    except StrawberryError as error:
        yield failed("voice", error.message, error.hint)
        return
    used = ", ".join(dict.fromkeys((settings.wake_engine, *engines.speech_to_text, *engines.text_to_speech)))
    yield passed("voice", used)
    domains: dict[Domain, Iterable[str]] = {"asr": engines.speech_to_text, "tts": engines.text_to_speech}
    for domain, servers in domains.items():
        yield from [
            asyncio.run(_speech_server(name, domain)) for name in servers if name.startswith("wyoming")
        ]
    names = (settings.microphone, settings.loudspeaker)
    if all(name.startswith("file:") for name in names):
        return
    try:
        from voice.sound.card import devices

        found = devices()
    except StrawberryError as error:
        yield failed("sound", error.message, error.hint)
        return
    for what, name, fitting in (
        ("microphone", settings.microphone, [each.name for each in found if each.inputs]),
        ("loudspeaker", settings.loudspeaker, [each.name for each in found if each.outputs]),
    ):
        if name.startswith("file:"):
            continue
        is_there = any(name.casefold() in each.casefold() for each in fitting)
        missing = (
            Phrase("there is no {what} {name!r}", what=what, name=name) if name else f"there is no {what}"
        )
        hint = "Plug one in, let this user use it (group audio), or set it in [voice]."
        detail = name or ", ".join(fitting[:3])
        yield Check(what, ok=is_there, detail=detail if is_there else missing, hint="" if is_there else hint)


async def _speech_server(name: str, domain: "Domain") -> Check:
    """Ask a Wyoming server whether it has what the settings want of it."""
    from voice.engines.wyoming import server_of
    from voice.wyoming.connection import Address
    from voice.wyoming.discovery import offers

    where, title = server_of(name.partition("://")[2], domain), "Wyoming server"
    if not isinstance(where, Address):
        try:
            return passed(title, str(await where()))
        except StrawberryError as error:
            return failed(title, error.message, error.hint)
    if await offers(where, domain):
        return passed(title, str(where))
    what = "speech to text" if domain == "asr" else "text to speech"
    hint = "Check that it runs, and its address in [voice]."
    return failed(
        title, Phrase("{server} does not answer as a server for {what}", server=where, what=what), hint
    )
