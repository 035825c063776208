"""A broker that Strawberry did not set up sees nothing of ours, or what was spelled out."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.house import House, wait_for
from tests.e2e.tap import Tap
from tests.model_server import Says, ScriptedModel, calls
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

PASSWORD = "an ordinary password of this house"


@pytest.fixture
def home(tmp_path: Path, sandbox_files: Path) -> Iterator[House]:
    """A home of which nothing runs."""
    with House(tmp_path / "house", sandbox=sandbox_files) as house:
        yield house


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Mosquitto]:
    """A Mosquitto with one ordinary login, as it stands in many houses."""
    require(find_mosquitto() is not None, HINT)
    directory = tmp_path / "theirs"
    directory.mkdir()
    passwords = directory / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "berry", PASSWORD], check=True)
    with Mosquitto(directory, password_file=passwords) as broker:
        yield broker


@pytest.mark.parametrize("command", [("hub",), ("up", "--no-spoke", "--mqtt-port", "0")])
def test_it_is_refused_before_anything_is_sent_to_it(home: House, command: tuple[str, ...]) -> None:
    with Tap(behind=None) as tap:
        done = home.cli(*command, "--broker", tap.url, "--http-port", "0")

    assert done.returncode == 1
    assert done.stderr.startswith(f"strawberry: the broker at {tap.url} was not set up by Strawberry")
    assert "broker provision" in done.stderr
    assert "--trust-broker" in done.stderr
    assert tap.everything == b""


@pytest.mark.slow
def test_the_embedded_broker_is_waited_for_and_nobody_who_stands_in_its_place_is_spoken_to(
    home: House,
) -> None:
    home.mqtt_port = free_port()
    home.broker_url = f"mqtt://127.0.0.1:{home.mqtt_port}"
    home.begin_hub()
    wait_for(lambda: "Not ready" in home.log("hub") or home.ended("hub"), what="the hub without a broker")
    assert "Connection refused" in home.log("hub")
    assert not home.healthy()

    def looks() -> int:
        return home.log("hub").count("is not known as the broker of this home")

    with Tap(behind=None, port=home.mqtt_port) as stranger:
        before = looks()
        wait_for(lambda: looks() > before + 1, what="the hub to look at the stranger")
        assert stranger.everything == b""
        assert not home.healthy()

    home.start_broker()
    wait_for(lambda: home.healthy() or home.ended("hub"), what="the hub to find its broker")


def test_a_trusted_one_gets_an_ordinary_login_and_never_a_token(
    home: House, guarded: Mosquitto, model: ScriptedModel, journal: dict[str, str]
) -> None:
    with Tap(behind=guarded.port) as tap:
        home.use_model(model.base_url)
        with (home.home / "strawberry.toml").open("a") as file:
            file.write(f'[broker]\nurl = "{tap.url}"\nusername = "berry"\npassword_env = "BUS"\n')
        (home.home / ".env").write_text(f'BUS="{PASSWORD}"\n')
        (home.home / ".env").chmod(0o600)
        home.broker_url, home.hub_flags = tap.url, ("--trust-broker",)
        home.start_hub()
        pc = home.add_spoke("Bedroom PC", journal)
        model.script = [
            calls("python_exec", code="devices.bedroom_pc.JournalSkill.write('shared')"),
            Says(text="It is written."),
        ]

        assert home.json("chat", "write shared")["answer"] == "It is written."

        assert pc.journal() == ["shared"]
        sent = [bytes(each) for each in tap.sent]
    assert all(PASSWORD.encode() in each for each in sent if each), "everybody logged in as berry"
    assert any(b"strawberry-bedroom_pc" in each for each in sent)
    assert any(b"strawberry-hub-main" in each for each in sent)
    assert any(b"strawberry/devices/bedroom_pc/skills/JournalSkill" in each for each in sent)
    tokens = {pc.token, (home.home / "hub" / "cli.token").read_text().strip()}
    for each in sent:
        assert b"eyJ" not in each, "no token was ever sent"
        assert not any(token.encode() in each for token in tokens)
        assert b"\x00\x07devices/" not in each, "all of ours stands below strawberry/"
    for name in ("hub", pc.id):
        assert PASSWORD not in home.log(name)
