"""People and programs look into the bus, as they do with MQTT Explorer and on the command line."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.e2e.house import PATIENCE_S, House, Spoke, wait_for
from tests.mosquitto import HINT, find_mosquitto
from tests.ports import free_port
from tests.requirements import require


@pytest.fixture(params=["embedded", "mosquitto"])
def watched(
    request: pytest.FixtureRequest, tmp_path: Path, sandbox_files: Path, journal: dict[str, str]
) -> Iterator[tuple[House, Spoke, int]]:
    """A house with one spoke on a broker of each kind, and the port of MQTT over WebSocket."""
    require(find_mosquitto() is not None, HINT)
    port = free_port()
    with House(tmp_path / "house", sandbox=sandbox_files) as house:
        house.start_up("--broker", request.param, "--ws-port", str(port), "--no-spoke")
        yield house, house.add_spoke("Bedroom PC", journal), port


def _printed_lines(house: House, *words: str) -> tuple[str, list[str]]:
    """Run ``broker login``; gives what it prints and the lines for the file of mosquitto_sub."""
    done = house.cli("broker", "login", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r"^  (-\w .+|--cafile .+)$", done.stdout, re.MULTILINE)


def _begin(
    house: House, program: str, lines: list[str], *words: str, into: Path | None = None
) -> "subprocess.Popen[str]":
    """Start a program with these lines where it looks for them, and nothing secret on its command line."""
    folder = house.directory / "config"
    folder.mkdir(exist_ok=True)
    (folder / program).write_text("\n".join(lines) + "\n")
    with contextlib.ExitStack() as stack:
        out = subprocess.PIPE if into is None else stack.enter_context(into.open("w"))
        process = subprocess.Popen(
            [program, *words],
            env=house.environment(house.home, {"XDG_CONFIG_HOME": str(folder)}),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        )
    house.begun.append(process)
    return process


def test_mosquitto_sub_sees_presence_and_values_and_nothing_of_calls(
    watched: tuple[House, Spoke, int],
) -> None:
    house, pc, _ = watched
    _, lines = _printed_lines(house, "watcher")
    seen = house.directory / "seen"
    _begin(house, "mosquitto_sub", lines, "-t", "#", "-v", into=seen)

    def topics() -> set[str]:
        return {line.split(" ", 1)[0] for line in seen.read_text().splitlines()}

    retained = {"hub/main/status", f"devices/{pc.id}/status", f"devices/{pc.id}/skills/JournalSkill"}
    wait_for(lambda: retained <= topics(), what="what is retained")
    assert house.json("call", pc.id, "JournalSkill.write", "text=unseen") == "wrote unseen"
    house.kill(pc.id)

    wait_for(lambda: '"state":"offline"' in seen.read_text(), what="the end of the device")
    assert not [topic for topic in topics() if "/calls/" in topic or "/results/" in topic or "$" in topic]
    assert "unseen" not in seen.read_text()


def test_a_program_looks_on_over_websocket(watched: tuple[House, Spoke, int]) -> None:
    house, pc, port = watched
    login = house.json("broker", "login", "explorer")
    assert login["websocket"] == f"ws://127.0.0.1:{port}"
    seen: set[str] = set()
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="explorer", transport="websockets")
    client.username_pw_set(login["username"], login["password"])
    client.on_connect = lambda client, *_: client.subscribe("#", 1)
    client.on_message = lambda _c, _u, message: seen.add(message.topic)
    client.connect("127.0.0.1", port)
    client.loop_start()
    wait_for(lambda: f"devices/{pc.id}/skills/JournalSkill" in seen, what="the skills to be seen")
    client.disconnect()
    client.loop_stop()


def test_a_login_that_was_ended_is_disconnected_at_once_and_stays_out(
    watched: tuple[House, Spoke, int],
) -> None:
    house, _, _ = watched
    _, lines = _printed_lines(house, "watcher")
    seen = house.directory / "seen"
    sub = _begin(house, "mosquitto_sub", lines, "-t", "#", "-v", into=seen)
    wait_for(seen.read_text, what="the login to work")
    assert [row["name"] for row in house.json("broker", "logins")] == ["watcher"]

    assert house.cli("broker", "logout", "watcher").returncode == 0

    # mosquitto_sub tries again and is told that it may not.
    _, err = sub.communicate(timeout=PATIENCE_S)
    assert sub.returncode != 0
    assert "refused" in err.lower() or "not authori" in err.lower(), err
    assert house.json("broker", "logins") == []


def test_a_login_that_was_granted_it_chats_and_another_does_not(
    watched: tuple[House, Spoke, int],
) -> None:
    house, _, _ = watched
    for name, words in (("node-red", ["--chat"]), ("watcher", [])):
        _, lines = _printed_lines(house, name, *words)
        topic = f"hub/chat/{name}"
        exchange = (
            "-t",
            f"{topic}/request/1",
            "-e",
            f"{topic}/reply/1",
            "-m",
            "write me a poem",
            "-W",
            "60" if words else "3",
        )
        version = ("-V", "311" if "-I" in "".join(lines) else "5")
        out, _ = _begin(house, "mosquitto_rr", lines, *exchange, *version).communicate(timeout=90)
        if words:
            assert "model" in out, "an honest answer: no model is configured"
        else:
            assert out == ""
    assert [row["chat"] for row in house.json("broker", "logins")] == [True, False]
