"""Start of a skill's process, run as a script by the Python of the skill's environment.

Sets the limits, moves the pipe away from standard input and output, which the skill's code may use, and makes
the skill framework importable: it and its few dependencies come from this installation, everything else from
the environment.

Argument: JSON with ``modules`` (name: folder), ``memory`` (bytes; 0 for no limit) and ``processes``.
"""

import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType

PR_SET_CHILD_SUBREAPER = 36


class Framework:
    """Finds the modules of this installation that a skill's process may import, and no others."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        folder = self._modules.get(name) if path is None else None
        return importlib.machinery.PathFinder.find_spec(name, [folder], target) if folder else None


def main() -> None:
    """Prepare this process, then serve the skills."""
    options = json.loads(sys.argv[1])
    if sys.platform != "win32":
        _limit(options["memory"], options["processes"])
    sys.meta_path.insert(0, Framework(options["modules"]))
    # Not inherited by what the skill starts.
    read, write = os.dup(0), os.dup(1)
    if sys.platform == "win32":
        import msvcrt

        for each in (read, write):
            msvcrt.setmode(each, os.O_BINARY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    from agent_core.isolation.child import run

    run(read, write)


def _limit(memory: int, processes: int) -> None:
    import ctypes
    import resource

    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    for limit, value in ((kind, memory), (resource.RLIMIT_NPROC, processes), (resource.RLIMIT_CORE, 0)):
        if value or limit == resource.RLIMIT_CORE:
            _, most = resource.getrlimit(limit)
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(limit, (value, value))
    if sys.platform == "linux":
        # What a process of the skill leaves behind stays below this one, where it is counted.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


if __name__ == "__main__":
    main()
