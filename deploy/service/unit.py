"""The systemd unit of a service."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import ConfigError
from deploy import limits
from deploy.service.plan import ABOUT, ServicePlan, name_of

WATCHDOG_S: Final = 60
"""Longer than the 30 s after which a process ends itself (`deploy.home.running`): for one whose watch stands
still, too, because a thread keeps the interpreter's lock."""
STOP_S: Final = 45
"""`up` gives its spoke 15 s, of which that gives its skills 5 s; then the hub, the broker and the sandbox."""
_BACKOFF_SINCE: Final = 254
"""The systemd that brought RestartSteps; an older one waits `limits.SERVICE_RESTART_S` each time."""

_ALWAYS: Final = (
    # None of these needs a privilege, so they hold in a user's manager, too. Not among them is
    # MemoryDenyWriteExecute: the sandbox compiles JavaScript and WebAssembly.
    "NoNewPrivileges=yes",
    "UMask=0077",
    "LockPersonality=yes",
    "RestrictSUIDSGID=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
)
_FILES: Final = (
    "ProtectSystem=strict",
    "PrivateTmp=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
)
_SYSTEM_ONLY: Final = (
    # They take capabilities away, which a user's manager may not: its services would not start at all.
    "CapabilityBoundingSet=",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectHostname=yes",
)
_HUB_ALONE: Final = (
    # Skills need the sound, devices and files of their user, and what other programs run; a hub needs none of
    # it. A user's manager may not take all of this away, and would hide its own sockets with the homes.
    "PrivateDevices=yes",
    "ProtectClock=yes",
    "ProtectProc=invisible",
    "ProtectHome=tmpfs",
)
_HIDDEN: Final = ("/home", "/root", "/run/user")
"""What ``ProtectHome`` hides: the directories that the hub needs are shown again, each for itself."""


@dataclass(frozen=True)
class UnitStyle:
    """For which manager a unit is.

    Attributes:
        system: Whether it is for the manager of the whole machine.
        version: Of systemd; 0 where it is not known.
        confined: Whether files can be write-protected here; a user's manager needs user namespaces for it,
            which some kernels do not give to users.
    """

    system: bool = False
    version: int = 0
    confined: bool = True


def render(plan: ServicePlan, style: UnitStyle) -> str:
    """Return the text of the unit.

    Raises:
        ConfigError: If a path or an option cannot stand in a unit.
    """
    return "\n".join([*_unit(plan, style), "", *_service(plan, style), "", *_install(style), ""])


def protections(style: UnitStyle, *, writable: Sequence[Path]) -> list[str]:
    """Return the lines that confine the service, as far as the manager can."""
    lines = list(_ALWAYS)
    if style.confined:
        # A user's manager has the privilege to change mounts only within a user namespace.
        lines += [*([] if style.system else ["PrivateUsers=yes"]), *_FILES]
        lines += [f"ReadWritePaths={_quoted(str(path))}" for path in writable]
    if style.system:
        lines += _SYSTEM_ONLY
    return lines


def _hub_protections(plan: ServicePlan) -> Iterator[str]:
    """Yield the lines that confine a hub without skills."""
    yield from _HUB_ALONE
    for option, paths in {
        "BindPaths": (plan.home, *plan.writable),
        "BindReadOnlyPaths": plan.code,
    }.items():
        for path in paths:
            if any(path.is_relative_to(hidden) for hidden in _HIDDEN):
                yield f"{option}={_quoted(str(path))}"


def _unit(plan: ServicePlan, style: UnitStyle) -> Iterator[str]:
    yield "[Unit]"
    yield f"Description={ABOUT[plan.kind]}"
    if style.system:
        yield "Wants=network-online.target"
        yield "After=network-online.target"
    # It is never given up: a broker or a disk that is back after an hour must be enough.
    yield "StartLimitIntervalSec=0"


def _service(plan: ServicePlan, style: UnitStyle) -> Iterator[str]:
    yield "[Service]"
    yield "Type=notify"
    program, *words = plan.words
    # In the program's own path nothing is a variable.
    yield f"ExecStart={' '.join([_quoted(program), *(_quoted(word, variables=True) for word in words)])}"
    yield f"Environment={_quoted(f'STRAWBERRY_HOME={plan.home}')}"
    if style.system and plan.user is not None:
        yield f"User={plan.user}"
    yield "Restart=on-failure"
    yield f"RestartSec={limits.SERVICE_RESTART_S}"
    if style.version >= _BACKOFF_SINCE:
        yield "RestartSteps=5"
        yield f"RestartMaxDelaySec={limits.SERVICE_RESTART_MAX_S}"
    yield f"TimeoutStartSec={limits.SERVICE_START_S}"
    yield f"WatchdogSec={WATCHDOG_S}"
    # Only the main process gets the signal: it ends its own children in their order.
    yield "KillMode=mixed"
    yield f"TimeoutStopSec={STOP_S}"
    yield f"MemoryMax={plan.memory}"
    yield "OOMPolicy=continue"
    yield "TasksMax=512"
    yield f"SyslogIdentifier={name_of(plan.kind)}"
    yield from protections(style, writable=(plan.home, *plan.writable))
    if style.system and plan.kind == "hub":
        yield from _hub_protections(plan)


def _install(style: UnitStyle) -> Iterator[str]:
    yield "[Install]"
    yield f"WantedBy={'multi-user.target' if style.system else 'default.target'}"


def _quoted(text: str, *, variables: bool = False) -> str:
    """Write a word so that systemd reads exactly it (systemd.syntax(7), systemd.service(5))."""
    if not text.isprintable():
        raise ConfigError(
            f"{text!r} cannot be written into a systemd unit", hint="Use a path without special characters."
        )
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if variables:
        escaped = escaped.replace("$", "$$")
    return f'"{escaped}"'
