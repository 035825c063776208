"""A home of real processes: broker, hub and spokes, driven through the command line as a user would."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from contracts.errors import ConfigError
from deploy.cli.client import HubClient, find_nearest
from deploy.directory import Home
from deploy.home.brokers.registry import running_broker
from tests.forkserver import COMMAND
from tests.ports import free_port

Seen = TypeVar("Seen")

PATIENCE_S = 120.0
"""How long a process may take on a busy machine before a test gives up; never what is asserted."""


def wait_for(look: Callable[[], Seen], *, what: str, patience: float = PATIENCE_S) -> Seen:
    """Look until there is something to see."""
    deadline = time.monotonic() + patience
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience:.0f} s for {what}")
        time.sleep(0.05)


def runs(process: psutil.Process) -> bool:
    """Whether a process goes on; a zombie has ended: it only waits for whoever adopted it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def name_of(process: psutil.Process) -> str:
    """Its name; empty where it has ended meanwhile."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def rows(file: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Look into a database that a process of the house works with."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchall()


@dataclass
class Spoke:
    """A spoke in a process of its own.

    Attributes:
        id: Its device id.
        skills: Folder of its skills; a skill finds its own folder through ``__file__``.
    """

    id: str
    name: str
    home: Path
    skills: Path
    token: str
    hub: str

    def journal(self) -> list[str]:
        """The lines that the skills wrote: what really ran."""
        file = self.skills / "journal.txt"
        return file.read_text().splitlines() if file.exists() else []

    def let_go(self) -> None:
        """Let methods end that wait for it, now and from now on."""
        (self.skills / "go").touch()

    @property
    def conversations(self) -> Path:
        """The database of what was said here."""
        return self.home / "spoke" / "conversations.db"

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """What the spoke answers to whoever owns this machine."""
        return self._client().request("POST", path, body, timeout=2 * PATIENCE_S)

    def stream(self, message: str, *, conversation: str) -> Iterator[dict[str, Any]]:
        """What the spoke answers to a message, chunk by chunk."""
        body = {"model": "assistant", "stream": True, "messages": [{"role": "user", "content": message}]}
        headers = {"X-Strawberry-Conversation": conversation}
        return self._client().stream("/v1/chat/completions", body, headers)

    def _client(self) -> HubClient:
        def look() -> HubClient | None:
            with suppress(ConfigError):
                return find_nearest(Home(self.home))
            return None

        client = wait_for(look, what=f"{self.name} to be there for those who talk to it")
        assert client is not None
        return client


@dataclass
class House:
    """Everything of one home; a context manager that leaves no process behind.

    Attributes:
        debug: Whether processes write debug logs, which takes its time.
    """

    directory: Path
    sandbox: Path | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    begun: list["subprocess.Popen[str]"] = field(default_factory=list)
    http_port: int = field(default_factory=free_port)
    mqtt_port: int = field(default_factory=free_port)
    broker_url: str = ""
    program: Sequence[str] = tuple(COMMAND)
    commands: dict[str, Callable[[], None]] = field(default_factory=dict)
    hub_flags: tuple[str, ...] = ()
    debug: bool = True

    @property
    def home(self) -> Path:
        """``STRAWBERRY_HOME`` of the hub."""
        return self.directory / "home"

    @property
    def _debug(self) -> tuple[str, ...]:
        return ("--debug",) if self.debug else ()

    @property
    def database(self) -> Path:
        """The hub's database."""
        return self.home / "hub" / "hub.db"

    @property
    def topic_prefix(self) -> str:
        """What stands in front of every topic on the bus."""
        return "strawberry/" if "--trust-broker" in self.hub_flags else ""

    @property
    def url(self) -> str:
        """Address of the hub."""
        return f"http://127.0.0.1:{self.http_port}"

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True)
        if self.sandbox is not None:
            (self.home / "sandbox").symlink_to(self.sandbox, target_is_directory=True)
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name)
        for process in self.begun:
            process.kill()
            process.communicate()

    # -- configuration ----------------------------------------------------------------------------

    def use_model(self, base_url: str, *, name: str = "house") -> None:
        """Write the ``strawberry.toml`` that names this model server."""
        (self.home / "strawberry.toml").write_text(
            f'[[models]]\nname = "{name}"\nprovider = "openai"\nmodel = "scripted"\nbase_url = "{base_url}"\n'
        )

    # -- processes --------------------------------------------------------------------------------

    def environment(self, home: Path, extra: Mapping[str, str] = {}) -> dict[str, str]:
        """What a process of this home sees."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("STRAWBERRY", "HUB_"))
        }
        return {
            **kept,
            "STRAWBERRY_HOME": str(home),
            "STRAWBERRY_LOCAL_MODELS_ONLY": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **extra,
        }

    def start(self, name: str, *arguments: str, home: Path | None = None, **extra: str) -> None:
        """Start a ``strawberry`` command that stays; its output goes to ``{name}.log``."""
        self.commands[name] = partial(self.start, name, *arguments, home=home, **extra)
        with self.log_file(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.program, *arguments],
                env=self.environment(home or self.home, extra),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
            )

    def start_again(self, name: str) -> None:
        """Start a process once more by the command that it was started with."""
        self.commands[name]()

    def log_file(self, name: str) -> Path:
        """Where a process's output goes."""
        return self.directory / f"{name}.log"

    def log(self, name: str) -> str:
        """What a process has printed so far."""
        return self.log_file(name).read_text(errors="replace")

    def start_up(self, *flags: str) -> None:
        """Start everything in one process and wait until it says that it is ready."""
        ports = ("--http-port", str(self.http_port), "--mqtt-port", str(self.mqtt_port))
        self.start("up", "up", *ports, *flags, *self._debug)
        self.broker_url = f"mqtt://127.0.0.1:{self.mqtt_port}"
        wait_for(lambda: "Ready" in self.log("up") or self.ended("up"), what="strawberry up")

    def start_broker(self) -> None:
        """Start the embedded broker alone."""
        self.start("broker", "broker", "run", "--mqtt-port", str(self.mqtt_port), *self._debug)
        self.broker_url = f"mqtt://127.0.0.1:{self.mqtt_port}"
        wait_for(lambda: running_broker(Home(self.home)) or self.ended("broker"), what="the broker")

    def start_hub(self) -> None:
        """Start the hub and wait until it serves with its broker."""
        self.begin_hub()
        wait_for(lambda: self.healthy() or self.ended("hub"), what="the hub")

    def begin_hub(self) -> None:
        """Start the hub and go on at once."""
        address = ("--broker", self.broker_url, "--http-port", str(self.http_port))
        self.start("hub", "hub", *address, *self.hub_flags, *self._debug)

    def healthy(self) -> bool:
        """Whether the hub answers and has its broker."""
        if not _listens(self.http_port):
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/api/health", timeout=PATIENCE_S) as response:
                return bool(json.load(response)["broker"]["connected"])
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except (OSError, urllib.error.URLError, ValueError):
            return False

    def get(self, path: str) -> Any:
        """What the hub answers to anybody."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=PATIENCE_S) as response:
            return json.load(response)

    @property
    def client(self) -> HubClient:
        """The owner's."""
        return HubClient(self.url, token=Home(self.home).token_file.read_text().strip())

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """What the hub answers to the owner of the house."""
        method = "GET" if body is None else "POST"
        return self.client.request(method, path, body, timeout=2 * PATIENCE_S)

    def add_spoke(
        self,
        name: str,
        skills: Mapping[str, str],
        *,
        samples: bool = False,
        settings: str = "",
        trusted: bool = True,
    ) -> Spoke:
        """Add a device, start its spoke with these skill files and wait until it is there.

        Args:
            settings: Its ``strawberry.toml``.
            trusted: Whether what its skills declare needs no approval.
        """
        added = self.json("devices", "add", name, *(["--trust-skills"] if trusted else []))
        home = self.directory / added["id"]
        folder = home / "skills"
        for file, source in skills.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(source)
        folder.mkdir(parents=True, exist_ok=True)
        if settings:
            (home / "strawberry.toml").write_text(settings)
        spoke = Spoke(added["id"], name, home=home, skills=folder, token=added["token"], hub=self.url)
        self.start_spoke(spoke, samples=samples)
        self.wait_until_online(spoke)
        return spoke

    def start_spoke(self, spoke: Spoke, *, samples: bool = False) -> None:
        """Start, or start again, a spoke's process."""
        flags = ["--samples"] if samples else []
        self.start(
            spoke.id,
            *("spoke", "run", "--hub", spoke.hub, "--skills", str(spoke.skills), *self._debug, *flags),
            home=spoke.home,
            HUB_DEVICE_TOKEN=spoke.token,
        )

    def wait_until_online(self, spoke: Spoke) -> None:
        """Wait until the hub knows the spoke as being there, with its skills."""
        wait_for(
            lambda: self._is_complete(spoke) or self.ended(spoke.id),
            what=f"{spoke.name} to be online",
        )

    def state_of(self, spoke: Spoke) -> str:
        """What the hub says of a spoke."""
        return str(self._row(spoke)["state"])

    def wait_until_offline(self, spoke: Spoke) -> None:
        """Wait until the hub knows that a spoke has gone: what is online after that has come anew."""
        wait_for(lambda: self.state_of(spoke) == "offline", what=f"{spoke.name} to be offline")

    def _is_complete(self, spoke: Spoke) -> bool:
        row = self._row(spoke)
        return row["state"] == "online" and not row["awaited"]

    def _row(self, spoke: Spoke) -> dict[str, Any]:
        return next(row for row in self.ask("/api/devices") if row["id"] == spoke.id)

    def ended(self, name: str) -> bool:
        """Fail with its output if a process that should run has ended."""
        code = self.processes[name].poll()
        if code is not None:
            raise AssertionError(f"{name} ended with code {code}:\n{self.log(name)[-4000:]}")
        return False

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process."""
        self.processes[name].send_signal(number)

    def turn_state(self, message: str) -> str:
        """What the hub's database says of the last turn of a message; empty while it has not taken it."""
        found = rows(self.database, "SELECT state FROM turn WHERE question = ? ORDER BY at DESC", message)
        return str(found[0][0]) if found else ""

    def kill(self, name: str) -> None:
        """End a process the hard way; those that ``up`` started end by themselves, which is waited for."""
        process = self.processes.pop(name)
        runs_all = name == "up" and process.poll() is None
        children = psutil.Process(process.pid).children(recursive=True) if runs_all else []
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(runs, children)), what=f"the children of {name} to end")

    # -- the command line -------------------------------------------------------------------------

    def cli(self, *arguments: str, given: str = "", **extra: str) -> "subprocess.CompletedProcess[str]":
        """Run a ``strawberry`` command to its end."""
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment(self.home, extra),
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=self.directory,
        )

    def programs(self) -> Path:
        """Make the directory in which a shell finds ``strawberry``."""
        directory = self.directory / "bin"
        directory.mkdir()
        shim = directory / "strawberry"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m deploy.cli.main "$@"\n')
        shim.chmod(0o755)
        return directory

    def json(self, *arguments: str) -> Any:
        """Run a command with ``--json`` that must succeed, and give its result."""
        done = self.cli(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a ``strawberry`` command and go on at once."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.environment(self.home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
        )
        self.begun.append(process)
        return process


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
