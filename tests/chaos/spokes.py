"""Twenty spokes on two cores: one process that has loaded the code, and forks itself for each.

Each spoke is the real one in a process of its own, with its own home, identity and epoch; only the
second that an interpreter takes to start is saved. Run as a module this is the process that forks.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self

from pydantic import SecretStr

from deploy.home.running import forever
from deploy.logs.logs import set_up_logging
from spoke.app import open_spoke
from spoke.settings import SpokeSettings
from tests.chaos.observed import observe


@dataclass
class SpokeProcess:
    """One spoke.

    Attributes:
        id: Its device id.
        token: Its enrolment token; used up at the first start.
        pid: Of its latest process.
    """

    id: str
    home: Path
    token: str = field(repr=False)
    pid: int = 0

    @property
    def sight(self) -> Path:
        """Where it writes down what it holds."""
        return self.home / f"sight-{self.pid}.json"

    @property
    def log(self) -> Path:
        """What all its processes printed."""
        return self.home / "log.txt"


class Nursery:
    """Starts spokes. A context manager that leaves none behind."""

    def __init__(self, *, hub_url: str, skills: Path) -> None:
        self.ended: dict[int, int] = {}
        self._hub_url = hub_url
        self._skills = skills
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.spokes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        # It ends its children when nobody speaks to it any more.
        self._process.communicate()

    def start(self, spoke: SpokeProcess) -> None:
        """Start a spoke, or start it again."""
        spoke.home.mkdir(exist_ok=True)
        order = {
            "home": str(spoke.home),
            "hub_url": self._hub_url,
            "skills": str(self._skills),
            "token": spoke.token,
        }
        spoke.pid = self._tell(order)["pid"]

    def has_ended(self, spoke: SpokeProcess) -> bool:
        """Whether its latest process has ended."""
        self._tell(None)
        return spoke.pid in self.ended

    def _tell(self, order: dict[str, str] | None) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        self.ended |= {int(pid): status for pid, status in answer["ended"].items()}
        return answer


def _raise_children() -> None:
    """Fork a spoke for each order; end them all when no more orders can come."""
    children: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        pid = None
        if order is not None:
            pid = os.fork()
            if pid == 0:
                _be_a_spoke(order)
            children.add(pid)
        ended = _reap(children)
        sys.stdout.write(json.dumps({"pid": pid, "ended": ended}) + "\n")
        sys.stdout.flush()
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)


def _reap(children: set[int]) -> dict[int, int]:
    ended = {}
    for child in list(children):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            children.discard(child)
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def _be_a_spoke(order: dict[str, str]) -> NoReturn:
    home = Path(order["home"])
    log = os.open(home / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    try:
        set_up_logging(debug=False)
        observe(home / f"sight-{os.getpid()}.json")
        settings = SpokeSettings(home=home, hub_url=order["hub_url"], skills=(Path(order["skills"]),))
        asyncio.run(_serve(settings, SecretStr(order["token"])))
    except BaseException:
        logging.getLogger(__name__).exception("the spoke ended")
    finally:
        # Never back into the loop of the process that forked this one.
        os._exit(1)


async def _serve(settings: SpokeSettings, token: SecretStr) -> None:
    async with open_spoke(settings, token=token):
        await forever()


if __name__ == "__main__":
    _raise_children()
