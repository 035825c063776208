"""People over HTTP: added, changed and removed by an admin; and their tokens."""

import pytest
from starlette.requests import Request

from contracts.errors import NotFound, StorageError
from hub_registry.access.bearer import source_of
from hub_registry.access.people import OnRemoved
from hub_registry.storage.tables import HomeLayoutRow
from identity.keys import KeyPair
from tests.hub_registry.http_client import ORIGIN, PASSWORD, Browser


async def test_a_person_is_added_and_chooses_a_password_with_the_link(client, browser):
    added = await client("POST", "/api/users", {"name": "Ada", "role": "guest", "time_zone": "Europe/Rome"})
    assert added["link"] == f"{ORIGIN}/setup#{added['code']}"
    assert added["user"] == {
        "id": "ada",
        "name": "Ada",
        "role": "guest",
        "language": None,
        "time_zone": "Europe/Rome",
        "has_password": False,
    }
    await browser("POST", "/api/session", {"name": "Ada", "password": PASSWORD}, status=401)
    await browser("POST", "/api/setup", {"code": added["code"], "password": PASSWORD})
    session = await browser("GET", "/api/session")
    assert (session["user"]["role"], session["scopes"]) == ("guest", ["chat", "call", "confirm"])
    assert [user["has_password"] for user in await client("GET", "/api/users")] == [False, True]


async def test_a_forgotten_password_is_replaced_and_ends_the_sessions(client, browser):
    await browser.set_up(client)
    other = Browser(client)
    code = (await client("POST", "/api/users/admin/code"))["code"]
    await browser("GET", "/api/session")
    await other("POST", "/api/setup", {"code": code, "password": "another password"})
    await browser("GET", "/api/session", status=401)
    await browser("POST", "/api/session", {"name": "admin", "password": PASSWORD}, status=401)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 65, "Ada", "ada", "admin", "ADMIN"])
async def test_a_name_is_one_line_and_of_one_person(client, name):
    await client("POST", "/api/users", {"name": "Ada"})
    status = 409 if name.lower() in ("ada", "admin") else 422
    await client("POST", "/api/users", {"name": name}, status=status)
    await client("POST", "/api/users", {"name": "Bob"})
    await client("PATCH", "/api/users/bob", {"name": name}, status=status)
    assert [user["name"] for user in await client("GET", "/api/users")] == ["Admin", "Ada", "Bob"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("\u0405\u043e\u0440\u04bb\u0456\u0430", 409),  # all of it Cyrillic
        ("Soph\u0456a", 422),
        ("S\u03bfphia", 422),
        ("Ｓｏｐｈｉａ", 409),
        ("Soph1a", 200),
        ("SophIa", 409),
        ("Sophia\u200b", 422),
        ("Soph\ufe0fia", 422),
        ("\u3164", 422),
        ("\u0430dmin", 422),
        ("So\u0308phia", 200),
        ("Софія", 200),
        ("ソフィア Sophia", 200),
    ],
)
async def test_nobody_gets_a_name_that_looks_like_anothers(client, name, status):
    await client("POST", "/api/users", {"name": "Sophia"})
    await client("POST", "/api/users", {"name": name}, status=status)


async def test_a_person_logs_in_with_the_name_as_any_keyboard_writes_it(client, browser):
    ada = (await client("POST", "/api/users", {"name": "Zoe\u0308"}))["user"]
    assert ada["name"] == "Zo\u00eb"
    await browser.set_up(client, ada["id"])
    for typed in ("Zoe\u0308", "zo\u00eb", "Ｚoë"):
        await browser("POST", "/api/session", {"name": typed, "password": PASSWORD})


async def test_what_changes_about_a_person_counts_at_once(client):
    ada = (await client("POST", "/api/users", {"name": "Ada"}))["user"]["id"]
    token = await client.token(await client.registry.accounts.get(ada), "chat", "admin")
    await client("GET", "/api/users", token=token, status=403)
    await client("PATCH", f"/api/users/{ada}", {"role": "admin", "name": "Ada L.", "language": "en-GB"})
    await client("GET", "/api/users", token=await client.token(await client.registry.accounts.get(ada)))
    session = await client(
        "GET", "/api/session", token=await client.token(await client.registry.accounts.get(ada))
    )
    assert (session["user"]["name"], session["user"]["language"]) == ("Ada L.", "en-GB")
    await client("PATCH", "/api/users/ada l.", {"language": ""})
    assert (await client.registry.accounts.get(ada)).language is None


async def test_another_role_ends_sessions_and_tokens_of_an_admin(client, browser):
    ada = (await client("POST", "/api/users", {"name": "Ada", "role": "admin"}))["user"]["id"]
    await browser.set_up(client, ada)
    user = await client.registry.accounts.get(ada)
    managing, chatting = await client.token(user), await client.token(user, "chat")
    await client("PATCH", f"/api/users/{ada}", {"name": "Ada L.", "role": "admin"})
    await browser("GET", "/api/users")
    await client("PATCH", f"/api/users/{ada}", {"role": "guest"})
    await browser("GET", "/api/session", status=401)
    await client("GET", "/api/session", token=managing, status=401)
    await client("GET", "/api/session", token=chatting)


async def test_a_home_keeps_its_first_admin(client):
    await client("POST", "/api/users", {"name": "Ada", "role": "admin"})
    for method, body in (("PATCH", {"role": "member"}), ("DELETE", None)):
        refused = await client(method, "/api/users/admin", body, status=409)
        assert "first admin" in refused["detail"]
    assert [user["role"] for user in await client("GET", "/api/users")] == ["admin", "admin"]


async def test_a_removed_person_is_out_and_their_devices_are_the_admins(client, browser):
    ada = (await client("POST", "/api/users", {"name": "Ada"}))["user"]["id"]
    await browser.set_up(client, ada)
    user = await client.registry.accounts.get(ada)
    tokens = [await client.token(user, "chat"), await client.token(user, kind="device")]
    device = await client.registry.devices.add("TV", owner=ada, may_confirm=True, trusted=True)
    invited = await client.registry.invite(device.id)
    await client.registry.enrolment.enrol(invited.token, KeyPair.generate().public.jwk())
    code = (await client("POST", f"/api/users/{ada}/code"))["code"]
    removed: list[tuple[str, str]] = []

    async def listener(person: str, heir: str) -> None:
        removed.append((person, heir))

    client.registry.people.on_removed(listener)
    assert (await client("DELETE", "/api/users/Ada"))["id"] == ada
    assert removed == [(ada, "admin")]
    await browser("GET", "/api/session", status=401)
    for token in tokens:
        await client("GET", "/api/session", token=token, status=401)
    await browser("POST", "/api/setup", {"code": code, "password": PASSWORD}, status=401)
    await browser("POST", "/api/session", {"name": "Ada", "password": PASSWORD}, status=401)
    (tv,) = await client("GET", "/api/devices")
    assert [tv[field] for field in ("owner", "state", "confirm", "trusted")] == [
        "admin",
        "revoked",
        False,
        False,
    ]
    await client("DELETE", f"/api/users/{ada}", status=404)
    with pytest.raises(NotFound):
        await client.registry.accounts.get(ada)  # as devices and watchers that go on ask
    # The name is free, the id is not: what is known of one person is nothing of the next.
    assert (await client("POST", "/api/users", {"name": "Ada"}))["user"]["id"] == "ada_2"


async def test_what_fails_when_a_person_is_removed_keeps_nothing_else_of_them(client):
    ada = (await client("POST", "/api/users", {"name": "Ada"}))["user"]["id"]
    await client.registry.devices.add("TV", owner=ada)
    told: list[str] = []

    def listener(name: str) -> OnRemoved:
        async def fail(person: str, heir: str) -> None:
            told.append(name)
            raise StorageError("the disk is full")

        return fail

    for name in ("one", "other"):
        client.registry.people.on_removed(listener(name))
    with pytest.raises(StorageError):
        await client.registry.people.remove(ada, heir="admin")
    assert sorted(told) == ["one", "other"]
    assert [device["owner"] for device in await client("GET", "/api/devices")] == ["admin"]


async def test_people_have_their_own_tokens_and_an_admin_all(client, browser):
    ada = (await client("POST", "/api/users", {"name": "Ada"}))["user"]["id"]
    await browser.set_up(client, ada)
    await client("POST", "/api/tokens", {"name": "of-admin", "scopes": ["chat"]})
    token = (await browser("POST", "/api/tokens", {"name": "mine", "scopes": ["chat", "call"]}))["token"]
    own = {each["name"]: each for each in await browser("GET", "/api/tokens")}
    assert {name: each["session"] for name, each in own.items()} == {
        "mine": False,
        "browser (Firefox, Linux)": True,
    }
    assert [name for name, each in own.items() if each["current"]] == ["browser (Firefox, Linux)"]
    everybodys = await client("GET", "/api/tokens?all=true")
    assert {each["name"] for each in everybodys} >= {"mine", "of-admin"}
    of_admin = next(each["jti"] for each in everybodys if each["name"] == "of-admin")
    unknown = await browser("DELETE", "/api/tokens/unknown", status=404)
    assert await browser("DELETE", f"/api/tokens/{of_admin}", status=404) == unknown
    await browser("DELETE", f"/api/tokens/{own['mine']['jti']}", status=204)
    await client("GET", "/api/session", token=token, status=401)
    await client("DELETE", f"/api/tokens/{own['browser (Firefox, Linux)']['jti']}", status=204)
    await browser("GET", "/api/session", status=401)


async def test_a_token_opens_no_more_than_the_one_it_is_made_with(client, browser):
    ada = (await client("POST", "/api/users", {"name": "Ada"}))["user"]["id"]
    await browser.set_up(client, ada)
    body = {"name": "x", "scopes": ["chat", "admin"]}
    assert "'admin'" in (await browser("POST", "/api/tokens", body, status=403))["detail"]
    narrow = await client.token(None, "chat", "confirm")
    await client("POST", "/api/tokens", body, token=narrow, status=403)
    # A program without a person in front of it makes and sees none.
    for token in (await client.token(None, "chat", "call"), await client.token(kind="device")):
        await client("GET", "/api/tokens", token=token, status=403)
        await client("POST", "/api/tokens", {"name": "x", "scopes": ["chat"]}, token=token, status=403)


def test_hosts_of_ipv4_are_told_apart_on_a_listener_for_both_kinds_of_addresses():
    hosts = ("192.0.2.7", "::ffff:192.0.2.7", "::ffff:192.0.2.8", "2001:db8::1", "2001:db8::2")
    sources = [source_of(Request({"type": "http", "client": (host, 1), "headers": []})) for host in hosts]
    assert sources == ["192.0.2.7", "192.0.2.7", "192.0.2.8", "2001:db8::/64", "2001:db8::/64"]


async def test_each_person_has_a_home_of_their_own(client, browser):
    ada = (await client("POST", "/api/users", {"name": "Ada", "role": "guest"}))["user"]["id"]
    await browser.set_up(client, ada)
    card = {"id": "pc.LampSkill", "star": True, "hidden": False, "name": "Lamp", "names": {"power": "On"}}
    await browser("PUT", "/api/home", {"cards": [card]})
    assert (await browser("GET", "/api/home"))["cards"] == [card]
    assert (await client("GET", "/api/home"))["cards"] == []
    await browser("PUT", "/api/home", {"cards": [{**card, "name": "x" * 65}]}, status=422)
    await client("DELETE", f"/api/users/{ada}")
    assert await client.registry.store.read(lambda session: session.get(HomeLayoutRow, ada)) is None
