"""The audit over HTTP and on the command line: who sees what of it, and how it is searched and exported."""

import asyncio
import csv
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub_agent.calls.audit import AuditTrail
from hub_registry.storage.store import open_store
from hub_registry.storage.tables import now
from tests.deploy.strawberry import environment_of, run
from tests.hub_agent.home import Home
from tests.hub_agent.skills import LampSkill
from tests.hub_agent.test_audit import called, written
from tests.hub_server.test_http_direct_calls import call, post


@pytest.fixture
async def people(home: Home) -> dict[str, str]:
    """Tokens of Anna, who has a laptop that is shared, of Ben, who called it, and of a guest who tried."""
    accounts, tokens = home.hub.registry.accounts, {}
    for name, role in (("Anna", "member"), ("Ben", "member"), ("Guest", "guest")):
        tokens[name] = await home.token(await accounts.add(name, role=role))  # type: ignore[arg-type]
    laptop = await home.device("Laptop", LampSkill(), shared=True)
    await home.device("Hall PC", LampSkill(), shared=True)
    async with home.client() as admin:
        await admin.patch(f"/api/devices/{laptop.id}", json={"owner": "anna"})
        await post(admin, call("hall_pc", "LampSkill.status"))
    async with home.client(tokens["Ben"]) as ben, home.client(tokens["Guest"]) as guest:
        await post(ben, call("laptop", "LampSkill.turn_on", level=5))
        await post(ben, call("hall_pc", "LampSkill.status"))
        await post(guest, call("hall_pc", "LampSkill.turn_on"))
    return tokens


async def found(home: Home, token: str | None = None, **query: Any) -> list[tuple[str, str, str, str]]:
    async with home.client(token) as client:
        answer = await client.get("/api/audit", params=query)
        assert answer.status_code == 200, answer.text
        entries = answer.json()["entries"]
    return [(each["user"], each["device"], each["method"], each["outcome"]) for each in entries]


ADMIN = ("admin", "hall_pc", "status", "result")
ON_LAPTOP = ("ben", "laptop", "turn_on", "result")
BEN = ("ben", "hall_pc", "status", "result")
GUEST = ("guest", "hall_pc", "turn_on", "refused")


async def test_everybody_sees_what_concerns_them_and_an_admin_all(home: Home, people: dict[str, str]) -> None:
    assert await found(home) == [GUEST, BEN, ON_LAPTOP, ADMIN]
    assert await found(home, people["Anna"]) == [ON_LAPTOP]
    assert await found(home, people["Ben"]) == [BEN, ON_LAPTOP]
    assert await found(home, people["Ben"], user="guest") == []
    assert await found(home, people["Guest"]) == [GUEST]
    # An admin's token without that scope is one of the person alone, who has the PC in the hall.
    assert await found(home, await home.token(scopes=("call",))) == [GUEST, BEN, ADMIN]


SEARCHES: list[tuple[dict[str, Any], list[tuple[str, str, str, str]]]] = [
    ({"user": "Ben"}, [BEN, ON_LAPTOP]),
    ({"device": "Hall PC"}, [GUEST, BEN, ADMIN]),
    ({"device": "gone"}, []),
    ({"outcome": "refused"}, [GUEST]),
    ({"q": "laptop.LampSkill.turn"}, [ON_LAPTOP]),
    ({"q": "%"}, []),
    ({"since": "1h", "user": "admin"}, [ADMIN]),
    ({"until": "1h"}, []),
    ({"limit": 1}, [GUEST]),
]


async def test_it_is_searched_and_filtered(home: Home, people: dict[str, str]) -> None:
    for query, expected in SEARCHES:
        assert await found(home, **query) == expected, query


async def test_it_is_read_page_by_page_and_exported_whole(
    home: Home, people: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_agent.limits.AUDIT_READ_AT_ONCE", 3)
    async with home.client() as client:
        first = (await client.get("/api/audit", params={"limit": 3})).json()
        rest = (await client.get("/api/audit", params={"limit": 3, "before": first["before"]})).json()
        assert (len(first["entries"]), len(rest["entries"]), rest["before"]) == (3, 1, None)
        lines = (await client.get("/api/audit/export")).text.splitlines()
        assert [json.loads(line) for line in lines] == [*first["entries"], *rest["entries"]]
        answer = await client.get("/api/audit/export", params={"format": "csv", "user": "ben"})
        assert answer.headers["content-disposition"] == 'attachment; filename="audit.csv"'
        assert [row["device"] for row in csv.DictReader(io.StringIO(answer.text))] == ["hall_pc", "laptop"]
        for wrong in ({"since": "yesterday"}, {"limit": 0}, {"format": "xml"}, {"before": "x"}):
            path = "/api/audit/export" if "format" in wrong else "/api/audit"
            assert (await client.get(path, params=wrong)).status_code == 422, wrong


async def test_no_cell_of_an_export_is_a_formula(home: Home) -> None:
    async with home.client() as client:
        for name in ("=1+2", "@SUM(1)", " -3", "+4"):
            token = (await client.post("/api/tokens", json={"name": name, "scopes": ["chat"]})).json()[
                "token"
            ]
            async with home.client(token) as program:
                await post(program, call("hub", "WorldSkill.get_world"))
        text = (await client.get("/api/audit/export", params={"format": "csv"})).text
    names = [row["token_name"] for row in csv.DictReader(io.StringIO(text)) if row["skill"] != "People"]
    assert len(names) == 4
    assert all(name.startswith("'") for name in names), names


async def test_records_are_kept_as_long_as_the_settings_say(tmp_path: Path) -> None:
    async with open_store(tmp_path / "hub" / "hub.db") as store:
        trail = AuditTrail(store, keep_days=2)
        for number, days in ((1, 3), (2, 1)):
            record = called(number)
            trail.note(type(record)(**{**vars(record), "at": now() - timedelta(days=days)}))
        await trail.flush()
        await trail.trim()
        assert await written(store) == ["2"]


async def test_the_command_line_shows_it(home: Home, people: dict[str, str], tmp_path: Path) -> None:
    environment = environment_of(tmp_path, STRAWBERRY_TOKEN=home.admin_token)
    hub = ("--hub", home.hub.url)
    async with home.client() as admin:
        assert (
            await admin.post("/api/tokens", json={"name": "x\x1b", "scopes": ["chat"]})
        ).status_code == 422
        await admin.patch("/api/devices/laptop", json={"name": "Annas PC"})
    shown = await asyncio.to_thread(run, environment, "audit", "--device", "laptop", *hub)
    assert "annas_pc.LampSkill.turn_on" in shown.stdout, shown.stderr
    assert "hall_pc" not in shown.stdout
    words = ("audit", "turn_on", "--outcome", "refused", "--json")
    listed = await asyncio.to_thread(run, environment, *words, *hub)
    assert [each["user"] for each in json.loads(listed.stdout)] == ["guest"]


async def test_logins_and_changes_of_people_and_tokens_are_in_it_with_their_actor(home: Home) -> None:
    passwords = "correct horse battery", "another horse entirely"
    url = home.hub.url
    browsing = httpx.AsyncClient(base_url=url, headers={"origin": url}, timeout=120)
    async with home.client() as admin, browsing as browser:
        made = (await admin.post("/api/users", json={"name": "Ben", "role": "guest"})).json()
        await browser.post("/api/setup", json={"code": made["code"], "password": passwords[0]})
        await browser.post("/api/session", json={"name": "ben", "password": "wrong horse battery"})
        await browser.post("/api/session", json={"name": "Ben", "password": passwords[0]})
        change = {"old": passwords[0], "new": passwords[1]}
        await browser.put("/api/session/password", json=change)
        token = (await browser.post("/api/tokens", json={"name": "lights", "scopes": ["chat"]})).json()[
            "token"
        ]
        again = await browser.post("/api/tokens", json={"name": "lights", "scopes": ["chat"]})
        assert (again.status_code, "named 'lights' already" in again.text) == (409, True)
        jti = next(
            each["jti"] for each in (await browser.get("/api/tokens")).json() if each["name"] == "lights"
        )
        await browser.delete(f"/api/tokens/{jti}")
        await browser.delete("/api/session")
        await admin.patch("/api/users/ben", json={"role": "member"})
        code = (await admin.post("/api/users/ben/code")).json()["code"]
        await admin.delete("/api/users/ben")
        shown = (await admin.get("/api/audit", params={"q": "hub.People"})).json()["entries"]
        everything = (await admin.get("/api/audit/export")).text
        nobody = await admin.get("/api/audit", params={"user": "nobody"})
        assert (nobody.status_code, "there is no user 'nobody'" in nobody.text) == (404, True)
        assert await found(home, user="ben")

    acts = [(each["user"], each["method"], each["outcome"]) for each in reversed(shown)]
    assert acts == [
        ("admin", "add_user ben (guest)", "result"),
        ("ben", "choose_password", "result"),
        ("ben", "log_in", "refused"),
        ("ben", "log_in", "result"),
        ("ben", "change_password", "result"),
        ("ben", "make_token lights (chat)", "result"),
        ("ben", "revoke_token lights", "result"),
        ("ben", "log_out", "result"),
        ("admin", "change_user ben (role=member)", "result"),
        ("admin", "make_code ben", "result"),
        ("admin", "remove_user ben", "result"),
    ]
    assert shown[-2]["actor"] == {"user": "ben", "address": "127.0.0.1"}
    assert not [secret for secret in (*passwords, made["code"], code, token) if secret in everything]
