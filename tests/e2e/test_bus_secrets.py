"""What lets in on the bus stands in no log at debug level, in no process list, and in no file of ours."""

import json
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest

from identity.keys import KeyPair
from identity.logins.proofs import make_proof
from tests.e2e.house import House, wait_for
from tests.e2e.secured import ADMIN_PASSWORD, Secured
from tests.forkserver import SCRIPT
from tests.mosquitto import HINT, find_mosquitto
from tests.requirements import require

pytestmark = pytest.mark.slow

HOUSE_PASSWORD = "an ordinary password of this house"


def _post(house: House, path: str, body: object, key: KeyPair) -> dict[str, object]:
    proof = make_proof(key, method="POST", target=house.url + path, token=None, now=time.time())
    request = urllib.request.Request(
        house.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", "DPoP": proof}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, object] = json.load(response)
    return answer


def _join_by_code(house: House) -> set[str]:
    """Ask, be approved, and get the enrolment; gives the secrets of all that."""
    key = KeyPair.generate()
    asked = _post(house, "/api/devices/join", {"name": "Kitchen Pi", "public_key": key.public.jwk()}, key)
    poll = {"secret": asked["secret"]}
    assert _post(house, "/api/devices/join/poll", poll, key)["state"] == "waiting"
    assert house.cli("devices", "approve", str(asked["code"]), "--yes", "--debug").returncode == 0
    enrolment = wait_for(lambda: _enrolment(house, poll, key), what="the next question to be allowed")
    return {str(asked["secret"]), str(enrolment["token"]), str(enrolment["bus_token"])}


def _enrolment(house: House, poll: object, key: KeyPair) -> dict[str, object] | None:
    """Ask once more; None where that is too soon."""
    try:
        enrolment = _post(house, "/api/devices/join/poll", poll, key)["enrolment"]
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != HTTPStatus.TOO_MANY_REQUESTS:
            raise
        return None
    assert isinstance(enrolment, dict)
    return enrolment


@pytest.mark.parametrize("kind", ["provisioned", "child"])
def test_no_secret_of_the_bus_is_in_any_log(
    tmp_path: Path, sandbox_files: Path, journal: dict[str, str], kind: str
) -> None:
    require(find_mosquitto() is not None, HINT)
    with Secured(tmp_path / "theirs") as theirs, House(tmp_path / "house", sandbox=sandbox_files) as house:
        # Not forked: what stands on their command lines is looked at.
        house.program = SCRIPT
        theirs.add_zigbee()
        (house.home / ".env").write_text(f'BESIDE="{HOUSE_PASSWORD}"\n')
        (house.home / "strawberry.toml").write_text(
            f'[home_broker]\nurl = "{theirs.url}"\nusername = "zigbee"\npassword_env = "BESIDE"\n'
        )
        said = []
        if kind == "provisioned":
            given = f"{ADMIN_PASSWORD}\n"
            said.append(house.cli("broker", "provision", theirs.url, "--debug", given=given))
            house.broker_url = theirs.url
            house.start_hub()
        else:
            house.start_up("--broker", "mosquitto", "--no-spoke")
        pc = house.add_spoke("Bedroom PC", journal)
        login = house.json("broker", "login", "watcher", "--chat")
        secrets = {HOUSE_PASSWORD, ADMIN_PASSWORD, login["password"], pc.token, *_join_by_code(house)}
        said += [house.cli("broker", "check", "--debug"), house.cli("doctor", "--debug")]
        said.append(house.cli("broker", "login", "watcher", "--debug"))
        assert said[-1].returncode == 1, "the name is taken"
        key = KeyPair.load(house.home / "hub" / "key.pem")
        secrets |= {key.secret(f"mosquitto {who}").get_secret_value() for who in ("hub main", "admin")}
        in_sight = {word for process in _processes(house) for word in _words(process)}
        assert SCRIPT[0] in in_sight
        assert house.cli("broker", "logout", "watcher").returncode == 0
        house.json("devices", "revoke", pc.id, "--yes")
        wait_for(lambda: f" refuses {pc.id}: " in house.log(pc.id), what="the spoke to notice")

        logs = {file.name: file.read_text(errors="replace") for file in house.directory.glob("*.log")}
        texts = {**logs, "commands": "".join(done.stdout + done.stderr for done in said)}
        for name, text in logs.items():
            assert "DEBUG" in text, f"{name} says nothing at debug level"
        for secret in secrets | {each.rpartition(".")[2] for each in secrets}:
            assert len(secret) > 20
            assert not [name for name, text in texts.items() if secret in text]
            assert not [word for word in in_sight if secret in word]
        for file in (file for file in house.home.rglob("*") if file.is_file() and file.name != ".env"):
            content = b"" if "sandbox" in file.parts else _content(file)
            for secret in (ADMIN_PASSWORD, login["password"], HOUSE_PASSWORD):
                assert secret.encode() not in content, file


def _content(file: Path) -> bytes:
    """What is in it; nothing where it was a draft of a file, which has been put in place meanwhile."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _words(process: psutil.Process) -> list[str]:
    """Its command line; empty where it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _processes(house: House) -> list[psutil.Process]:
    """All processes of a house."""
    own = [psutil.Process(process.pid) for process in house.processes.values()]
    return [*own, *(child for process in own for child in process.children(recursive=True))]
