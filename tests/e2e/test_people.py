"""The first password of a home, and what logs say of it."""

from pathlib import Path

import httpx
import pytest

from tests.deploy.manager import Heard
from tests.e2e.house import House, wait_for

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery staple"


def test_the_first_password_is_chosen_and_no_log_has_a_secret(house: House, tmp_path: Path) -> None:
    address = ("--broker", house.broker_url, "--http-port", str(house.http_port), "--debug")
    house.kill("hub")
    with Heard.listening(str(tmp_path / "notify")) as manager:
        house.start("hub", "hub", *address, NOTIFY_SOCKET=manager.address)
        wait_for(lambda: manager.said("READY") or house.ended("hub"), what="READY")
    # A service manager keeps what is printed: no code is.
    assert "/setup#" not in house.log("hub").split("strawberry users code admin")[-1]
    assert "strawberry users code admin" in house.log("hub")
    said = house.cli("users", "code", "admin", "--debug")
    link = next(line.strip() for line in said.stdout.splitlines() if "/setup#" in line)
    code = link.partition("#")[2]
    origin = house.url
    with httpx.Client(timeout=60, base_url=origin, headers={"origin": origin}) as browser:
        wrong = {"name": "admin", "password": f"wrong {PASSWORD}"}
        assert browser.post("/api/session", json={**wrong, "name": PASSWORD}).status_code == 401
        assert browser.post("/api/session", json=wrong).status_code == 401
        assert browser.post("/api/setup", json={"code": code, "password": PASSWORD}).status_code == 200
        session = browser.cookies["strawberry_session"]
        assert browser.get("/api/users").status_code == 200
        # The session outlives the hub, and the code is asked for no more.
        house.kill("hub")
        house.start("hub", "hub", *address)
        wait_for(lambda: house.healthy() or house.ended("hub"), what="the hub")
        assert browser.get("/api/session").json()["user"]["id"] == "admin"
    assert "/setup#" not in house.log("hub").split("strawberry users code admin")[-1]
    texts = [house.log("hub"), said.stderr]
    assert "a wrong password for admin from 127.0.0.1" in texts[0]
    for secret in (PASSWORD, code, code.replace("-", ""), session, session.rpartition(".")[2]):
        assert not [text for text in texts if secret in text]
