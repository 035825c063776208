"""Sandbox processes of a test."""

import psutil


def sandbox_processes() -> list[psutil.Process]:
    """Return the living sandbox processes that this test process has started."""
    return [child for child in psutil.Process().children() if _is_sandbox(child)]


def _is_sandbox(child: psutil.Process) -> bool:
    try:
        return "deno" in child.name() and child.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        # It ended while it was looked at.
        return False
