import asyncio
import getpass
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.mosquitto.config import MosquittoConfig, MosquittoListener, render
from broker.mosquitto.installation import find_installation
from broker.mosquitto.own_logins import hub_login, keep_admin
from broker.mosquitto.provisioning import open_security, provision
from contracts.devices.joining import Login
from contracts.errors import ConfigError
from identity.certificates import ServerCertificate
from identity.keys import KeyPair
from tests.broker.mosquitto_world import ADMIN, start_mosquitto
from tests.mosquitto import HINT, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

EXAMPLE = Path(__file__).parents[2] / "mosquitto.conf"
DEBIAN = Path("/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so")
DATA = Path("/var/lib/mosquitto")


FILES = ServerCertificate(
    Path("/etc/mosquitto/certs/server.pem"), Path("/etc/mosquitto/certs/server.key"), (), (), 0
)


def _config(*listeners: MosquittoListener, **more: object) -> MosquittoConfig:
    paths = {"plugin": DEBIAN, "security_file": DATA / "dynsec.json", "data_dir": DATA, **more}
    return MosquittoConfig(listeners=listeners, **paths)  # type: ignore[arg-type]


def _settings(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line and not line.startswith("#")]


def test_the_example_says_what_the_program_writes() -> None:
    rendered = render(_config(MosquittoListener()))
    assert _settings(EXAMPLE.read_text().splitlines()) == _settings(rendered.splitlines())


def test_the_listeners_that_the_example_leaves_to_choose_are_what_the_program_writes() -> None:
    example = EXAMPLE.read_text().replace("\n#listener 8883", "\nlistener 8883")
    tail = example[example.index("\nlistener 8883") :]
    chosen = [line.removeprefix("#") for line in tail.splitlines() if not line.startswith("# ")]
    rendered = render(
        _config(
            MosquittoListener(host="::", port=8883, tls=FILES),
            MosquittoListener(host="::", port=8884, transport="websocket", tls=FILES),
        )
    )
    tail = rendered[rendered.index("\nlistener 8883") :]
    assert _settings(chosen) == _settings(tail.splitlines())


async def test_mosquitto_starts_from_the_example_and_can_be_provisioned(tmp_path: Path) -> None:
    require(find_mosquitto() is not None, HINT)
    port = free_port()
    text = (
        EXAMPLE.read_text()
        .replace(str(DEBIAN), str(find_installation().plugin))
        .replace(str(DATA), str(tmp_path))
        .replace("listener 1883 ", f"listener {port} ")
    )
    made = ["mosquitto_ctrl", "dynsec", "init", str(tmp_path / "dynsec.json"), "admin", "a password"]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    # As root it would become the user mosquitto, who may not enter a test's directory.
    with start_mosquitto(tmp_path, f"user {getpass.getuser()}\n{text}", port):
        admin, url = Login(username="admin", password="a password"), f"mqtt://127.0.0.1:{port}"
        key = KeyPair.generate()
        await provision(url, admin, hub_id="home-1", key=key)
        async with open_security(url, hub_login(key, "main")) as security:
            assert "strawberry-hub-main" in (await security.read()).clients


@pytest.mark.parametrize("name", ["with blanks", "%u and %c", "größe", "a#b", 'quoted "so"'])
async def test_odd_paths_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    require(find_mosquitto() is not None, HINT)
    folder, port = tmp_path / name, free_port()
    folder.mkdir()
    keep_admin(folder / "logins of all.json", ADMIN)
    config = _config(
        MosquittoListener(port=port),
        plugin=find_installation().plugin,
        security_file=folder / "logins of all.json",
        data_dir=folder,
        user=getpass.getuser(),
    )
    with start_mosquitto(tmp_path, render(config), port):
        async with open_security(f"mqtt://127.0.0.1:{port}", ADMIN) as security:
            assert await security.read()
    assert {each.name for each in folder.iterdir()} == {"logins of all.json", "mosquitto.db"}


@pytest.mark.parametrize("path", ["/a\nallow_anonymous true", " /a", "/a "])
def test_a_path_that_cannot_stand_in_the_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot stand"):
        render(_config(MosquittoListener(), security_file=path))


def test_a_websocket_is_never_open_to_all_because_its_host_is_a_name() -> None:
    with pytest.raises(ConfigError, match="every address"):
        render(_config(MosquittoListener(host="localhost", transport="websocket")))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "hub.local"])
def test_nothing_listens_beyond_this_machine_without_tls_unless_it_was_asked_for(host: str) -> None:
    with pytest.raises(ConfigError, match="without TLS"):
        render(_config(MosquittoListener(host=host)))
    assert "NOT ENCRYPTED" in render(_config(MosquittoListener(host=host, insecure=True)))
    assert "NOT ENCRYPTED" not in render(_config(MosquittoListener(host=host, tls=FILES)))


@pytest.mark.parametrize(
    "folder", ["lib/aarch64-linux-gnu", "lib/x86_64-linux-gnu", "lib", "lib64", "../outside/lib"]
)
def test_the_plugin_is_found_beside_the_program(tmp_path: Path, folder: str) -> None:
    binary, plugin = tmp_path / "usr/sbin/mosquitto", tmp_path / "usr" / folder / f"{DEBIAN.name}"
    for each in (binary, plugin):
        each.parent.mkdir(parents=True, exist_ok=True)
    plugin.touch()
    if folder.startswith(".."):
        # As Homebrew does it: the program is a link into a tree of its own.
        real = tmp_path / "outside/sbin/mosquitto"
        real.parent.mkdir()
        real.touch()
        binary.symlink_to(real)
    else:
        binary.touch()
    assert find_installation(binary=binary).plugin.samefile(plugin)


def test_a_missing_mosquitto_is_said_with_the_way_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not installed") as missing:
        find_installation(binary=tmp_path / "mosquitto")
    assert "nstall" in missing.value.hint
    assert os.linesep not in missing.value.hint


def test_a_missing_plugin_is_said_with_its_path(tmp_path: Path) -> None:
    binary = tmp_path / "mosquitto"
    binary.touch()
    with pytest.raises(ConfigError, match="plugin for dynamic security is missing"):
        find_installation(binary=binary, plugin=tmp_path / "absent.so")
