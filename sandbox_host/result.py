"""What a run gives back."""

from dataclasses import dataclass

from contracts.answers.skills import RunStatus
from contracts.wire import Json


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run gives back.

    Attributes:
        status: How it ended.
        stdout: What it printed, standard error included, in order; ends with a note where it was cut.
        value: The last expression as plain data; None also where it is not plain data, or too large.
        repr: The last expression as Python writes it, cut where it is long; empty for None.
        plain: Whether ``value`` is the last expression.
        traceback: The user's frames and the error; empty where nothing was raised.
        problem: One line about a run that was stopped; empty otherwise.
        truncated: Whether output, value or traceback were cut.
        fresh: Whether the run began without any variables of earlier runs.
        seconds: How long it ran, its calls included; what else a run takes is the wait for a process.
        lost: Why the variables of this conversation's earlier runs were gone; empty if they were not.
    """

    status: RunStatus
    stdout: str = ""
    value: Json = None
    repr: str = ""
    plain: bool = True
    traceback: str = ""
    problem: str = ""
    truncated: bool = False
    fresh: bool = False
    seconds: float = 0.0
    lost: str = ""

    @property
    def ok(self) -> bool:
        return self.status is RunStatus.OK
