"""A backup restored through a fresh hub that runs: it starts again by itself, and devices connect."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.house import House, wait_for

WORDS = "four words for you"


@pytest.mark.slow  # two hubs, one of them started twice
def test_a_fresh_hub_starts_again_as_the_one_that_was_lost(
    tmp_path: Path, sandbox_files: Path, journal: dict[str, str]
) -> None:
    with House(tmp_path / "house", sandbox=sandbox_files) as old:
        old.start_up()
        pc = old.add_spoke("Office PC", journal)
        key = old.get("/.well-known/strawberry")["hub_id"]
        data = _asked(old, "POST", "/api/system/backup", {"passphrase": WORDS})
        old.kill("up")
        with House(tmp_path / "fresh", sandbox=sandbox_files) as fresh:
            fresh.http_port, fresh.mqtt_port = old.http_port, old.mqtt_port
            fresh.start_up()
            assert fresh.get("/.well-known/strawberry")["hub_id"] != key
            process = fresh.processes["up"].pid
            for at in range(0, len(data), 500_000):
                _asked(fresh, "PUT", f"/api/system/restore?at={at}", data[at : at + 500_000])
            found = json.loads(_asked(fresh, "POST", "/api/system/restore", {"passphrase": WORDS}))
            assert found["can_restart"]
            assert pc.id in [device["id"] for device in found["devices"]]
            _asked(fresh, "POST", "/api/system/restore", {"passphrase": WORDS, "apply": True})
            wait_for(lambda: fresh.log("up").count("Ready.") == 2 or fresh.ended("up"), what="the restart")
            assert fresh.processes["up"].pid == process
            assert fresh.get("/.well-known/strawberry")["hub_id"] == key
            wait_for(lambda: fresh.state_of(pc) == "online", what="the device")
            called = fresh.cli("call", "office_pc", "JournalSkill.write", "text=back")
            assert called.returncode == 0, called.stderr
            (aside,) = (fresh.home / "replaced").iterdir()
            assert (aside / "hub" / "key.pem").exists()


def _asked(house: House, method: str, path: str, body: dict[str, Any] | bytes) -> bytes:
    token = (house.home / "hub" / "cli.token").read_text().strip()
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{house.url}{path}", data=sent, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return bytes(response.read())
