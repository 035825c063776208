"""A server that forks a process with the product imported, for each test worker and ``strawberry`` command.

Importing the product and what tests it takes seconds of processor time, and the tests start hundreds of
commands. `install` makes ``subprocess`` (and asyncio, which uses it) fork them: the workers of pytest-xdist
from one server, and their commands from a copy of it that each worker keeps. A forked command differs from a
new interpreter in ``/proc/…/cmdline``, in the memory it shares, and in what it has imported and computed
already; a forked hub keeps no spare sandbox process. A test about one of these starts `SCRIPT`, which is
never forked.
"""

import asyncio
import atexit
import ctypes
import functools
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, cast

from execnet.gateway_io import popen_bootstrapline

MODULE: Final = "deploy.cli.main"
COMMAND: Final = [sys.executable, "-m", MODULE]
OBSERVED: Final = [sys.executable, "-m", "tests.chaos.observed"]
"""The command as a process that can be looked into."""
WATCHED: Final = [sys.executable, "-m", "tests.adversary.watched"]
"""The command with its event loops watched."""
WORKER: Final = [sys.executable, "-u", "-c", popen_bootstrapline]
"""A worker of pytest-xdist."""
SCRIPT: Final = [str(Path(sys.executable).with_name("strawberry"))]

_ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = ("deploy", "hub_agent", "spoke")
_LAZY: Final = (
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "sqlalchemy.dialects.sqlite",
    "ollama",
    # What only tests use.
    "hypothesis.strategies",
    "mcp.client",
    "numpy",
    "openai",
    "pytest",
)
_PR_SET_CHILD_SUBREAPER: Final = 36
_READY: Final = b"ready"
_MAX_ORDER_BYTES: Final = 100_000
# The interpreter reads these once, at its start: a command with others than ours gets a new interpreter.
_READ_AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
_FOLLOWED: Final = ("PYTHONPATH", "PYTHONUNBUFFERED")


# A thread of a test may have gone to a network of its own, where a new process would be, too.
_NETWORK: Final = Path("/proc/thread-self/ns/net")
_OWN_NETWORK: Final = _NETWORK.stat().st_ino if _NETWORK.exists() else 0


def install() -> None:
    """Fork the workers and commands that this process starts; without Linux, leave them as they are."""
    if sys.platform == "linux" and inspect.getmodule(subprocess.Popen._execute_child) is subprocess:  # type: ignore[attr-defined]
        _install(_Client())


def _install(client: "_Client") -> None:
    start: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    signature = inspect.signature(start)

    def execute_child(self: Any, *positional: Any, **named: Any) -> None:
        options = signature.bind(self, *positional, **named).arguments
        if _can_fork(options):
            self.pid = client.fork(options)
            self._child_created = True
            self._close_pipe_fds(*(options[name] for name in signature.parameters if name in _PIPES))
        else:
            start(self, *positional, **named)

    subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


_STREAMS: Final = ("p2cread", "c2pwrite", "errwrite")
_PIPES: Final = (*_STREAMS, "p2cwrite", "c2pread", "errread")


def _can_fork(options: Mapping[str, Any]) -> bool:
    """Whether these are the arguments of a worker or of a plain ``strawberry`` command."""
    args = options["args"]
    if not isinstance(args, list | tuple):
        return False
    if args != WORKER and _plain(args)[: len(COMMAND)] not in (COMMAND, OBSERVED, WATCHED):
        return False
    special = ("preexec_fn", "pass_fds", "shell", "gid", "gids", "uid")
    if any(options[name] not in (None, (), False) for name in special):
        return False
    if _NETWORK.stat().st_ino != _OWN_NETWORK:
        return False
    return options["env"] is None or _read_at_start(options["env"]) == _read_at_start(os.environ)


def _plain(args: Sequence[Any]) -> list[Any]:
    """Return the words of a command without the option that keeps the current directory off the path."""
    return [word for at, word in enumerate(args) if (at, word) != (1, "-P")]


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(_READ_AT_START) and k not in _FOLLOWED}


class _Client:
    """The end of what starts processes; it starts the server at the first of them, and ends it with itself.

    Args:
        server: The connection to one that runs.
    """

    def __init__(self, server: socket.socket | None = None) -> None:
        self._lock = threading.Lock()
        self._socket = server

    def fork(self, options: Mapping[str, Any]) -> int:
        """Start a command and return its process id."""
        args = _plain(options["args"])
        order = {
            "module": args[2],
            "words": [os.fspath(word) for word in args[len(COMMAND) :]],
            "environment": dict(os.environ if options["env"] is None else options["env"]),
            "directory": str(Path(options["cwd"] or ".").resolve(strict=True)),
            "new_session": options["start_new_session"],
            "group": options["process_group"],
        }
        streams = [own if options[name] == -1 else options[name] for own, name in enumerate(_STREAMS)]
        with self._lock:
            if self._socket is None:
                self._socket = self._start()
            with _adopting():
                socket.send_fds(self._socket, [json.dumps(order).encode()], streams)
                return int(self._socket.recv(32))

    @staticmethod
    def _start() -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-c", f"from tests.forkserver import main; main({theirs.fileno()})"]
            server = subprocess.Popen(words, cwd=_ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

        if ours.recv(len(_READY)) != _READY:
            raise RuntimeError(f"the product cannot be imported (code {server.wait()}): try 'make setup'")

        @atexit.register
        def stop() -> None:
            ours.close()
            server.wait()

        return ours


@contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of what is orphaned below, so that `subprocess` can wait for a forked command.

    Only as long as the block lasts: other orphans of a test belong to the system, which reaps them.
    """
    set_option = ctypes.CDLL(None).prctl
    assert set_option(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        set_option(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


# -- in the server ------------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Serve the client at the other end of a socket until it has gone."""
    with socket.socket(fileno=descriptor) as client:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _import_product()
        client.send(_READY)
        forked = _serve(client)
    if forked is not None:
        _run(*forked)


def _import_product() -> None:
    from hub_web.loading import load_server

    for package in _PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            # It is run as ``__main__``.
            if module.name != MODULE:
                with _without_extras():
                    importlib.import_module(module.name)
    for name in _LAZY:
        importlib.import_module(name)
    load_server()
    _keep()


@contextmanager
def _without_extras() -> Iterator[None]:
    """Leave out a module whose extra is not installed, as `make test` does without speech and the desktop."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or (_ROOT / error.name.partition(".")[0]).is_dir():
            raise


def _keep() -> None:
    """Let what is there now stay, so that the collector of a child neither walks nor copies it."""
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()


@functools.cache
def _warm_up() -> None:
    """Do once what is as good for all commands."""
    from deploy import limits
    from hub_agent.settings import HubSettings, SandboxSettings
    from tests import reused
    from tests.hub_agent.home import open_home

    # A hub starts a sandbox process ahead: half a second of processor time, for few tests.
    HubSettings.model_fields["sandbox"].default = SandboxSettings(spares=0)
    HubSettings.model_rebuild(force=True)
    # On a busy machine, `up` would say that it is ready before its spoke is there.
    vars(limits).update(SPOKE_FIRST_S=120.0, SKILLS_COMPLETE_S=120.0)
    reused.install()

    async def open_once() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with open_home(Path(directory)):
                pass

    # What the first hub of a process computes, those that are forked have already.
    asyncio.run(open_once())
    _keep()


def _serve(client: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each order; return it in the child, and None in the server when the worker has gone."""
    while True:
        data, streams, _, _ = socket.recv_fds(client, _MAX_ORDER_BYTES, len(_STREAMS))
        if not data:
            return None
        order = json.loads(data)
        if order["module"] != "-c":
            _warm_up()
        read, write = os.pipe()
        between = os.fork()
        if between == 0:
            # An orphan, so that the worker adopts it.
            if os.fork():
                os._exit(0)
            if order["new_session"]:
                os.setsid()
            elif order["group"] not in (None, -1):
                os.setpgid(0, order["group"])
            os.write(write, str(os.getpid()).encode())
            os.close(read)
            os.close(write)
            return order, streams
        os.close(write)
        os.waitpid(between, 0)
        client.send(os.read(read, 32))
        for descriptor in (read, *streams):
            os.close(descriptor)


def _fork_server() -> socket.socket:
    """Keep a copy of this process, from which the children of the command are forked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        return ours
    ours.close()
    with Path(os.devnull).open("r+b") as nothing:
        for own in range(len(_STREAMS)):
            os.dup2(nothing.fileno(), own)
    with theirs:
        forked = _serve(theirs)
    if forked is None:
        os._exit(0)
    _run(*forked)
    sys.exit()


def _run(order: dict[str, Any], streams: list[int]) -> None:
    """Become the command as a new interpreter would be it."""
    for own, given in enumerate(streams):
        os.dup2(given, own)
        os.close(given)
    if order["module"] == "-c" or order["words"][:1] == ["up"]:
        _install(_Client(_fork_server()))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    _open_streams(unbuffered="PYTHONUNBUFFERED" in os.environ)
    sys.argv[1:] = order["words"]
    sys.path[:1] = [order["directory"], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    try:
        if order["module"] == "-c":
            exec(order["words"][0], vars(sys.modules["__main__"]))
            _leave(0)
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _leave(ended.code)
        raise


def _leave(code: int) -> None:
    """End as the interpreter does, but let the system free the memory.

    To free each object means to copy the pages of all that the server has imported: two thirds of the
    processor time of a short command.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _open_streams(*, unbuffered: bool) -> None:
    streams: dict[str, TextIO] = {"stdin": io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))}
    for own, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = io.FileIO(own, "w", closefd=False)
        streams[name] = io.TextIOWrapper(
            cast("BinaryIO", raw) if unbuffered else io.BufferedWriter(raw),
            errors=errors,
            line_buffering=own == 2 or raw.isatty(),
            write_through=unbuffered,
        )
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
