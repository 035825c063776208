"""Fetching the sandbox of this home at the first start of a process that needs it."""

import time

from contracts.errors import SandboxError
from deploy.directory import Home
from deploy.home.running import Reporter
from sandbox_host import install


async def prepare_sandbox(home: Home, *, report: Reporter, without: str) -> None:
    """Fetch the sandbox and make its snapshot if that has not been done; go on without it if that fails.

    Args:
        without: What works without it, for the report of a failure.
    """
    shown = False

    def progress(step: str) -> None:
        nonlocal shown
        shown = True
        report.state("sandbox", f"  sandbox  {step}", step=step)

    started = time.monotonic()
    try:
        await install(home.sandbox, progress=progress)
    except SandboxError as error:
        hint = [f"           {error.hint}"] if error.hint else []
        report.state(
            "sandbox",
            f"  sandbox  not available: {error.message}",
            *hint,
            f"           {without}; start again to try once more",
            problem=error.message,
        )
        return
    if shown:
        report.say(f"  sandbox  in place after {time.monotonic() - started:.0f} s")
