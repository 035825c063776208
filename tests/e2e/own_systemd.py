"""A systemd of its own for a test, in namespaces of its own; nothing of the machine's is touched.

It is the first process of a process namespace and sees the machine's files, but a ``/run``, ``/tmp``,
``/etc/machine-id`` and ``/etc/systemd/system`` of its own, no console, and no unit but those written here and
those a test installs. Its processes share the network, so that a test talks to them. With it run a journal
and the manager of a user.
"""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.e2e.house import wait_for
from tests.requirements import require

_SYSTEMD: Final = Path("/lib/systemd/systemd")
_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))
"""What ``PrivateTmp=`` hides."""
_NAMESPACES: Final = ("--mount", "--pid", "--cgroup", "--uts")
_USER_RUNTIME: Final = "/run/user/0"
_MACHINE_ID: Final = Path("/etc/machine-id")
_GROUPS: Final = "strawberry-test"
"""How its control groups are called; the process that made one follows."""
_READY: Final = "test.target"

_UNITS: Final = {
    # The machine's own units of these names would set up the machine.
    **dict.fromkeys(
        ("sysinit.target", "basic.target", "sockets.target", "shutdown.target", "multi-user.target"),
        "[Unit]\nDefaultDependencies=no\n",
    ),
    _READY: "[Unit]\nDefaultDependencies=no\n"
    "Requires=systemd-journald.service user@0.service\nAfter=systemd-journald.service user@0.service\n",
    "systemd-journald.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\n"
    "ListenDatagram=/run/systemd/journal/socket\nListenStream=/run/systemd/journal/stdout\n"
    "PassCredentials=yes\nReceiveBuffer=8M\nTimestamping=us\n",
    "systemd-journald.service": "[Unit]\nDefaultDependencies=no\n"
    "Requires=systemd-journald.socket\nAfter=systemd-journald.socket\n"
    "[Service]\nType=notify\nExecStart=/lib/systemd/systemd-journald\nStandardOutput=null\n"
    "RuntimeDirectory=systemd/journal\nRuntimeDirectoryPreserve=yes\nFileDescriptorStoreMax=512\n",
    # By this name and in this slice the journal knows whose units they are.
    "user@0.service": "[Unit]\nDefaultDependencies=no\nAfter=systemd-journald.service\n"
    f"[Service]\nType=notify\nExecStart={_SYSTEMD} --user\nSlice=user-0.slice\nDelegate=yes\n"
    f"KillMode=mixed\nEnvironment=HOME={{directory}} XDG_RUNTIME_DIR={_USER_RUNTIME}"
    " SYSTEMD_UNIT_PATH={directory}/config/systemd/user:/run/user-units\n"
    "Environment=XDG_CONFIG_HOME={directory}/config SYSTEMD_GENERATOR_PATH=/run/none\n",
}
_USER_UNITS: Final = {
    **dict.fromkeys(("basic.target", "shutdown.target"), "[Unit]\nDefaultDependencies=no\n"),
    "default.target": "[Unit]\nWants=dbus.socket\nAfter=dbus.socket\n",
    "dbus.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=%t/bus\n",
    "dbus.service": "[Unit]\nRequires=dbus.socket\n[Service]\nType=notify\n"
    "ExecStart=/usr/bin/dbus-daemon --session --address=systemd: --nofork --nopidfile --systemd-activation\n",
}
_JOURNAL: Final = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=\nRateLimitIntervalSec=0\n"

_FIRST: Final = """
set -e
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs -o mode=755 none /run
mkdir -m 1777 /run/kept
number=0
for path in "$@"; do
    number=$((number + 1))
    mkdir "/run/kept/$number"
    mount --bind "$path" "/run/kept/$number"
done
mount -t tmpfs -o mode=1777 none /tmp
mount -t tmpfs -o mode=1777 none /var/tmp
number=0
for path in "$@"; do
    number=$((number + 1))
    mkdir -p "$path"
    mount --bind "/run/kept/$number" "$path"
done
mount -t tmpfs none /etc/systemd/system
# Both are written by a first process: a terminal is reset, an empty identity is filled.
mount --bind "$DIRECTORY/machine-id" /etc/machine-id
if [ -e /dev/console ]; then mount --bind /dev/null /dev/console; fi
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mkdir -p /run/systemd/journald.conf.d /run/none
mkdir -p -m 700 /run/user/0
cp -r "$DIRECTORY/units" "$DIRECTORY/user-units" /run
cp "$DIRECTORY/journald.conf" /run/systemd/journald.conf.d/test.conf
exec env -i "PATH=$PATH" container=test SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units \
    SYSTEMD_GENERATOR_PATH=/run/none "$SYSTEMD" --system "--unit=$READY" --log-target=journal \
    --log-level=info --show-status=no
"""
"""What the first process does before it becomes systemd; its arguments are the paths to keep."""


_PROBE: Final = """
set -e
mount -t cgroup2 none /sys/fs/cgroup
mkdir /sys/fs/cgroup/probe
rmdir /sys/fs/cgroup/probe
mount -t tmpfs none /run
mount -t tmpfs none /etc/systemd/system
mount --bind /dev/null /etc/machine-id
"""
"""What it needs of the kernel, tried beforehand: what fails after it, fails the test."""


@dataclass(frozen=True)
class OwnSystemd:
    """A systemd that runs, and the manager of a user in it.

    Attributes:
        directory: Where it keeps its files; the user's units lie in ``config/systemd/user``.
        hidden: Paths that services with a ``/tmp`` of their own do not see.
    """

    directory: Path
    hidden: tuple[Path, ...]
    _first: int

    def run(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command inside to its end."""
        mine = {
            "HOME": str(self.directory),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "XDG_RUNTIME_DIR": _USER_RUNTIME,
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={_USER_RUNTIME}/bus",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STRAWBERRY")}
        return subprocess.run(
            ["nsenter", f"--target={self._first}", *_NAMESPACES, *words],
            env={**kept, **mine, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def let_see(self, unit: str, *, system: bool, watchdog_s: int | None = None) -> None:
        """Let a service see the test's files, which lie where its own ``/tmp`` hides them.

        Args:
            watchdog_s: Its watchdog, where a test is not to wait as long as the unit says.
        """
        lines = ["[Service]", *(f"BindPaths={path}" for path in self.hidden)]
        if watchdog_s is not None:
            lines.append(f"WatchdogSec={watchdog_s}")
        units = "/etc/systemd/system" if system else f"{self.directory}/config/systemd/user"
        folder, text = f"{units}/{unit}.service.d", "\n".join([*lines, ""])
        done = self.run("sh", "-c", 'mkdir -p "$1" && printf %s "$2" > "$1/test.conf"', "sh", folder, text)
        assert done.returncode == 0, done.stderr


@contextmanager
def own_systemd(directory: Path, *, visible: Sequence[Path]) -> Iterator[OwnSystemd]:
    """Start a systemd, and end it with all that it runs; skips the test where the kernel refuses one.

    Args:
        directory: For its files.
        visible: What services need to see, wherever it lies.
    """
    require(_SYSTEMD.exists(), "systemd is missing: apt-get install systemd")
    hidden = tuple(path for path in (directory, *visible) if _is_hidden(path))
    _write(directory)
    with _own_group() as group:
        words = [*_confined(group, *_NAMESPACES, "--kill-child"), "sh", "-c", _FIRST, "sh", *map(str, hidden)]
        log = directory / "systemd.log"
        with log.open("wb") as output:
            # setpriv: however the test ends, no systemd is left.
            keeper = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *words],
                env={
                    "PATH": os.environ["PATH"],
                    "DIRECTORY": str(directory),
                    "SYSTEMD": str(_SYSTEMD),
                    "READY": _READY,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield _ready(keeper, directory, hidden, log)
        finally:
            keeper.kill()
            keeper.wait()


def _ready(
    keeper: "subprocess.Popen[bytes]", directory: Path, hidden: tuple[Path, ...], log: Path
) -> OwnSystemd:
    def children() -> list[psutil.Process]:
        assert keeper.poll() is None, log.read_text(errors="replace")
        return psutil.Process(keeper.pid).children()

    [first] = wait_for(children, what="its first process")
    machine = OwnSystemd(directory, hidden, first.pid)

    def is_ready() -> bool:
        return bool(children()) and machine.run("systemctl", "is-active", _READY).returncode == 0

    wait_for(is_ready, what="systemd to be ready")
    return machine


@contextmanager
def _own_group() -> Iterator[Path]:
    """Make a control group, and take it away when all that ran in it has ended."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root of a Linux machine can start a systemd of its own")
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next((Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"), None)
    if mount is None:
        pytest.skip("no systemd of its own: cgroup2 is not mounted here")
    if not _MACHINE_ID.exists():
        # Made by that systemd, and on the machine's disk.
        pytest.skip(f"no systemd of its own: it would make {_MACHINE_ID}, which is missing here")
    mine = next(
        line.removeprefix("0::")
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if line.startswith("0::")
    )
    parent = mount / mine.lstrip("/")
    _sweep(parent)
    group = parent / f"{_GROUPS}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no systemd of its own: {error}")
    try:
        tried = subprocess.run(
            [*_confined(group, *_NAMESPACES), "sh", "-c", _PROBE], capture_output=True, text=True, check=False
        )
        if tried.returncode != 0:
            pytest.skip(f"no systemd of its own: {tried.stderr.strip()}")
        yield group
    finally:
        wait_for(lambda: _is_removed(group), what="the end of all that systemd ran")


def _confined(group: Path, *options: str) -> list[str]:
    """Give the words that start a command as the first of a control group and of namespaces."""
    enter = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
    return ["sh", "-c", enter, "sh", str(group), "unshare", *options, "--fork", "--mount-proc"]


def _sweep(parent: Path) -> None:
    """Take the groups away that runs left which were killed."""
    for group in parent.glob(f"{_GROUPS}-*-*"):
        owner = group.name.removeprefix(f"{_GROUPS}-").partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            _is_removed(group)


def _is_removed(group: Path) -> bool:
    for each in sorted(group.glob("**/"), reverse=True):
        # Busy for as long as a process in it is being ended.
        with contextlib.suppress(OSError):
            each.rmdir()
    return not group.exists()


def _is_hidden(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in _TEMPORARY)


def _write(directory: Path) -> None:
    for folder, units in (("units", _UNITS), ("user-units", _USER_UNITS)):
        (directory / folder).mkdir(parents=True)
        for name, text in units.items():
            (directory / folder / name).write_text(text.replace("{directory}", str(directory)))
    (directory / "config" / "systemd" / "user").mkdir(parents=True)
    (directory / "journald.conf").write_text(_JOURNAL)
    (directory / _MACHINE_ID.name).write_text(f"{secrets.token_hex(16)}\n")
