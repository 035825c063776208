"""Services under systemd: of this user, or of the whole machine."""

import getpass
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import ConfigError
from deploy import limits
from deploy.service.plan import Kind, ServicePlan, name_of
from deploy.service.unit import UnitStyle, protections, render

_SYSTEM_UNITS: Final = Path("/etc/systemd/system")
_PROPERTIES: Final = (
    "UnitFileState,ActiveState,SubState,Result,StatusText,MainPID,NRestarts,MemoryCurrent,MemoryMax,"
    "ActiveEnterTimestamp"
)


@dataclass(frozen=True)
class Installed:
    """What an installation did.

    Attributes:
        changed: Whether the unit was not there, or was another one.
        notes: What the person should know, each with what to do about it.
    """

    path: Path
    changed: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServiceState:
    """How systemd says that a service is; None where it does not know a number."""

    service: Kind
    unit: str
    state: str
    detail: str
    enabled: bool
    result: str
    since: str
    restarts: int | None
    memory_bytes: int | None
    memory_cap_bytes: int | None
    pid: int | None


@dataclass(frozen=True)
class Systemd:
    """One of the two managers of a Linux machine.

    Attributes:
        system: Whether it is the machine's; else this user's.
    """

    system: bool

    def path_of(self, kind: Kind) -> Path:
        return self._units / f"{name_of(kind)}.service"

    def unit(self, plan: ServicePlan) -> tuple[str, tuple[str, ...]]:
        """Return the unit's text for this machine, and what a person should know about it."""
        version = self._version()
        style = UnitStyle(system=self.system, version=version)
        if self.system or not version or self._can_confine(style):
            return render(plan, style), ()
        note = (
            "this kernel gives users no namespaces: the service's files are not write-protected. "
            "'sudo strawberry service install --system' does it"
        )
        return render(plan, UnitStyle(version=version, confined=False)), (note,)

    def install(self, plan: ServicePlan, *, now: bool) -> Installed:
        """Set a service up; the same again changes nothing.

        Raises:
            ConfigError: If this manager cannot be reached, or refuses.
        """
        self._require_rights()
        text, notes = self.unit(plan)
        path = self.path_of(plan.kind)
        changed = _read(path) != text
        if changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            self._must("daemon-reload")
        self._must("enable", path.name)
        if now:
            self._must("restart" if changed else "start", path.name)
        return Installed(path, changed, (*notes, *self._linger()))

    def remove(self, kind: Kind) -> bool:
        """Stop a service and take it away; says whether there was one.

        Raises:
            ConfigError: If this manager cannot be reached, or refuses.
        """
        path = self.path_of(kind)
        if not path.exists():
            return False
        self._require_rights()
        self._must("disable", "--now", path.name)
        path.unlink(missing_ok=True)
        self._must("daemon-reload")
        # What is left of a failed one would still be listed.
        self._ask("reset-failed", path.name)
        return True

    def state(self, kind: Kind) -> ServiceState | None:
        """Return how a service is; None where there is none.

        Raises:
            ConfigError: If this manager cannot be reached.
        """
        if not self.path_of(kind).exists():
            return None
        self._require()
        unit = self.path_of(kind).name
        lines = self._must("show", unit, f"--property={_PROPERTIES}").splitlines()
        shown = dict(line.split("=", 1) for line in lines if "=" in line)
        return ServiceState(
            service=kind,
            unit=unit,
            state=shown.get("ActiveState", "unknown"),
            detail=shown.get("StatusText") or shown.get("SubState", ""),
            enabled=shown.get("UnitFileState") == "enabled",
            result=shown.get("Result", ""),
            since=shown.get("ActiveEnterTimestamp", ""),
            restarts=_number(shown.get("NRestarts")),
            memory_bytes=_number(shown.get("MemoryCurrent")),
            memory_cap_bytes=_number(shown.get("MemoryMax")),
            pid=_number(shown.get("MainPID")),
        )

    def restart_command(self, kind: Kind) -> str:
        return f"{'sudo systemctl' if self.system else 'systemctl --user'} restart {name_of(kind)}"

    def log_command(self, kinds: Iterable[Kind], *, lines: int, follow: bool, as_json: bool) -> list[str]:
        """Return the command that shows what services wrote."""
        # --user-unit also finds what lies in the machine's journal, which is where it is on a Raspberry Pi.
        option = "--unit" if self.system else "--user-unit"
        chosen = [f"{option}={self.path_of(kind).name}" for kind in kinds]
        return [
            *("journalctl", "--no-pager", f"--lines={lines}", *chosen),
            *(["--follow"] if follow else []),
            f"--output={'json' if as_json else 'short-iso'}",
        ]

    @property
    def _units(self) -> Path:
        if self.system:
            return _SYSTEM_UNITS
        configuration = os.environ.get("XDG_CONFIG_HOME")
        return (Path(configuration) if configuration else Path.home() / ".config") / "systemd" / "user"

    def _require_rights(self) -> None:
        """See that the manager can be told something, before anything is written."""
        if self.system and os.geteuid() != 0:
            raise ConfigError("a service of the whole machine needs root", hint="Run it with sudo.")
        self._require()

    def _require(self) -> None:
        if self._version():
            return
        if self.system:
            raise ConfigError(
                "systemd does not run here", hint="'strawberry service install … --print' shows the unit."
            )
        raise ConfigError(
            "the systemd of this user cannot be reached",
            hint="Log in as this user (not with su or sudo), or use --system; where no systemd runs, "
            "'strawberry service install … --print' shows the unit.",
        )

    def _version(self) -> int:
        """Return the version of the manager that runs; 0 where none can be reached."""
        answer = self._ask("show", "--property=Version", "--value")
        number = re.match(r"\d+", answer.stdout.strip()) if answer.returncode == 0 else None
        return int(number[0]) if number else 0

    def _can_confine(self, style: UnitStyle) -> bool:
        """Try the protections on a program that does nothing."""
        properties = [f"--property={line}" for line in protections(style, writable=())]
        words = ["systemd-run", "--user", "--quiet", "--wait", "--collect", *properties, "true"]
        return _run(words).returncode == 0

    def _linger(self) -> Iterable[str]:
        """Return what is missing for a user's service to run while the user is not logged in."""
        if self.system:
            return
        name = getpass.getuser()
        if _run(["loginctl", "show-user", name, "--property=Linger", "--value"]).stdout.strip() != "yes":
            yield f"it only runs while {name} is logged in: 'loginctl enable-linger {name}' changes that"

    def _ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return _run(["systemctl", *([] if self.system else ["--user"]), *words])

    def _must(self, *words: str) -> str:
        answer = self._ask(*words)
        if answer.returncode != 0:
            said = answer.stderr.strip().splitlines() or [f"code {answer.returncode}"]
            raise ConfigError(
                f"systemctl {' '.join(words)}: {said[0]}", hint="'strawberry service logs' tells more."
            )
        return answer.stdout


def _run(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limits.SYSTEMCTL_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", f"there is no {words[0]} here")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"no answer in {limits.SYSTEMCTL_TIMEOUT_S:.0f} s")


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, PermissionError):
        # One of the machine may be for root's eyes only.
        return None


def _number(text: str | None) -> int | None:
    # What systemd does not know is "[not set]" or the largest number there is.
    return int(text) if text and text.isdigit() and int(text) < 2**63 else None
