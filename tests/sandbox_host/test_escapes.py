"""Programs that try to get out, or to do harm: each for real, none with success.

Every test ends with another run in the same session, which has to work.
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_host import Deadline, PoolSettings, RunLimits, RunResult, RunStatus, Session, open_pool
from tests.sandbox_host.house import House, deadline_from
from tests.sandbox_host.processes import sandbox_processes

pytestmark = pytest.mark.slow

ATTEMPT = """
def attempt(what):
    try:
        return ["got", repr(what())[:200]]
    except BaseException as error:
        return ["refused", type(error).__name__]
"""


@asynccontextmanager
async def open_session(settings: PoolSettings, house: House) -> AsyncIterator[Session]:
    """Give a session, and see afterwards that its next program runs."""
    async with open_pool(settings) as pool:
        session = await pool.session("attacker")
        yield session
        after = await session.run("devices.pc.EchoSkill.echo(1)", house)
        assert after.value == [[1], {}]


@contextmanager
def listener() -> Iterator[tuple[int, list[object]]]:
    """Listen on a port of this machine; give it, and who connected."""
    visitors: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                connection.close()
                visitors.append(address)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1], visitors
        finally:
            # Closing alone does not wake a thread that is in accept.
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


async def attempts(session: Session, house: House, setup: str, tries: list[str]) -> dict[str, list[str]]:
    """Evaluate expressions in the sandbox; give for each whether it got something."""
    listed = ", ".join(f"({text!r}, attempt(lambda: {text}))" for text in tries)
    result = await session.run(f"{ATTEMPT}\n{setup}\ndict([{listed}])", house)
    assert result.ok, result
    return dict(result.value)


def list_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def all_refused(outcomes: dict[str, list[str]]) -> bool:
    """Whether no attempt got anything."""
    got = {attempt: outcome for attempt, outcome in outcomes.items() if outcome[0] != "refused"}
    assert got == {}
    return True


async def test_files_of_the_host_cannot_be_read_or_written(
    settings: PoolSettings, house: House, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("42")
    image = next(settings.directory.glob("*/image.bin"))
    tries = [
        f"open({str(secret)!r}).read()",
        "open('/etc/passwd').read()",
        "open('/proc/self/environ').read()",
        f"open({str(image)!r}, 'rb').read(10)",
        f"open({str(tmp_path / 'new.txt')!r}, 'w')",
        f"os.listdir({str(tmp_path)!r})",
        f"os.open({str(secret)!r}, os.O_RDONLY)",
        f"os.symlink({str(secret)!r}, '/tmp/link') or open('/tmp/link').read()",
        "os.stat('/etc/hostname')",
        "os.chroot('/')",
    ]
    async with open_session(settings, house) as session:
        assert all_refused(await attempts(session, house, "import os", tries))
        # What it writes stays in its own memory.
        assert (await session.run("open('/tmp/strawberry-own-file', 'w').write('x')", house)).ok
    assert list_of(tmp_path) == ["secret.txt"]
    assert "strawberry-own-file" not in list_of(Path("/tmp"))


async def test_file_systems_of_the_host_cannot_be_mounted(settings: PoolSettings, house: House) -> None:
    setup = """
import gc, sys
from pyodide.ffi import JsProxy
proxies = [thing for thing in gc.get_objects() if isinstance(thing, JsProxy)]
for module in list(sys.modules.values()):
    proxies += [thing for thing in vars(module).values() if isinstance(thing, JsProxy)]
def mount():
    for proxy in proxies:
        for name in ("mountNodeFS", "public_api", "FS", "fs", "Module", "_module", "NODEFS"):
            found = getattr(proxy, name, None)
            if name == "mountNodeFS" and found is not None:
                found("/host", "/")
            if name == "public_api" and found is not None:
                found.mountNodeFS("/host", "/")
    return open("/host/etc/passwd").read()
"""
    async with open_session(settings, house) as session:
        assert all_refused(await attempts(session, house, setup, ["mount()"]))


async def test_the_environment_of_the_host_is_not_there(
    settings: PoolSettings, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_DEVICE_TOKEN", "very-secret")
    async with open_session(settings, house) as session:
        result = await session.run("import os\n[dict(os.environ), os.getenv('HUB_DEVICE_TOKEN')]", house)
        assert result.value == [{}, None]
        (process,) = sandbox_processes()
        assert set(process.environ()) <= {"DENO_DIR", "DENO_NO_UPDATE_CHECK", "NO_COLOR", "SYSTEMROOT"}
        assert "very-secret" not in str(process.cmdline())


async def test_the_network_cannot_be_reached(settings: PoolSettings, house: House) -> None:
    setup = """
import socket, urllib.request, pyodide.http
def connect(port):
    with socket.socket() as plain:
        plain.connect(("127.0.0.1", port))
        plain.send(b"x")
"""
    with listener() as (port, visitors):
        tries = [
            f"connect({port})",
            f"socket.create_connection(('127.0.0.1', {port}))",
            f"urllib.request.urlopen('http://127.0.0.1:{port}')",
            f"pyodide.http.open_url('http://127.0.0.1:{port}')",
        ]
        async with open_session(settings, house) as session:
            assert all_refused(await attempts(session, house, setup, tries))
            fetched = await session.run(f"await pyodide.http.pyfetch('http://127.0.0.1:{port}')", house)
            assert fetched.status is RunStatus.ERROR
            opened = await session.run(f"await asyncio.open_connection('127.0.0.1', {port})", house)
            assert opened.status is RunStatus.ERROR
            # Trying to listen is more than the interpreter can bear.
            served = await session.run("socket.create_server(('127.0.0.1', 0))", house)
            assert served.status is RunStatus.CRASHED
        assert visitors == []


async def test_no_process_can_be_started_or_signalled(
    settings: PoolSettings, house: House, tmp_path: Path
) -> None:
    own, mark = os.getpid(), tmp_path / "mark"
    tries = [
        "subprocess.run(['true'])",
        "os.popen('true').read()",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        f"os.kill({own}, 0)",
        f"os.kill({own}, 9)",
        f"open('/proc/{own}/cmdline').read()",
        "__import__('multiprocessing').Process(target=print).start()",
        "__import__('threading').Thread(target=print).start()",
    ]
    async with open_session(settings, house) as session:
        await session.run("1", house)
        assert all_refused(await attempts(session, house, "import os, subprocess", tries))
        assert [process.children() for process in sandbox_processes()] == [[]]
        shell = await session.run(f"os.system('touch {mark}')", house)
        assert shell.status is RunStatus.CRASHED
        assert list_of(tmp_path) == []


async def test_packages_and_native_code_cannot_be_brought_in(settings: PoolSettings, house: House) -> None:
    tries = [
        "__import__('micropip')",
        "__import__('pyodide_js').loadPackage('numpy')",
        "ctypes.CDLL('/lib/x86_64-linux-gnu/libc.so.6')",
        "ctypes.CDLL('libc.so.6').system(b'true')",
    ]
    async with open_session(settings, house) as session:
        assert all_refused(await attempts(session, house, "import ctypes", tries))


async def test_the_javascript_realm_cannot_be_reached(settings: PoolSettings, house: House) -> None:
    setup = """
import sys
from pyodide.ffi import to_js, create_proxy
import pyodide.code, _pyodide._importhook
import strawberry_guest
send = strawberry_guest._bridge.send
Function = send.constructor
array = to_js([1])
"""
    tries = [
        "__import__('js').Deno",
        "__import__('pyodide_js').globals",
        "sys.modules['js']",
        "sys.modules['pyodide_js._api']",
        "pyodide.code.run_js('1')",
        "Function('return globalThis')()",
        "Function.new('return globalThis')()",
        "array.constructor.constructor('return Deno')()",
        "(lambda f: f())(Function.prototype.constructor('return this'))",
        "array.constructor('1').at.constructor('return process')()",
        "send.valueOf.call(None).Deno.exit",
        "array.values.call(None)",
    ]
    async with open_session(settings, house) as session:
        assert all_refused(await attempts(session, house, setup, tries))


FORGERIES = {
    "no JSON": "send('hello')",
    "not an object": "send('[1, 2]')",
    "an unknown type": """send('{"type": "install", "path": "x"}')""",
    "a field too many": """send(json.dumps(call | {"actor": "admin"}))""",
    "a field too few": """send('{"type": "call", "id": 1}')""",
    "a wrong type": """send(json.dumps(call | {"id": "1"}))""",
    "a negative id": """send(json.dumps(call | {"id": -1}))""",
    "an id twice": """send(json.dumps(call)); send(json.dumps(call))""",
    "ready again": """send('{"type": "ready"}')""",
    "not a number": """send('{"type": "done", "left_over": NaN}')""",
    "very deep": """send('[' * 100_000)""",
    "two objects": """send('{"type": "ready"}\\n{"type": "ready"}')""",
    "a huge line": """send('{"type": "' + 'x' * 8_000_000 + '"}')""",
    "more output than allowed": """send(json.dumps({"type": "output", "run": run, "text": "x" * 70_000,
                                                     "cut": False}))""",
    "a huge report": """send(json.dumps({"type": "done", "run": run, "status": "ok", "value": None,
                                         "cut": False, "repr": "x" * 1_000_000, "traceback": "",
                                         "left_over": 0}))""",
    "huge arguments": """send(json.dumps(call | {"given": json.dumps([["x" * 300_000], {}])}))""",
    "a flood of another run's calls": """[send(json.dumps(call | {"run": "0" * 16})) for _ in range(100)]""",
    "a flood of calls": """[send(json.dumps(call | {"id": n})) for n in range(1, 100_000)]""",
}


async def test_forged_lines_stop_the_run_and_the_process(settings: PoolSettings, house: House) -> None:
    setup = """
import json, strawberry_guest
send, run = strawberry_guest._bridge.send, strawberry_guest._run.get()
call = {"type": "call", "run": run, "id": 1000, "path": "devices.pc.EchoSkill.echo", "given": "[[], {}]"}
"""
    async with open_session(replace(settings, spares=1), house) as session:
        for name, forgery in FORGERIES.items():
            result = await session.run(f"{setup}{forgery}\nawait asyncio.sleep(30)", house)
            assert result.status is RunStatus.ABUSE, (name, result)
            after = await session.run("'send' in globals()", house)
            assert (after.value, after.fresh) == (False, True), name
            assert after.lost == "the last run broke the rules of the bridge"


async def test_a_forged_report_ends_the_run_and_no_call_is_made_after_it(
    settings: PoolSettings, house: House
) -> None:
    program = """
import json, strawberry_guest
send, run = strawberry_guest._bridge.send, strawberry_guest._run.get()
send(json.dumps({"type": "done", "run": run, "status": "ok", "value": "1", "cut": False, "repr": "1",
                 "traceback": "", "left_over": 0}))
for number in range(1000):
    send(json.dumps({"type": "call", "run": run, "id": 1000 + number,
                     "path": "devices.pc.EchoSkill.echo", "given": "[[], {}]"}))
    await asyncio.sleep(0.001)
"""
    async with open_pool(settings) as pool:
        session = await pool.session("attacker")
        await session.run(program, house)
        async with asyncio.timeout(60):
            while session.resting and sandbox_processes():  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.02)
        assert house.calls == []
        after = await session.run("'send' in globals()", house)
    assert (after.value, after.fresh) == (False, True)


async def test_calls_of_an_earlier_run_are_refused_in_the_next_one(
    settings: PoolSettings, house: House
) -> None:
    leave = """
import json, strawberry_guest
old = strawberry_guest._run.get()
"""
    forge = """
strawberry_guest._bridge.send(json.dumps({"type": "call", "run": old, "id": 500,
    "path": "devices.pc.EchoSkill.echo", "given": "[[], {}]"}))
await asyncio.sleep(0.1)
"""
    async with open_session(settings, house) as session:
        await session.run(leave, house)
        assert (await session.run(forge, house)).ok
        assert house.calls == []


async def test_tasks_and_timers_do_not_go_on_calling_after_the_run(
    settings: PoolSettings, house: House
) -> None:
    program = """
async def later():
    while True:
        try:
            await asyncio.sleep(0.02)
            await devices.pc.EchoSkill.echo.aio("late")
        except BaseException:
            pass
task = asyncio.create_task(later())
asyncio.get_event_loop().call_later(0.02, lambda: devices.pc.EchoSkill.echo("late"))
"""
    async with open_pool(settings) as pool:
        session = await pool.session("attacker")
        assert (await session.run(program, house)).ok
        until_then = len(house.calls)
        await asyncio.sleep(0.3)
        assert len(house.calls) == until_then
        after = await session.run("devices.pc.EchoSkill.echo('now')", house)
    assert after.value == [["now"], {}]
    assert after.lost == "tasks of the last run could not be stopped"


async def test_paths_outside_the_allow_list_reach_only_the_handler_which_refuses(
    settings: PoolSettings, house: House
) -> None:
    program = """
import json, strawberry_guest
answers = []
for path in ("devices.other.LockSkill.unlock", "devices.pc.EchoSkill._private", "os.system", "__class__.x.y"):
    try:
        strawberry_guest.Path(path)("rm -rf /")
    except SkillError as error:
        answers.append(error.code)
answers
"""
    async with open_session(settings, house) as session:
        result = await session.run(program, house)
        assert result.value == ["unknown_skill"] * 4
        assert set(house.paths) == {"devices.other.LockSkill.unlock", "os.system"}


async def test_nothing_stays_from_one_process_to_the_next(settings: PoolSettings, house: House) -> None:
    leave = """
import builtins, os, sys, pathlib
builtins.planted = sys.planted = 1
os.environ["PLANTED"] = "1"
for place in ("/tmp/planted", "/home/pyodide/planted.py", "/lib/python3.14/site-packages/planted.py"):
    pathlib.Path(place).write_text("value = 1")
"""
    look = """
import builtins, os, sys, pathlib
found = [hasattr(builtins, "planted"), hasattr(sys, "planted"), "PLANTED" in os.environ]
found += [pathlib.Path(p).exists() for p in ("/tmp/planted", "/home/pyodide/planted.py",
                                            "/lib/python3.14/site-packages/planted.py")]
found
"""
    async with open_pool(settings) as pool:
        one, other = await pool.session("one"), await pool.session("other")
        assert (await one.run(leave, house)).ok
        assert (await other.run(look, house)).value == [False] * 6
        await one.run("import os\nos._exit(0)", house)
        assert (await one.run(look, house)).value == [False] * 6


async def test_processes_share_no_cache(settings: PoolSettings, house: House) -> None:
    async with open_pool(settings) as pool:
        for name in ("one", "other"):
            await (await pool.session(name)).run("1", house)
        caches = {process.environ()["DENO_DIR"] for process in sandbox_processes()}
    assert len(caches) == 2
    assert all(Path(cache).parent == settings.directory / "processes" for cache in caches)


BOMBS = {
    "a list": "x = []\nwhile True: x.append('a' * 1_000_000)",
    "one piece": "x = bytearray(2 ** 31 - 100)",
    "a big number": "x = 10 ** 10\nwhile True: x = x * x",
    "buffers outside the interpreter": "from pyodide.ffi import to_js\nx = []\n"
    "while True: x.append(to_js(bytearray(10_000_000)))",
    "files in memory": "x = open('/tmp/x', 'wb')\nwhile True: x.write(b'0' * 10_000_000)",
}


async def test_memory_bombs_end_the_run_and_leave_room_for_the_next(
    settings: PoolSettings, house: House
) -> None:
    async with open_session(replace(settings, spares=1), house) as session:
        for name, bomb in BOMBS.items():
            result = await session.run(bomb, house, deadline=Deadline(4))
            assert result.status in (RunStatus.MEMORY, RunStatus.TIMEOUT, RunStatus.CRASHED), (name, result)
            room = await session.run("len(bytearray(50_000_000))", house)
            assert (room.value, room.fresh) == (50_000_000, True), name


async def test_a_run_ends_at_its_memory_limit_and_leaves_none_of_it_to_the_next(
    settings: PoolSettings, house: House
) -> None:
    async with open_session(settings, house) as session:
        # The interpreter alone has some 200 MB.
        waiting = await session.run("await asyncio.sleep(90)", house, limits=RunLimits(memory_bytes=2**27))
        assert waiting.status is RunStatus.MEMORY
        await session.run("a = 1", house, limits=RunLimits(memory_bytes=1))
        later = await session.run("'a' in globals()", house)
    assert (later.value, later.fresh) == (False, True)


async def test_an_infinite_loop_is_killed_and_what_it_printed_is_kept(
    settings: PoolSettings, house: House
) -> None:
    program = """
print("begun")
device.Clock.start()
while True:
    try:
        while True: pass
    except BaseException:
        pass
"""
    async with open_session(settings, house) as session:
        with deadline_from(house, 0.3) as deadline:
            result = await session.run(program, house, deadline=deadline)
        assert result.status is RunStatus.TIMEOUT
        assert result.stdout == "begun\n"
        assert result.problem == "the run was stopped after 0.3 s"
        assert (await session.run("1", house)).lost == "the last run was stopped at its time limit"


async def test_a_loop_of_awaits_is_killed_too(settings: PoolSettings, house: House) -> None:
    async with open_session(settings, house) as session:
        result = await session.run("while True: await asyncio.sleep(0)", house, deadline=Deadline(0.3))
        assert result.status is RunStatus.TIMEOUT


async def test_a_flood_of_output_is_cut(settings: PoolSettings, house: House) -> None:
    async with open_session(settings, house) as session:
        result = await session.run("for _ in range(20_000): print('x' * 5000)", house)
        assert result.ok
        assert result.truncated
        assert len(result.stdout) < 66_000
        program = "for _ in range(100): print('y' * 1000)\ndevice.Clock.start()\nwhile True: print('y')"
        with deadline_from(house, 0.3) as deadline:
            endless = await session.run(program, house, deadline=deadline)
        assert endless.status is RunStatus.TIMEOUT
        assert endless.truncated
        assert len(endless.stdout) < 66_000


CRASHES = {
    "leaving": "import os\nos._exit(0)",
    "abort": "import os\nos.abort()",
    "recursion without a limit": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
    "deep data": "x = []\nfor _ in range(200_000): x = [x]\nx",
    "deep arguments": "x = []\nfor _ in range(200_000): x = [x]\ndevices.pc.EchoSkill.echo(x)",
    "a wild pointer": "import ctypes\nctypes.memset(0, 255, 50_000_000)",
    "a broken bridge": "import strawberry_guest\nstrawberry_guest._report = None",
}


async def test_what_kills_the_interpreter_is_a_failed_run(settings: PoolSettings, house: House) -> None:
    async with open_session(replace(settings, spares=1), house) as session:
        for name, crash in CRASHES.items():
            result: RunResult = await session.run(crash, house, deadline=Deadline(30))
            assert result.status in (RunStatus.CRASHED, RunStatus.ERROR, RunStatus.MEMORY), (name, result)
            assert (await session.run("40 + 2", house)).value == 42, name


async def test_recursion_within_the_limit_is_an_ordinary_error(settings: PoolSettings, house: House) -> None:
    async with open_session(settings, house) as session:
        result = await session.run("a = 1\ndef f(): f()\nf()", house)
        assert result.status is RunStatus.ERROR
        assert "RecursionError" in result.traceback
        assert (await session.run("a", house)).value == 1


async def test_a_program_that_takes_no_answers_is_stopped(settings: PoolSettings, house: House) -> None:
    house.knows("device.A.big", "x" * 900_000)
    program = """
import json, strawberry_guest
send, run = strawberry_guest._bridge.send, strawberry_guest._run.get()
for number in range(500):
    send(json.dumps({"type": "call", "run": run, "id": 1000 + number, "path": "device.A.big",
                     "given": "[[], {}]"}))
while True: pass
"""
    async with open_session(settings, house) as session:
        result = await session.run(program, house, deadline=Deadline(30))
        assert result.status is RunStatus.ABUSE
        assert "does not take the answers" in result.problem
