import asyncio
import time
from datetime import timedelta

import httpx
import pytest
from argon2 import PasswordHasher
from pydantic import SecretStr

from contracts.errors import Unauthorized
from hub_registry.access.accounts import User
from hub_registry.access.bearer import SESSION_COOKIE
from hub_registry.storage.tables import now
from tests.hub_registry.http_client import ORIGIN, PASSWORD, Browser


@pytest.fixture
def still(client, monkeypatch) -> None:
    """Let no time pass for the limits of wrong passwords, however slow the machine is."""
    for limits in (client.registry.people._sources, client.registry.people._names):
        monkeypatch.setattr(limits, "_clock", lambda: 0.0)


async def test_the_admin_chooses_a_password_with_a_code_and_is_logged_in(client, browser):
    assert await browser("GET", "/api/setup") == {"needed": True}
    await browser("GET", "/api/session", status=401)
    code = (await client.registry.people.make_code("admin")).code
    body = {"code": code.lower().replace("-", ""), "password": PASSWORD, "name": "Ann", "language": "de"}
    assert await browser("POST", "/api/setup", body) == {
        "user": {"id": "admin", "name": "Ann", "role": "admin", "language": "de", "time_zone": None}
    }
    assert await browser("GET", "/api/setup") == {"needed": False}
    session = await browser("GET", "/api/session")
    assert (session["user"]["name"], session["scopes"]) == (
        "Ann",
        ["chat", "call", "confirm", "admin", "metrics"],
    )
    assert "used" in (await browser("POST", "/api/setup", body, status=401))["detail"]
    listed = await client("GET", "/api/tokens")
    assert "browser (Firefox, Linux)" in [token["name"] for token in listed]


async def test_a_code_ends_with_the_next_one_and_when_it_expires(client, browser):
    first, second = [(await client.registry.people.make_code("admin")).code for _ in range(2)]
    await browser("POST", "/api/setup", {"code": first, "password": PASSWORD}, status=401)
    # What is wrong with the rest leaves the code good.
    short = await browser("POST", "/api/setup", {"code": second, "password": "short"}, status=422)
    assert short["detail"] == "a password has 10 to 1,000 characters"
    await browser("POST", "/api/setup", {"code": second, "password": PASSWORD, "name": " "}, status=422)
    await browser("POST", "/api/setup", {"code": second, "password": PASSWORD})


async def test_codes_and_sessions_expire(client, browser, monkeypatch):
    code = (await client.registry.people.make_code("admin")).code
    with monkeypatch.context() as later:
        later.setattr("hub_registry.access.people.now", lambda: now() + timedelta(days=1))
        await browser("POST", "/api/setup", {"code": code, "password": PASSWORD}, status=401)
    await browser("POST", "/api/setup", {"code": code, "password": PASSWORD})
    present = time.time()
    monkeypatch.setattr("time.time", lambda: present + 30 * 24 * 3600 + 1)
    await browser("GET", "/api/session", status=401)


async def test_a_person_logs_in_by_name_or_id_and_out(client, browser):
    await browser.set_up(client, name="Ann")
    await browser("DELETE", "/api/session", status=204)
    assert not browser.http.cookies
    await browser("GET", "/api/session", status=401)
    for name in ("ann", " Ann ", "admin"):
        answer = await browser("POST", "/api/session", {"name": name, "password": PASSWORD})
        assert answer["user"]["name"] == "Ann"
    wrong = [
        await browser("POST", "/api/session", {"name": name, "password": f"{PASSWORD}!"}, status=401)
        for name in ("Ann", "Bob")
    ]
    assert wrong[0] == wrong[1]


@pytest.mark.parametrize(("scheme", "secure"), [("http", False), ("https", True)])
async def test_the_cookie_is_for_pages_of_the_hub_only(client, scheme, secure):
    code = (await client.registry.people.make_code("admin")).code
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(client.app, root_path="/home"), base_url=f"{scheme}://hub.local"
    ) as http:
        answer = await http.post("/api/setup", json={"code": code, "password": PASSWORD})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{SESSION_COOKIE}=ey")
    assert set(cookie.split("; ")[1:]) >= {"HttpOnly", "Path=/home", "SameSite=strict", "Max-Age=2592000"}
    assert ("Secure" in cookie.split("; ")) is secure


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"sec-fetch-site": "same-site"}, 403),
        ("GET", {"sec-fetch-site": "none"}, 200),
        ("PATCH", {"origin": ORIGIN}, 200),
        ("PATCH", {}, 403),
        ("PATCH", {"origin": "null"}, 403),
        ("PATCH", {"origin": "http://hub.local"}, 403),
        ("PATCH", {"origin": "https://hub.local:8321"}, 403),
        ("PATCH", {"origin": ORIGIN, "sec-fetch-site": "cross-site"}, 403),
    ],
)
async def test_a_session_acts_for_pages_of_the_hub_only(client, browser, method, headers, status):
    await browser.set_up(client)
    body = {"language": "fr"} if method == "PATCH" else None
    foreign = httpx.AsyncClient(
        transport=browser.http._transport, base_url=ORIGIN, cookies=browser.http.cookies
    )
    answer = await foreign.request(method, "/api/session", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    user = await browser("GET", "/api/session")
    assert user["user"]["language"] == ("fr" if (method, status) == ("PATCH", 200) else None)
    as_program = {"authorization": f"Bearer {browser.http.cookies[SESSION_COOKIE]}"}
    assert (await client.http.get("/api/session", headers=as_program)).status_code == 401


async def test_a_token_in_the_header_needs_no_origin(client):
    await client("PATCH", "/api/session", {"time_zone": "Europe/Berlin"})
    assert (await client("GET", "/api/session"))["user"]["time_zone"] == "Europe/Berlin"
    await client("PATCH", "/api/session", {"time_zone": ""})
    assert (await client("GET", "/api/session"))["user"]["time_zone"] is None
    wrong = await client("PATCH", "/api/session", {"time_zone": "Mars/Base", "x" * 2_000: 1}, status=422)
    assert {each["field"] for each in wrong["errors"]} == {"time_zone", "x" * 59 + "…"}


@pytest.mark.usefixtures("still")
async def test_guessing_a_password_is_soon_refused_even_when_it_is_right(client, browser):
    await browser.set_up(client)
    known = {"name": "admin", "password": PASSWORD}
    for _ in range(12):
        await browser("POST", "/api/session", known)  # right ones do not count
    for _ in range(10):
        await browser("POST", "/api/session", {**known, "password": "wrong"}, status=401)
    refused = await browser.http.post("/api/session", json=known)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    # A code helps in any case.
    await browser.set_up(client)


async def test_for_an_unknown_name_a_password_is_checked_as_well(client, browser, monkeypatch):
    await browser.set_up(client)
    checked, verify = [], PasswordHasher.verify
    monkeypatch.setattr(PasswordHasher, "verify", lambda *given: checked.append(given) or verify(*given))
    for name in ("admin", "nobody"):
        await browser("POST", "/api/session", {"name": name, "password": "wrong"}, status=401)
    assert len(checked) == 2


@pytest.mark.usefixtures("still")
async def test_many_guesses_at_once_are_limited_as_well(client, browser):
    await browser.set_up(client)
    body = {"name": "admin", "password": "wrong"}
    answers = await asyncio.gather(*(browser.http.post("/api/session", json=body) for _ in range(15)))
    assert sorted(answer.status_code for answer in answers) == [401] * 10 + [429] * 5


@pytest.mark.usefixtures("still")
async def test_guessing_one_name_from_many_addresses_is_refused(client, browser):
    await browser.set_up(client)
    body = {"name": "admin", "password": "wrong"}

    async def at(address: str, name: str) -> int:
        transport = httpx.ASGITransport(client.app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
            return (await http.post("/api/session", json={**body, "name": name})).status_code

    assert [await at(f"192.0.2.{number}", "admin") for number in range(11)] == [401] * 10 + [429]
    assert await at("192.0.2.99", "Admin") == 429
    assert [await at("192.0.2.98", f"somebody{number}") for number in range(11)] == [401] * 10 + [429]


async def test_passwords_that_wait_to_be_checked_are_bounded(client, browser):
    await browser.set_up(client)

    async def at(address: str) -> httpx.Response:
        transport = httpx.ASGITransport(client.app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
            return await http.post("/api/session", json={"name": address, "password": "wrong"})

    async with client.registry.people._passwords._turn:
        asked = asyncio.as_completed([at(f"192.0.2.{number}") for number in range(20)])
        refused = [await each for _, each in zip(range(4), asked, strict=False)]
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {(429, "5")}
    assert [(await each).status_code for each in asked] == [401] * 16
    # Whom that kept out logs in as soon as there is room.
    await browser("POST", "/api/session", {"name": "admin", "password": PASSWORD})


@pytest.mark.usefixtures("still")
async def test_guessing_codes_is_soon_refused(browser):
    body = {"code": "AAAA-AAAA-AAAA-AAAA", "password": PASSWORD}
    for _ in range(10):
        await browser("POST", "/api/setup", body, status=401)
    await browser("POST", "/api/setup", body, status=429)


async def test_a_new_password_ends_all_other_sessions(client, browser):
    other = Browser(client)
    await browser.set_up(client)
    await other("POST", "/api/session", {"name": "admin", "password": PASSWORD})
    program = await client.token()
    change = {"old": PASSWORD, "new": "another password"}
    await browser("PUT", "/api/session/password", {**change, "old": "wrong"}, status=401)
    await other("GET", "/api/session")
    await browser("PUT", "/api/session/password", change)
    await browser("GET", "/api/session")
    await other("GET", "/api/session", status=401)
    await client("GET", "/api/session", token=program)
    await other("POST", "/api/session", {"name": "admin", "password": PASSWORD}, status=401)
    await other("POST", "/api/session", {"name": "admin", "password": "another password"})


@pytest.mark.sqlite
async def test_an_old_password_logs_nobody_in_while_it_is_replaced(client, browser):
    await browser.set_up(client)
    people = client.registry.people
    code = (await people.make_code("admin")).code
    # Passwords are checked one after the other, this one after the hash of the new one was made.
    outcomes = await asyncio.gather(
        people.set_up(code, SecretStr("another password")),
        people.log_in("admin", SecretStr(PASSWORD)),
        return_exceptions=True,
    )
    assert [type(each) for each in outcomes] == [User, Unauthorized]


async def test_logging_out_everywhere_ends_every_session_and_nothing_else(client, browser):
    other = Browser(client)
    await browser.set_up(client)
    await other("POST", "/api/session", {"name": "admin", "password": PASSWORD})
    program = await client.token()
    ended: list[str] = []

    async def listener(revocation):
        ended.extend(revocation.tokens)

    client.registry.authority.on_revoked(listener)
    await other("DELETE", "/api/sessions", status=204)
    assert len(ended) == 2
    for each in (browser, other):
        await each("GET", "/api/session", status=401)
    await client("GET", "/api/session", token=program)


async def test_a_further_session_ends_the_oldest_and_logins_are_limited(client, browser):
    await browser.set_up(client)
    people, admin = client.registry.people, client.registry.admin
    newest = [Browser(client), Browser(client)]
    known = {"name": "admin", "password": PASSWORD}
    await newest[0]("POST", "/api/session", known)
    for _ in range(18):
        await people.open_session(admin, name="browser")
    await browser("GET", "/api/session")
    await newest[1]("POST", "/api/session", known)
    await browser("GET", "/api/session", status=401)
    for each in newest:
        await each("GET", "/api/session")
    while people._logins.take("admin"):
        pass
    refused = await newest[1]("POST", "/api/session", known, status=429)
    assert "too often" in refused["detail"]
    await newest[1]("GET", "/api/session")


async def test_two_tokens_that_are_made_at_once_do_not_get_one_name(client):
    token, wanted = await client.token(), {"name": "node-red", "scopes": ["chat"]}
    headers = {"authorization": f"Bearer {token}"}
    answers = await asyncio.gather(
        *(client.http.post("/api/tokens", json=wanted, headers=headers) for _ in range(3))
    )
    assert sorted(each.status_code for each in answers) == [200, 409, 409]


async def test_a_person_has_a_bounded_number_of_tokens(client, browser):
    await browser.set_up(client)
    bodies = [{"name": f"lights {n}", "scopes": ["chat"]} for n in range(100)]
    made = [await browser("POST", "/api/tokens", body) for body in bodies[:99]]
    listed = await browser("GET", "/api/tokens")
    if sum(not token["session"] for token in listed) < 100:
        await browser("POST", "/api/tokens", bodies[99])
    body = {"name": "one more", "scopes": ["chat"]}
    assert "100 tokens" in (await browser("POST", "/api/tokens", body, status=409))["detail"]
    await browser(
        "DELETE", f"/api/tokens/{client.registry.authority.check(made[0]['token']).jti}", status=204
    )
    await browser("POST", "/api/tokens", body)


async def test_a_program_cannot_log_out_nor_act_as_a_person(client):
    chat = await client.token(None, "chat")
    assert "tokens revoke" in (await client("DELETE", "/api/session", token=chat, status=409))["hint"]
    device = await client.token(kind="device")
    for token in (chat, device):
        await client("PATCH", "/api/session", {"name": "Eve"}, token=token, status=403)
        await client("DELETE", "/api/sessions", token=token, status=403)


@pytest.mark.sqlite
async def test_no_password_and_no_code_is_stored(client, browser, tmp_path, monkeypatch):
    monkeypatch.undo()  # with the real cost of a hash
    code = (await client.registry.people.make_code("admin")).code
    await browser("POST", "/api/setup", {"code": code, "password": PASSWORD})
    unused = (await client.registry.people.make_code("admin")).code
    stored = b"".join(path.read_bytes() for path in (tmp_path / "hub").iterdir())
    assert b"$argon2id$v=19$m=32768,t=3,p=1$" in stored
    for secret in (code, unused, PASSWORD):
        assert secret.encode() not in stored


async def test_a_session_that_was_left_open_hands_nothing_over_without_the_password(client, browser):
    await browser.set_up(client)
    ben = (await browser("POST", "/api/users", {"name": "Ben"}))["user"]["id"]
    client.registry.authority._confirmed.clear()
    handing_over = [
        ("POST", "/api/users", {"name": "Eve", "role": "admin"}),
        ("PATCH", f"/api/users/{ben}", {"role": "admin"}),
        ("POST", f"/api/users/{ben}/code", None),
        ("POST", "/api/users/admin/code", None),
        ("POST", "/api/devices", {"name": "Evil", "confirm": True}),
        ("PATCH", "/api/devices/lamp", {"confirm": True}),
        ("PATCH", "/api/devices/lamp", {"owner": "Ben"}),
        ("POST", "/api/tokens", {"name": "evil", "scopes": ["chat", "admin"]}),
    ]
    await browser("POST", "/api/devices", {"name": "Lamp"})
    for method, path, body in handing_over:
        refused = await browser(method, path, body, status=403)
        assert "password_needed" in str(refused), path
    await browser("PATCH", f"/api/users/{ben}", {"name": "Benjamin"})
    await browser("POST", "/api/session/confirm", {"password": f"{PASSWORD}!"}, status=403)
    await browser(*handing_over[-1], status=403)
    await browser("POST", "/api/session/confirm", {"password": PASSWORD}, status=204)
    for method, path, body in handing_over:
        await browser(method, path, body)


async def test_a_password_that_was_typed_counts_for_minutes_and_its_own_session(client, browser):
    await browser.set_up(client)
    other = Browser(client)
    await other("POST", "/api/session", {"name": "admin", "password": PASSWORD})
    confirmed = client.registry.authority._confirmed
    confirmed.update({jti: at - 301 for jti, at in confirmed.items()})
    await browser("POST", "/api/users", {"name": "Ben"}, status=403)
    await other("POST", "/api/session/confirm", {"password": PASSWORD}, status=204)
    await browser("POST", "/api/users", {"name": "Ben"}, status=403)
    await other("POST", "/api/users", {"name": "Ben"})
