"""Machines in network namespaces of their own, on one switch, with wires that can be cut.

All addresses and interfaces live in namespaces made here; nothing of the machine itself is touched.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.e2e.house import wait_for

_NEW_NETWORK = 0x40000000
"""``CLONE_NEWNET`` of Linux' <sched.h>."""
_NET = "10.77.0"
_SWITCH = "switch"
_SWITCH_ADDRESS = "02:00:00:00:00:01"


def why_not() -> str | None:
    """Say why this machine cannot make network namespaces; None where it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    name = f"try{os.getpid()}"
    try:
        _ip("netns", "add", name)
        try:
            _ip("-n", name, "link", "add", "one", "type", "veth", "peer", "name", "two")
            _ip("-n", name, "link", "add", _SWITCH, "type", "bridge")
        finally:
            _ip("netns", "delete", name)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespace with a bridge and veth can be made: {error}"
    return None


@dataclass
class Machine:
    """One namespace.

    Attributes:
        wire: Its end at the switch.
    """

    name: str
    namespace: str
    address: str
    wire: str = ""


@dataclass
class Network:
    """A switch in the namespace of the hub, and machines around it; a context manager."""

    machines: dict[str, Machine] = field(default_factory=dict)
    _made: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.hub = self._add("hub")
        in_hub = ("-n", self.hub.namespace)
        # A bridge without an address of its own takes that of a wire: one that is cut would still be heard.
        _ip(*in_hub, "link", "add", _SWITCH, "address", _SWITCH_ADDRESS, "type", "bridge")
        _ip(*in_hub, "address", "add", f"{self.hub.address}/24", "dev", _SWITCH)
        _ip(*in_hub, "link", "set", _SWITCH, "up")
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()

    def plug_in(self, name: str) -> Machine:
        """Make a machine and connect it to the switch."""
        machine = self._add(name)
        machine.wire = f"to_{name}"
        inside = ("-n", machine.namespace)
        _ip(*inside, "link", "add", "eth0", "type", "veth", "peer", "name", machine.wire)
        _ip(*inside, "link", "set", machine.wire, "netns", self.hub.namespace)
        _ip("-n", self.hub.namespace, "link", "set", machine.wire, "master", _SWITCH, "up")
        _ip(*inside, "address", "add", f"{machine.address}/24", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")
        return machine

    @contextmanager
    def cut_off(self, machine: Machine) -> Iterator[None]:
        """Lose every packet from and to a machine, which sees its own interface as it was.

        No end gets a reset, as where a switch loses its power.
        """
        link = ("-n", self.hub.namespace, "link", "set", machine.wire)
        _ip(*link, "nomaster")
        try:
            yield
        finally:
            _ip(*link, "master", _SWITCH)

    @contextmanager
    def unplugged(self, machine: Machine) -> Iterator[None]:
        """Take the machine's own interface down, as by a hand that pulls the plug."""
        link = ("-n", machine.namespace, "link", "set", "eth0")
        _ip(*link, "down")
        try:
            yield
        finally:
            _ip(*link, "up")

    @contextmanager
    def inside(self, machine: Machine) -> Iterator[None]:
        """Be in a machine's namespace, with this thread and all that it starts."""
        with Path("/proc/thread-self/ns/net").open() as before:
            with Path("/run/netns", machine.namespace).open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def _add(self, name: str) -> Machine:
        number = len(self.machines) + 1
        machine = Machine(name, f"sb{os.getpid()}{name}", f"{_NET}.{number}")
        _ip("netns", "add", machine.namespace)
        self._made.callback(_remove, machine.namespace)
        _ip("-n", machine.namespace, "link", "set", "lo", "up")
        self.machines[name] = machine
        return machine


def _remove(namespace: str) -> None:
    # Children of what was killed end by themselves, a moment later.
    wait_for(lambda: not _run("ip", "netns", "pids", namespace).split(), what=f"all in {namespace} to end")
    _ip("netns", "delete", namespace)


def _enter(descriptor: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the namespace")


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
