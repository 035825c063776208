"""The container image, compose.yaml and the app of Home Assistant: linted, and their commands run."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.mosquitto.installation import find_installation
from deploy.cli.commands import make_parser
from tests.e2e.house import wait_for
from tests.forkserver import COMMAND
from tests.install.conftest import ROOT
from tests.mosquitto import HINT, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

FOLDER = ROOT / "deploy" / "container"
APP = ROOT / "deploy" / "home_assistant_app"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
_PATIENCE_S = 240
"""Each of its processes starts an interpreter of its own."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.mark.parametrize("file", [FOLDER / "Dockerfile", APP / "Dockerfile"], ids=["image", "app"])
def test_the_image_is_built_as_the_linter_wants(file: Path) -> None:
    linter = Path(sys.executable).with_name("hadolint")
    require(linter.exists(), "hadolint is not installed: make test")
    done = subprocess.run([str(linter), str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_build_sees_each_package_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    packages = set(PROJECT["tool"]["importlinter"]["root_packages"])
    assert let_in == packages | {"pyproject.toml", "constraints.txt", "README.md"}


def test_every_service_is_confined() -> None:
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
    assert ":" in COMPOSE["services"]["mosquitto"]["image"]


_SERVICE_KEYS = {
    *("build", "cap_drop", "command", "depends_on", "entrypoint", "environment", "healthcheck", "image"),
    *("networks", "ports", "profiles", "read_only", "restart", "security_opt", "tmpfs", "user", "volumes"),
}
"""Those of the Compose specification that we use: a misspelt one would do nothing, or stop everything."""
_APP_KEYS = {
    *("arch", "backup", "boot", "description", "environment", "hassio_api", "host_network", "init", "map"),
    *("name", "options", "ports", "ports_description", "schema", "slug", "startup", "version", "watchdog"),
    "webui",
}
"""Those of the configuration of an app of Home Assistant that we use."""


def test_compose_and_app_have_the_keys_of_their_specifications() -> None:
    assert set(COMPOSE) == {"name", "x-strawberry", "services", "volumes"}
    services = COMPOSE["services"]
    mounted = set()
    for service in services.values():
        assert set(service) <= _SERVICE_KEYS
        needed = service.get("depends_on", ())
        assert set(needed) <= set(services)
        for name in needed if isinstance(needed, dict) else ():
            condition = needed[name]["condition"]
            assert condition in ("service_completed_successfully", "service_healthy")
            # Ours have theirs in the image.
            assert condition != "service_healthy" or "healthcheck" in services[name]
        mounted |= {volume.partition(":")[0] for volume in service["volumes"]}
    assert {name for name in mounted if not name.startswith("./")} == set(COMPOSE["volumes"])
    assert all((FOLDER / name).is_file() for name in mounted if name.startswith("./"))
    app = yaml.safe_load((APP / "config.yaml").read_text("utf-8"))
    assert set(app) <= _APP_KEYS
    assert set(app["arch"]) <= {"amd64", "aarch64"}
    assert (app["startup"], app["boot"], app["backup"]) == ("services", "auto", "cold")
    assert re.fullmatch(r"[a-z0-9_]+", app["slug"])
    assert all(isinstance(value, str) for value in app["environment"].values())
    assert set(app["ports"]) == set(app["ports_description"])
    assert all(form.startswith("match(") for forms in app["schema"].values() for form in forms)


def _commands() -> Iterator[str]:
    for service in COMPOSE["services"].values():
        if "entrypoint" in service:
            yield from re.findall(r"^(?:exec )?strawberry (.*)", "\n".join(service["command"]), re.MULTILINE)
        else:
            yield shlex.join(service["command"])
    image = (FOLDER / "Dockerfile").read_text("utf-8")
    (check,) = re.findall(r"HEALTHCHECK .* CMD (\[.*\])", image)
    yield shlex.join(json.loads(check)[1:])
    yield from re.findall(
        r"^(?:exec )?strawberry ([^$\n]*)$", (APP / "run.sh").read_text("utf-8"), re.MULTILINE
    )


@pytest.mark.parametrize("command", sorted(set(_commands())))
def test_each_command_is_one_that_the_program_knows(command: str) -> None:
    assert make_parser().parse_args(shlex.split(command)).run


def test_each_variable_is_one_that_something_reads() -> None:
    text = (FOLDER / "compose.yaml").read_text("utf-8")
    named = set(re.findall(r"\$\{(\w+)", text)) - {"STRAWBERRY_IMAGE", "STRAWBERRY_NAME", "HUB_KEY"}
    product = "\n".join(file.read_text("utf-8") for file in (ROOT / "deploy").rglob("*.py"))
    assert named
    assert [name for name in named if f'"{name}"' not in product] == []
    for name in set(re.findall(r"\$\$\{?(\w+)", text)) - {"STRAWBERRY_HOME"}:
        assert f"{name}: ${{{name}" in text


def test_the_app_has_options_with_names_in_each_language() -> None:
    config = yaml.safe_load((APP / "config.yaml").read_text("utf-8"))
    assert config["version"] == PROJECT["project"]["version"]
    assert set(config["options"]) == set(config["schema"])
    for file in (APP / "translations").iterdir():
        assert set(yaml.safe_load(file.read_text("utf-8"))["configuration"]) == set(config["options"])
    run = (APP / "run.sh").read_text("utf-8")
    assert {int(port.partition("/")[0]) for port in config["ports"]} <= set(
        map(int, re.findall(r"\d{4}", run))
    )
    checker = Path(sys.executable).with_name("shellcheck")
    require(checker.exists(), "shellcheck is not installed: make test")
    assert subprocess.run([str(checker), str(APP / "run.sh")], check=False).returncode == 0


class Stack:
    """The services of compose.yaml as processes of this machine, with other paths and ports."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._ports = {port: str(free_port()) for port in ("8443", "8883")}
        self.variables = {"STRAWBERRY_NAME": "localhost", "STRAWBERRY_BROKER_PASSWORD": "made up"}
        self._programs = directory / "programs"
        self._programs.mkdir()
        shim = self._programs / "strawberry"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m deploy.cli.main "$@"\n')
        shim.chmod(0o755)
        installed = find_installation()
        (self._programs / "mosquitto").symlink_to(installed.binary)
        (directory / "broker").mkdir()
        config = (FOLDER / "mosquitto.conf").read_text("utf-8")
        config = config.replace("/usr/lib/mosquitto_dynamic_security.so", str(installed.plugin))
        # As in the container it is no root that starts it.
        self.config = directory / "mosquitto.conf"
        self.config.write_text(self._here(config) + "user root\n")

    def _here(self, text: str) -> str:
        for port, other in self._ports.items():
            text = re.sub(rf"\b{port}\b", other, text)
        text = text.replace("/mosquitto/config/mosquitto.conf", str(self._directory / "mosquitto.conf"))
        return text.replace("/broker", str(self._directory / "broker")).replace("//hub:", "//localhost:")

    def command(self, name: str) -> list[str]:
        service = COMPOSE["services"][name]
        words = [*service.get("entrypoint", ["strawberry"]), *service["command"]]
        if name == "hub":
            words[-1] = words[-1].replace("hub --lan", "hub --lan --http-port 0 --https-port 8443")
        filled = [
            re.sub(r"\$\{(\w+)[^}]*\}", lambda found: self.variables.get(found[1], ""), word)
            for word in words
        ]
        return [self._here(word.replace("$$", "$")) for word in filled]

    def environment(self, name: str) -> dict[str, str]:
        data = {"certificates": "hub"}.get(name, name)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("STRAWBERRY", "HUB_"))}
        named = COMPOSE["services"][name].get("environment", {})
        return {
            **kept,
            **{key: value for key, value in self.variables.items() if key in named},
            "PATH": f"{self._programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "STRAWBERRY_HOME": str(self._directory / data),
        }

    def run(self, name: str, *words: str) -> str:
        """Run the command of a service to its end, or one of the command line in its place."""
        done = subprocess.run(
            [*COMMAND, *words] if words else self.command(name),
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        log = self._stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = self._stack.enter_context(
            subprocess.Popen(self.command(name), env=self.environment(name), stdout=log, stderr=log)
        )
        self._stack.callback(process.kill)
        return process

    def mosquitto_listens(self) -> bool:
        """What its health check asks."""
        try:
            socket.create_connection(("127.0.0.1", int(self._ports["8883"]))).close()
        except OSError:
            return False
        return True

    def healthy(self, name: str) -> bool:
        asked = subprocess.run(
            [*COMMAND, "doctor", "--running"],
            env=self.environment(name),
            capture_output=True,
            check=False,
        )
        return asked.returncode == 0


@pytest.mark.slow
def test_the_services_of_compose_find_each_other(tmp_path: Path) -> None:
    require(find_mosquitto() is not None, HINT)
    require(shutil.which("mosquitto_ctrl") is not None, "mosquitto_ctrl is not installed")
    with ExitStack() as processes:
        stack = Stack(tmp_path, processes)
        assert not stack.healthy("hub")
        stack.run("certificates")
        stack.start("mosquitto")
        wait_for(stack.mosquitto_listens, what="Mosquitto", patience=_PATIENCE_S)
        hub = stack.start("hub")
        wait_for(lambda: stack.healthy("hub") or hub.poll() is not None, what="the hub", patience=_PATIENCE_S)
        assert hub.poll() is None, (tmp_path / "hub.log").read_text()
        added = json.loads(stack.run("hub", "devices", "add", "Spoke", "--json"))
        key = re.search(r"--hub-key[ =](\S+)", added["command"])
        assert key is not None, added
        stack.variables |= {"HUB_DEVICE_TOKEN": added["token"], "HUB_KEY": key[1]}
        stack.start("spoke")
        wait_for(lambda: stack.healthy("spoke"), what="the spoke", patience=_PATIENCE_S)

        def states() -> list[str]:
            rows = json.loads(stack.run("hub", "devices", "list", "--json"))
            return [row["state"] for row in rows]

        wait_for(lambda: states() == ["online"], what="the spoke to be online", patience=_PATIENCE_S)
        # Nothing that can be read by others has the password.
        assert "made up" not in (tmp_path / "broker" / "dynsec.json").read_text()


def _has_engine() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "info"], capture_output=True, check=False)
    return asked.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not _has_engine(), reason="no container engine answers")
def test_the_image_runs_with_a_root_that_cannot_be_written() -> None:
    build = ["docker", "build", "--quiet", "--file", str(FOLDER / "Dockerfile"), str(ROOT)]
    image = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    run = ["docker", "run", "--detach", "--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", image]
    container = subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    try:
        deadline = time.monotonic() + 300
        check = ["docker", "exec", container, "strawberry", "doctor", "--running"]
        while subprocess.run(check, capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < deadline
        user = subprocess.run(
            ["docker", "exec", container, "id", "-u"], capture_output=True, text=True, check=True
        )
        assert user.stdout.strip() == "10001"
    finally:
        subprocess.run(["docker", "kill", container], capture_output=True, check=False)
