"""The system over HTTP: what is known, the log, and a backup that is made, uploaded and checked."""

import io
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from deploy.backup.reading import unpack
from deploy.directory import Home as Installation
from deploy.home.maintenance import Maintenance
from identity import age
from tests.hub_agent.home import Home, open_home

WORDS = "four words for you"


@pytest.fixture
async def home(tmp_path: Path, host: Maintenance) -> AsyncIterator[Home]:
    async with open_home(tmp_path / "home", host=host) as opened:
        yield opened


@pytest.fixture
async def client(home: Home) -> AsyncIterator[httpx.AsyncClient]:
    async with home.client() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _cheap(monkeypatch):
    monkeypatch.setattr(age, "SCRYPT_WORK", 10)


async def upload(client: httpx.AsyncClient, data: bytes, size: int = 100_000) -> None:
    for at in range(0, len(data), size):
        answer = await client.put("/api/system/restore", params={"at": at}, content=data[at : at + size])
        assert answer.json() == {"bytes": min(at + size, len(data))}


async def test_what_is_known_and_what_the_doctor_finds(client):
    system = (await client.get("/api/system")).json()
    assert system["database"]["bytes"] > 0
    assert system["broker"]["connected"]
    assert system["can_restart"] is False
    checks = {each["check"]: each for each in (await client.get("/api/system/checks")).json()}
    assert checks["database"]["ok"]
    assert checks["broker"]["ok"]
    assert "sandbox" not in checks


async def test_the_log_is_shown_without_secrets_from_a_level_on_and_live(home, client):
    log = logging.getLogger("hub_agent.test")
    log.info("something small with %s", home.admin_token)
    log.warning("something large\nin two lines")
    lines = (await client.get("/api/system/logs")).json()
    assert any("something small with [secret]" in line["text"] for line in lines)
    assert home.admin_token not in str(lines)
    large = (await client.get("/api/system/logs", params={"level": "warning", "last": 1})).json()
    assert [(line["level"], line["text"]) for line in large] == [
        ("warning", "something large\\nin two lines")
    ]
    async with client.stream("GET", "/api/system/logs", params={"follow": True, "last": 0}) as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == ": system"
        log.error("here it comes")
        assert [line async for line in _two(lines)][-1].count("here it comes") == 1


async def _two(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    yield await anext(lines)
    yield await anext(lines)


async def test_the_log_keeps_the_latest_lines_only(client):
    log = logging.getLogger("hub_agent.test")
    for number in range(2_500):
        log.info("line %d", number)
    lines = (await client.get("/api/system/logs", params={"last": 2_000})).json()
    assert len(lines) == 2_000
    assert lines[-1]["text"] == "line 2499"


async def test_a_backup_comes_as_a_file_and_what_is_uploaded_says_what_it_holds(home, client, tmp_path):
    short = await client.post("/api/system/backup", json={"passphrase": "short"})
    assert short.status_code == 422
    made = await client.post("/api/system/backup", json={"passphrase": WORDS})
    assert made.headers["content-disposition"].endswith('.age"')
    assert int(made.headers["content-length"]) == len(made.content)
    other = Installation(tmp_path / "other")
    other.directory.mkdir()
    assert unpack(other, io.BytesIO(made.content), SecretStr(WORDS)).hub_id == home.hub.registry.hub_id

    await upload(client, made.content)
    wrong = await client.post("/api/system/restore", json={"passphrase": "five words for nobody"})
    assert (wrong.status_code, "not the passphrase" in wrong.text) == (422, True)
    found = (await client.post("/api/system/restore", json={"passphrase": WORDS})).json()
    assert found["hub_id"] == home.hub.registry.hub_id
    # Nothing that was decrypted stays.
    assert [each.name for each in (home.directory / "restore").iterdir()] == ["upload.age"]
    gap = await client.put("/api/system/restore", params={"at": 7}, content=b"x")
    assert gap.status_code == 409
    applied = await client.post("/api/system/restore", json={"passphrase": WORDS, "apply": True})
    assert (applied.status_code, "process of its own" in applied.text) == (422, True)
    assert not (home.directory / "restore" / "plan.json").exists()
    assert not list(home.directory.glob(".backup-*"))


@pytest.mark.parametrize("scopes", [["chat", "call", "confirm"], ["admin"]])
async def test_only_a_person_who_is_an_admin_takes_all_keys_away(home, scopes):
    async with home.client(await home.token(scopes=scopes)) as program:
        for method, path, body in (
            ("POST", "/api/system/backup", {"passphrase": WORDS}),
            ("PUT", "/api/system/restore", None),
            ("POST", "/api/system/restore", {"passphrase": WORDS}),
        ):
            assert (await program.request(method, path, json=body)).status_code == 403, path


async def test_a_browser_that_was_left_open_takes_no_backup_and_restores_none(home):
    async with await home.left_open() as browser:
        for method, path, body in (
            ("POST", "/api/system/backup", {"passphrase": WORDS}),
            ("PUT", "/api/system/restore", None),
            ("POST", "/api/system/restore", {"passphrase": WORDS, "apply": True}),
        ):
            refused = await browser.request(method, path, json=body)
            assert (refused.status_code, "password_needed" in refused.text) == (403, True), path
    assert not (home.directory / "restore").exists()
