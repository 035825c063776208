"""Every command and every snippet in the documents works as it stands there."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import tomllib
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contracts import access, topics
from contracts.access import Principal
from deploy.cli.commands import make_parser
from deploy.directory import Home
from deploy.settings.settings import check_settings
from hub_agent.agents.agent import parse_agent
from spoke.nodes.manifest import read_manifest
from tests.e2e.house import House, wait_for
from tests.requirements import require
from tests.spoke.nodes.test_nodes import add_node

ROOT = Path(__file__).parents[2]
SKILLS_PAGE = ROOT / "spoke" / "samples" / "README.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


VACUUM = """from strawberry_skills import Skill


class VacuumSkill(Skill):
    def dock(self) -> None: ...
"""


def blocks(language: str) -> list[tuple[str, str]]:
    """All fenced blocks of a language, with the name of their document."""
    return [(file.name, block) for file in DOCUMENTS for block in blocks_of(file, language)]


def blocks_of(file: Path, language: str) -> list[str]:
    """The fenced blocks of a language in one document, in order."""
    fence = re.compile(rf"^ *```{language}\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in fence.findall(file.read_text("utf-8"))]


def sessions() -> list[list[str]]:
    """The command lines of each block, in the order of the documents: one may need those before it."""
    found = [*(block for _, block in blocks("console")), *blocks_of(SKILLS_PAGE, "console")]
    lines = [
        [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")] for block in found
    ]
    return [commands for commands in lines if commands]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path) -> Iterator[House]:
    with House(tmp_path_factory.mktemp("documents") / "house", sandbox=sandbox_files, debug=False) as home:
        skills = home.home / "skills"
        skills.mkdir()
        (skills / "coffee.py").write_text(blocks_of(SKILLS_PAGE, "python")[0])
        (skills / "vacuum").mkdir()
        (skills / "vacuum" / "vacuum.py").write_text(VACUUM)
        (skills / "vacuum" / "requirements.txt").touch()
        add_node(home.home, "camera", build=f"['{sys.executable}', -c, 'print(1)']")
        home.start_up()
        wait_for(lambda: home.cli("nodes", "start", "camera").returncode == 0, what="the local spoke")
        wait_for(lambda: home.json("nodes", "logs", "camera")["lines"], what="the output of a node")
        home.programs()
        yield home


@pytest.fixture(scope="module")
def environment(house: House) -> dict[str, str]:
    """What a person has who read docs/mqtt.md: a login, where mosquitto_sub and mosquitto_pub find it."""
    settings = house.directory / "config"
    settings.mkdir()
    login = house.json("broker", "login", "reader_of_mqtt", "--chat")
    for program in ("mosquitto_sub", "mosquitto_pub"):
        (settings / program).write_text(
            f"-h 127.0.0.1\n-p {house.mqtt_port}\n"
            f"-u reader_of_mqtt\n-P {login['password']}\n-I reader_of_mqtt-\n"
        )
    return house.environment(
        house.home,
        {
            "PATH": f"{house.directory / 'bin'}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(settings),
        },
    )


@pytest.mark.slow
@pytest.mark.parametrize("commands", sessions(), ids=lambda commands: commands[0])
def test_the_commands_of_the_documents_succeed(environment: dict[str, str], commands: list[str]) -> None:
    for command in commands:
        _succeeds(environment, command)


def _succeeds(environment: dict[str, str], command: str) -> None:
    if "mosquitto_" in command:
        hint = "mosquitto_sub is not installed: apt-get install mosquitto-clients"
        require(shutil.which("mosquitto_sub") is not None, hint)
        # The login of the page is made by the command before it, in the house of this test by its fixture.
        command = command.replace("hub/chat/node_red/", "hub/chat/reader_of_mqtt/")
        # Who asks before the other listens is not answered there, and a person would ask again.
        again = r"(while sleep 1; do \1; done) & \2; kill $!"
        command = re.sub(r"\(sleep 1; (mosquitto_pub .*?)\) & (.*)", again, command)
    done = subprocess.run(
        ["bash", "-euc", command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    assert done.stdout.strip(), command


@pytest.mark.parametrize(
    "target", sorted({t for _, b in blocks("sh") for t in re.findall(r"^make ([\w-]+)", b, re.MULTILINE)})
)
def test_a_make_target_of_the_documents_exists(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(
    "other", re.findall(r"^([\w-]+):.*\$\(EXTRAS\)", (ROOT / "Makefile").read_text(), re.MULTILINE)
)
def test_two_make_targets_side_by_side_install_once(other: str, tmp_path: Path) -> None:
    words = ["make", "-n", f"VENV={tmp_path}", "test", other]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count(" -e '.[dev") == 1


@pytest.mark.parametrize(("document", "block"), blocks("toml"))
def test_a_settings_snippet_of_the_documents_is_understood(document: str, block: str, tmp_path: Path) -> None:
    (tmp_path / "strawberry.toml").write_text(block)
    check_settings(Home(tmp_path))
    assert tomllib.loads(block), document


@pytest.mark.parametrize("block", [block for _, block in blocks("yaml") if "command:" in block])
def test_a_node_of_the_documents_is_understood(block: str, tmp_path: Path) -> None:
    (tmp_path / "camera").mkdir()
    (tmp_path / "camera" / "node.yaml").write_text(block)
    assert read_manifest(tmp_path / "camera").command


@pytest.mark.parametrize("block", [block for _, block in blocks("yaml") if "prompt:" in block])
def test_a_profile_of_the_documents_is_understood(block: str, tmp_path: Path) -> None:
    assert parse_agent(tmp_path, "documented", block).profile


def test_the_tests_that_a_document_names_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "live.md").read_text("utf-8"))
    assert named
    missing = [
        name for file, name in named if f"def {name}(" not in (ROOT / "tests" / file).read_text("utf-8")
    ]
    assert missing == []


def test_the_code_that_the_security_document_names_exists() -> None:
    named = re.findall(r"`(\w+/[\w/]+(?:\.py)?)`", (ROOT / "docs" / "security.md").read_text("utf-8"))
    assert "hub_live/watchers" in named
    assert [path for path in named if not (ROOT / path).exists()] == []


def _for_a_terminal() -> list[str]:
    """The commands that wait for a person, or go on until they are ended."""
    lines = [line for _, block in blocks("sh") for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith("strawberry ")})


@pytest.fixture(scope="module")
def parser() -> ArgumentParser:
    return make_parser()


@pytest.mark.parametrize("command", _for_a_terminal())
def test_a_command_for_a_terminal_is_one_that_the_command_line_knows(
    command: str, parser: ArgumentParser
) -> None:
    words = shlex.split(command, comments=True)[1:]
    assert parser.parse_args(words).run


CODE = re.compile(r"\b[A-Z0-9]{4}-[A-Z0-9]{4}\b")


@pytest.mark.slow
def test_another_machine_joins_as_its_page_says_and_by_the_file_that_it_downloads(
    tmp_path: Path, sandbox_files: Path
) -> None:
    page = (ROOT / "docs" / "devices.md").read_text("utf-8")
    section = page[page.index("## Add other machines") :]
    up, join, run, approve = re.findall(r"^strawberry (.*?) *(?:#.*)?$", section, re.MULTILINE)[:4]
    with House(tmp_path / "house", sandbox=sandbox_files) as home:
        ports = ("--http-port", str(home.http_port), "--mqtt-port", str(home.mqtt_port))
        home.start("up", *up.split(), "--no-spoke", *ports, "--https-port", "0", "--mqtts-port", "0")
        wait_for(lambda: "Ready" in home.log("up") or home.ended("up"), what="strawberry up")
        printed = re.search(r"strawberry (spoke join (https://\S+))", home.log("up"))
        assert printed is not None, home.log("up")
        assert join.rpartition(" ")[0] == printed[1].rpartition(" ")[0]
        file = tmp_path / "strawberry-join.sh"
        fetch = ["curl", "-fsk", "-o", str(file), f"{printed[2]}/join/{file.name}"]
        subprocess.run(fetch, check=True)
        assert f"\nstrawberry {printed[1]} || end" in file.read_text()
        assert f"\nstrawberry {run}\n" in file.read_text()
        with _other_machine(tmp_path, home, file) as log:
            code = wait_for(lambda: CODE.search(log.read_text()), what="a code")
            shown = home.cli(*approve.replace("ABCD-EFGH", code[0]).split(), given="y\n")
            assert shown.returncode == 0, shown.stderr
            fingerprint = re.search(r"\b[A-Z2-7]{4}(-[A-Z2-7]{4}){3}\b", log.read_text())
            assert fingerprint is not None, log.read_text()
            assert fingerprint[0] in shown.stdout + shown.stderr
            wait_for(
                lambda: any(row["state"] == "online" for row in home.json("devices", "list")),
                what="the other machine to be online",
            )
        with _other_machine(tmp_path, home, file) as log:  # once more: it has joined, and goes on
            wait_for(lambda: "Joined" in log.read_text(), what="the other machine to go on")
            assert CODE.search(log.read_text()) is None


@contextmanager
def _other_machine(folder: Path, house: House, file: Path) -> Iterator[Path]:
    """Run a file on a machine that has all packages, and where pipx unpacks the wheel that was fetched."""
    there = folder / "other machine"
    programs, app = there / ".local" / "bin", there / "app"
    programs.mkdir(parents=True, exist_ok=True)
    for name, content in {
        "sudo": "",
        "pipx": f'[ "$1" != install ] || {sys.executable} -m zipfile -e "$2" "{app}"',
        "strawberry": f'PYTHONPATH="{app}" exec {sys.executable} -P -m deploy.cli.main "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{content}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    environment = house.environment(there / "home", {"HOME": str(there), "PATH": path, "XDG_RUNTIME_DIR": ""})
    with (folder / "other.log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", str(file)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield Path(log.name)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def flows() -> list[tuple[str, str]]:
    """All flows of Node-RED, which are lists of nodes."""
    return [(document, block) for document, block in blocks("json") if block.startswith("[")]


@pytest.mark.parametrize(("document", "block"), flows())
def test_a_flow_of_the_documents_stays_within_the_rights_of_its_login(document: str, block: str) -> None:
    given = access.rights(Principal(kind="client", id="node_red", chat=True))
    nodes = json.loads(block)
    wired = {wire for node in nodes for output in node.get("wires", []) for wire in output}
    assert wired <= {node["id"] for node in nodes}, document
    for node in nodes:
        if node["type"] == "mqtt-broker":
            # A Mosquitto of ours takes a login with this client id only.
            assert node["clientid"] == "node_red"
        if node["type"] == "mqtt in":
            assert access.allowed(given, "subscribe", node["topic"])
            assert access.allowed(given, "receive", node["topic"])
    (request,) = re.findall(r"'(hub/chat/.*?)'", block)
    assert access.allowed(given, "publish", request + "1")


@pytest.mark.parametrize(("document", "block"), [each for each in blocks("yaml") if each[0] == "mqtt.md"])
def test_the_topics_of_a_sensor_are_retained_ones_of_a_device(document: str, block: str) -> None:
    named = re.findall(r'_topic: "(.*?)"', block)
    assert named, document
    for topic in named:
        found = topics.find(topic)
        assert found is not None, topic
        assert found[0].retained


def skills() -> list[tuple[str, str]]:
    return [each for each in blocks("python") if each[0] != "api.md" and "def test_" not in each[1]]


@pytest.mark.slow
@pytest.mark.parametrize(("document", "block"), skills())
def test_a_skill_of_the_documents_is_offered_by_a_spoke(
    document: str, block: str, house: House, tmp_path: Path
) -> None:
    (name,) = re.findall(r"^class (\w+)", block, re.MULTILINE)
    spoke = house.add_spoke(f"{name} of {document}", {"documented.py": block})
    rows = [row for row in house.json("skills", "list") if spoke.id in str(row["devices"])]
    assert rows


@pytest.mark.parametrize(("document", "block"), [each for each in blocks("python") if "def test_" in each[1]])
def test_a_test_of_the_documents_passes_beside_its_skill(document: str, block: str, tmp_path: Path) -> None:
    module, owner = re.findall(r"^from (\w+) import (\w+Skill)$", block, re.MULTILINE)[0]
    source = next(each for name, each in skills() if name == document and f"class {owner}(" in each)
    (tmp_path / f"{module}.py").write_text(source)
    (tmp_path / f"test_{module}.py").write_text(block)
    command = ["-m", "deploy.cli.main", "skills", "test", str(tmp_path / f"{module}.py")]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_whoever_looks_into_the_skills_folder_finds_how_to_write_one(house: House) -> None:
    assert (house.home / "skills" / "README.md").read_text("utf-8") == SKILLS_PAGE.read_text("utf-8")


def test_every_link_between_the_documents_leads_somewhere() -> None:
    for file in [*DOCUMENTS, SKILLS_PAGE]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text("utf-8")):
            assert (file.parent / target).exists(), f"{file.name}: {target}"
