"""The sandbox for programs of a model: Deno and Pyodide without permissions, behind a Python client."""

from contracts.answers.skills import RunStatus
from sandbox_host.calls import CallHandler
from sandbox_host.install import Installed, Progress, find, install
from sandbox_host.limits import Deadline, RunLimits
from sandbox_host.pool import Pool, PoolSettings, Session, open_pool
from sandbox_host.result import RunResult

__all__ = [
    "CallHandler",
    "Deadline",
    "Installed",
    "Pool",
    "PoolSettings",
    "Progress",
    "RunLimits",
    "RunResult",
    "RunStatus",
    "Session",
    "find",
    "install",
    "open_pool",
]
