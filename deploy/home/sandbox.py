"""The sandbox of this home, fetched at the first start of who needs it."""

import time
from collections.abc import Callable

from contracts.errors import SandboxError
from deploy.home.directory import Home
from sandbox_host import install


async def prepare_sandbox(home: Home, *, say: Callable[[str], None], without: str) -> None:
    """Fetch the sandbox and make its snapshot where that has not been done; go on where it fails.

    Args:
        say: Told each step.
        without: What works all the same where it fails.
    """
    shown = False

    def progress(step: str) -> None:
        nonlocal shown
        shown = True
        say(f"  sandbox  {step}")

    started = time.monotonic()
    try:
        await install(home.sandbox, progress=progress)
    except SandboxError as error:
        say(f"  sandbox  not available: {error.message}")
        if error.hint:
            say(f"           {error.hint}")
        say(f"           {without}; start again to try once more")
        return
    if shown:
        say(f"  sandbox  in place after {time.monotonic() - started:.0f} s")
