"""Services under Windows: a scheduled task of this user, started at the login."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from contracts.errors import ConfigError
from deploy.home.directory import Home
from deploy.logs.log_files import read_logs, spoke_log
from deploy.service.plan import Kind, ServicePlan, name_of

_NAMESPACE: Final = "http://schemas.microsoft.com/windows/2004/02/mit/task"
_PATIENCE_S: Final = 60.0


def render_task(plan: ServicePlan, *, account: str) -> str:
    r"""Give the task's definition, as ``schtasks /Create /XML`` takes it.

    Args:
        account: Whose login starts it, for example ``HOUSE\anna``.
    """
    ElementTree.register_namespace("", _NAMESPACE)
    task = ElementTree.Element(f"{{{_NAMESPACE}}}Task", version="1.2")
    _add(_section(task, "RegistrationInfo"), Description=plan.about)
    trigger = _section(_section(task, "Triggers"), "LogonTrigger")
    _add(trigger, Enabled="true", UserId=account)
    principal = _section(_section(task, "Principals"), "Principal", id="owner")
    _add(principal, UserId=account, LogonType="InteractiveToken", RunLevel="LeastPrivilege")
    settings = _section(task, "Settings")
    _add(
        settings,
        # In the order of the schema. A laptop's spoke is of use on battery, too; and no time is too long.
        MultipleInstancesPolicy="IgnoreNew",
        DisallowStartIfOnBatteries="false",
        StopIfGoingOnBatteries="false",
        StartWhenAvailable="true",
        ExecutionTimeLimit="PT0S",
    )
    _add(_section(settings, "RestartOnFailure"), Interval="PT1M", Count="999")
    # A task has no variables of its own, and nobody keeps what it writes.
    kept = log_of(Home(plan.home), plan.kind)
    program, *words = plan.words
    words += [f"--home={plan.home}", f"--log-file={kept}"]
    _add(
        _section(_section(task, "Actions", Context="owner"), "Exec"),
        Command=program,
        Arguments=subprocess.list2cmdline(words),
    )
    ElementTree.indent(task)
    return '<?xml version="1.0" encoding="UTF-16"?>\n' + ElementTree.tostring(task, encoding="unicode") + "\n"


@dataclass(frozen=True)
class TaskScheduler:
    """The task scheduler of Windows, told by ``schtasks``."""

    def install(self, plan: ServicePlan, *, account: str, now: bool) -> None:
        """Set a task up, in place of one of the same name.

        Raises:
            ConfigError: If Windows refuses.
        """
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "task.xml"
            file.write_text(render_task(plan, account=account), "utf-16")
            self._must("/Create", "/F", "/TN", _task(plan.kind), "/XML", str(file))
        if now:
            self._must("/Run", "/TN", _task(plan.kind))

    def remove(self, kind: Kind) -> bool:
        """Stop a task and take it away; says whether there was one."""
        if self.state(kind) is None:
            return False
        self._ask("/End", "/TN", _task(kind))
        self._must("/Delete", "/F", "/TN", _task(kind))
        return True

    def state(self, kind: Kind) -> dict[str, Any] | None:
        """Give how a task is, in the words of Windows; None where there is none."""
        answer = self._ask("/Query", "/TN", _task(kind), "/FO", "LIST")
        if answer.returncode != 0:
            return None
        rows = dict(line.split(":", 1) for line in answer.stdout.splitlines() if ":" in line)
        state = rows.get("Status", "unknown").strip()
        return {"service": kind, "unit": _task(kind), "state": state.lower(), "enabled": state != "Disabled"}

    def _ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
        if sys.platform != "win32":
            raise ConfigError("there is no task scheduler here", hint="It is a part of Windows.")
        return subprocess.run(
            ["schtasks", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )

    def _must(self, *words: str) -> None:
        answer = self._ask(*words)
        if answer.returncode != 0:
            raise ConfigError(f"schtasks {words[0]}: {answer.stderr.strip() or answer.returncode}")


def log_of(home: Home, kind: Kind) -> Path:
    """Give the file that a task logs into."""
    return home.logs / f"{kind}.log"


def task_logs(home: Home, kinds: Sequence[Kind], *, lines: int, follow: bool) -> Iterator[tuple[Kind, str]]:
    """Give what tasks wrote, line by line, each with the task that it is of.

    Args:
        lines: How many of what there is already.
        follow: Whether to go on as they write, without end.

    Raises:
        ConfigError: If none of them ever ran.
    """
    owners: dict[Path, Kind] = {}
    for kind in kinds:
        owners[log_of(home, kind)] = owners[spoke_log(log_of(home, kind))] = kind
    if not any(path.exists() for path in owners):
        raise ConfigError(
            f"there is no log in {home.logs}",
            hint="'strawberry service install SERVICE --now' sets one up and starts it.",
        )
    for path, line in read_logs(list(owners), lines=lines, follow=follow):
        yield owners[path], line


def _task(kind: Kind) -> str:
    return name_of(kind)


def _section(parent: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, f"{{{_NAMESPACE}}}{tag}", attributes)


def _add(parent: ElementTree.Element, **texts: str) -> None:
    for tag, text in texts.items():
        _section(parent, tag).text = text
