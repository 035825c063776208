"""Programs that a spoke supervises, as real processes."""

import asyncio
import os
import shutil
import sys
from ast import literal_eval
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from agent_core.skills.skill import SkillContext, attach
from contracts.errors import CallError
from spoke.nodes.node import NodeStatus
from spoke.nodes.processes import TOO_FAST
from spoke.nodes.skill import NodesSkill
from spoke.nodes.supervision import Nodes, open_nodes
from tests.hub_registry.spokes import eventually
from tests.spoke.samples.conftest import RecordingSink

PYTHON = sys.executable

SLEEPS = "import sys, time; print('ready', flush=True); time.sleep(600)"
# It starts another program that detaches itself and ignores the polite way.
DETACHES = (
    "import subprocess, sys, time;"
    "code = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)';"
    "child = subprocess.Popen([sys.executable, '-c', code], start_new_session=True);"
    "print(child.pid, flush=True); time.sleep(600)"
)


def add_node(home: Path, name: str, *, code: str = SLEEPS, **settings: object) -> Path:
    folder = home / "nodes" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.py").write_text(code)
    lines = [f"{key}: {value}" for key, value in {"stop_s": 1, **settings}.items()]
    (folder / "node.yaml").write_text("\n".join([f"command: ['{PYTHON}', program.py]", *lines]))
    return folder


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    add_node(tmp_path, "camera")
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as opened:
        yield opened


def status(nodes: Nodes, name: str) -> NodeStatus:
    return next(each for each in nodes.all() if each.name == name)


async def test_a_node_is_started_stopped_and_its_output_kept(nodes: Nodes) -> None:
    assert status(nodes, "camera").state == "stopped"
    assert (await nodes.start("camera")).state == "running"
    pid = status(nodes, "camera").pid
    assert psutil.pid_exists(pid)
    await eventually(lambda: nodes.log("camera", 10) == ["ready"])
    assert (await nodes.start("camera")).pid == pid, "one that runs goes on"
    assert (await nodes.restart("camera")).pid != pid
    assert (await nodes.stop("camera")).state == "stopped"
    assert not psutil.pid_exists(pid)


async def test_who_starts_and_stops_a_node_at_once_ends_nothing_of_the_other(nodes: Nodes) -> None:
    first, again = await asyncio.gather(nodes.start("camera"), nodes.start("camera"))
    assert first.pid == again.pid
    _, third = await asyncio.gather(nodes.stop("camera"), nodes.start("camera"))
    # One that is not waited for to its end ends the node all the same.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await nodes.stop("camera")
    fourth = await nodes.start("camera")
    assert len({first.pid, third.pid, fourth.pid}) == 3
    assert status(nodes, "camera") == fourth


async def test_what_a_node_started_ends_with_it_however_it_detached_itself(tmp_path: Path) -> None:
    add_node(tmp_path, "camera", code=DETACHES)
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        await nodes.start("camera")
        await eventually(lambda: nodes.log("camera", 1))
        child = psutil.Process(int(nodes.log("camera", 1)[0]))
        assert child.is_running()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


async def test_nodes_that_ran_run_again_with_the_spoke(tmp_path: Path) -> None:
    add_node(tmp_path, "camera")
    add_node(tmp_path, "radio")
    for _ in range(2):
        async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
            await nodes.start("camera")
            pid = status(nodes, "camera").pid
        assert not psutil.pid_exists(pid)
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        await eventually(lambda: status(nodes, "camera").state == "running")
        assert status(nodes, "radio").state == "stopped"


async def test_a_node_that_ends_is_started_again_later_and_later_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spoke.limits.NODE_RESTART_S", (0.01, 0.02))
    told: list[NodeStatus] = []
    add_node(tmp_path, "camera", code="raise SystemExit(3)")
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        nodes.tell = told.append
        await nodes.start("camera")
        await eventually(lambda: any("for the 5th time in a row" in each.reason for each in told))
        assert "ended with code 3" in status(nodes, "camera").reason
        assert status(nodes, "camera").restarts >= 4


@pytest.mark.parametrize(
    ("settings", "code", "state"),
    [
        ({"restart": "never"}, "raise SystemExit(3)", "failed"),
        ({"restart": "on-failure"}, "pass", "stopped"),
        (
            {"env": "{LEVEL: 5}", "restart": "never"},
            "import os; assert os.environ['LEVEL'] == '5'",
            "stopped",
        ),
    ],
)
async def test_a_node_is_started_again_only_as_its_settings_say(
    tmp_path: Path, settings: dict[str, object], code: str, state: str
) -> None:
    add_node(tmp_path, "camera", code=code, **settings)
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        await nodes.start("camera")
        await eventually(lambda: status(nodes, "camera").state == state)


async def test_a_node_gets_nothing_secret_of_the_spokes_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "STRAWBERRY_TOKEN", "HUB_DEVICE_TOKEN", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    show = f"['{PYTHON}', -c, 'import os; print(sorted(os.environ)); print(os.environ[\"LANG\"])']"
    add_node(tmp_path, "camera", build=show, env="{LEVEL: 5}")
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        names, language = [line async for line in nodes.build("camera")]
    assert language == "de_DE.UTF-8"
    assert {"PATH", "LEVEL"} <= set(literal_eval(names))
    assert not [name for name in literal_eval(names) if "KEY" in name or "TOKEN" in name or "PROXY" in name]


async def test_a_build_tells_what_it_writes_and_why_it_failed(tmp_path: Path) -> None:
    add_node(tmp_path, "camera", build=f"['{PYTHON}', -c, 'print(1); print(2)']")
    add_node(tmp_path, "radio", build=f"['{PYTHON}', -c, 'print(\"no compiler\"); exit(4)']")
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        assert [line async for line in nodes.build("camera")] == ["1", "2"]
        with pytest.raises(CallError, match="ended with code 4") as failed:
            [line async for line in nodes.build("radio")]
        assert failed.value.hint == "no compiler"


@pytest.mark.slow
async def test_a_node_that_hangs_is_started_again_and_one_that_starts_slowly_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spoke.limits.NODE_RESTART_S", (0.01, 0.1))
    monkeypatch.setattr("spoke.limits.HUNG_CHECKS", 1)
    told: list[NodeStatus] = []
    check = "{command: test -e works, every_s: 1}"
    works = add_node(tmp_path, "camera", health=check, restart="always") / "works"
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        nodes.tell = told.append
        first = (await nodes.start("camera")).pid
        await eventually(lambda: status(nodes, "camera").health == "unhealthy")
        works.touch()
        await eventually(lambda: status(nodes, "camera").health == "healthy")
        assert status(nodes, "camera").pid == first
        works.unlink()
        # On a busy machine a check may fail by itself, and the program be started more than once.
        await eventually(lambda: status(nodes, "camera").restarts and status(nodes, "camera").pid)
        assert not psutil.pid_exists(first)
    said = next(each for each in told if each.state == "waiting")
    assert said.health == "unhealthy"
    assert said.reason.startswith(
        "was ended: its health command failed 1 times in a row; it is started again"
    )


async def test_a_log_is_followed_on_where_it_ended_and_says_what_is_no_longer_kept(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spoke.limits.NODE_LOG_BYTES", 10)
    log = nodes._log_of("camera")
    log.write(b"first\n")
    with monkeypatch.context() as ended_at_once:
        ended_at_once.setattr("spoke.limits.LOG_FOLLOWED_S", 0.0)
        first, ended = [each async for each in nodes.follow("camera", 1)]
    assert first == "first"
    assert isinstance(ended, dict)
    for line in (b"second\n", b"third\n"):
        log.write(line)
    async with aclosing(nodes.follow("camera", 1, after=ended["position"])) as lines:
        assert [await anext(lines) for _ in range(2)] == ["second", "third"]
        log.write(b"fourth of more than ten\n")
        log.write(b"fifth of more than ten\n")
        log.write(b"sixth\n")
        assert [await anext(lines) for _ in range(4)] == ["", TOO_FAST, "fifth of more than ten", "sixth"]


async def test_a_followed_log_has_a_rate_and_says_that_lines_are_missing(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spoke.limits.LOG_LINES_PER_SECOND", 2)
    log = nodes._log_of("camera")
    log.write(b"first\n")
    async with aclosing(nodes.follow("camera", 1)) as lines:
        read = [await anext(lines)]
        log.write(b"line\n" * 100)
        while TOO_FAST not in read:
            read.append(await anext(lines))
    assert read[:2] == ["first", "line"]
    assert len(read) < 100


async def test_a_log_is_followed_as_it_is_written(tmp_path: Path) -> None:
    echo = "import sys\nprint('ready', flush=True)\nfor line in open('said'): print(line, end='', flush=True)"
    folder = add_node(tmp_path, "camera", code=echo)
    os.mkfifo(folder / "said")
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        await nodes.start("camera")
        await eventually(lambda: nodes.log("camera", 10) == ["ready"])
        async with aclosing(nodes.follow("camera", 10)) as lines:
            assert await anext(lines) == "ready"
            with (folder / "said").open("w") as said:
                print("one\ntwo", file=said)
            # Written before the next line is asked for, it must come all the same.
            await eventually(lambda: nodes.log("camera", 1) == ["two"])
            assert [await anext(lines), await anext(lines)] == ["one", "two"]


async def test_a_protected_node_and_strawberry_itself_are_left_alone(tmp_path: Path) -> None:
    add_node(tmp_path, "safety", protected="true")
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        await nodes.start("safety")
        for refused in (nodes.stop("safety"), nodes.restart("safety"), nodes.stop("strawberry-spoke")):
            with pytest.raises(CallError, match=r"is protected|Strawberry itself"):
                await refused
        assert status(nodes, "safety").state == "running"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("comand: [x]", "node.yaml:1: unknown setting 'comand'; did you mean 'command'?"),
        ("command: [x]\nrestart: sometimes", "node.yaml:2: restart must be"),
        ("command: []", "node.yaml:1: command"),
        ("command: false", "node.yaml:1: command: write it as one line"),
        ("a: [", "node.yaml:1: "),
        ("command: [x]\nenv: {'A=B': 1}", "node.yaml:2: env.A=B"),
        ('command: ["x", "\\0"]', "node.yaml:1: command[1]"),
    ],
)
async def test_a_broken_description_is_named_with_its_line_and_the_others_run(
    tmp_path: Path, text: str, says: str
) -> None:
    add_node(tmp_path, "camera")
    (tmp_path / "nodes" / "radio").mkdir()
    (tmp_path / "nodes" / "radio" / "node.yaml").write_text(text)
    async with open_nodes(tmp_path / "nodes", data=tmp_path / "data") as nodes:
        assert says in status(nodes, "radio").reason
        with pytest.raises(CallError, match=r"node\.yaml"):
            await nodes.start("radio")
        assert (await nodes.start("camera")).state == "running"


async def test_what_runs_can_be_stopped_while_its_description_is_broken(nodes: Nodes, tmp_path: Path) -> None:
    await nodes.start("camera")
    (tmp_path / "nodes" / "camera" / "node.yaml").write_text("a: [")
    with pytest.raises(CallError, match=r"node\.yaml"):
        await nodes.restart("camera")
    assert status(nodes, "camera").state == "running"
    assert (await nodes.stop("camera")).state == "broken"


async def test_an_unknown_node_or_program_is_an_error_with_what_to_do(nodes: Nodes, tmp_path: Path) -> None:
    with pytest.raises(CallError, match="no node 'camra'") as unknown:
        await nodes.start("camra")
    assert "camera" in unknown.value.hint
    (tmp_path / "nodes" / "camera" / "node.yaml").write_text("command: no-such-program --now")
    with pytest.raises(CallError, match="cannot be started: No such file"):
        await nodes.start("camera")


async def test_what_is_published_of_a_node_goes_with_its_folder_and_its_health_with_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spoke.limits.FOLDER_LOOK_S", 0.05)
    add_node(tmp_path, "camera", health="{command: 'true', every_s: 1}")
    add_node(tmp_path, "c++")  # no name that can stand in a topic
    gone = [add_node(tmp_path, name) for name in ("radio", "tv")]
    sink = RecordingSink()
    states = sink.states

    async def open_skill() -> NodesSkill:
        skill = NodesSkill(tmp_path / "nodes")
        attach(skill, SkillContext(data_dir=tmp_path / "data", sink=sink))
        await skill.setup()
        return skill

    skill = await open_skill()
    await skill.start_node("camera")
    await eventually(lambda: states.get("NodesSkill/camera.health") == "healthy")
    await skill.stop_node("camera")
    assert states == {f"NodesSkill/{name}": "stopped" for name in ("camera", "radio", "tv")}
    shutil.rmtree(gone[0])
    await eventually(lambda: "NodesSkill/radio" not in states)
    add_node(tmp_path, "lamp")
    await eventually(lambda: states.get("NodesSkill/lamp") == "stopped")
    await skill.close()
    shutil.rmtree(gone[1])
    states["NodesSkill/camera.health"] = "healthy"  # of a spoke that was killed
    await (await open_skill()).close()
    assert states == {"NodesSkill/camera": "stopped", "NodesSkill/lamp": "stopped"}
