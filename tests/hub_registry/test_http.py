import time
from base64 import urlsafe_b64encode

import httpx
import jwt
import pytest

from agent_core.search.directory import RegisteredSkill
from contracts.claims import Claims
from contracts.errors import Unauthorized
from hub_registry.storage.tables import now
from identity.keys import KeyPair
from identity.logins.challenges import proves_hub
from identity.logins.proofs import make_proof
from tests.hub_registry.spokes import registration
from tests.proofs import Authorization, proof_of


async def test_a_device_is_added_and_joins_with_what_it_was_given(client, hub_key):
    added = await client("POST", "/api/devices", {"name": "Bedroom PC", "area": "Bedroom"})
    assert added["id"] == "bedroom_pc"
    assert added["command"] == (
        # Without TLS a device joins over the network only where that is spelled out.
        f"strawberry spoke run --hub http://hub.local:8321 --hub-key {hub_key.kid} --insecure"
    )
    assert added["reachable"]
    assert added["token"] not in added["command"]

    key = KeyPair.generate()
    body = {"token": added["token"], "public_key": key.public.jwk()}
    answer = await client.http.post("/api/devices/enrol", json=body, auth=proof_of(key))
    joined = answer.json()
    token, bus_token = joined.pop("token"), joined.pop("bus_token")
    assert client.registry.authority.check(token).sub == "bedroom_pc"
    assert bus_token == client.registry.authority.bus_token(token)
    assert joined == {
        "device": "bedroom_pc",
        "hub_id": client.registry.hub_id,
        "hub_key": hub_key.public.jwk(),
        "brokers": ["mqtt://192.0.2.1:1883"],
        "prefix": "",
        "authentication": "proof",
        "login": None,
        "ca": None,
        "qos": 1,
        "profile": {
            "name": "Bedroom PC",
            "key": "bedroom_pc",
            "aliases": [],
            "area": "Bedroom",
            "floor": None,
            "may_confirm": False,
        },
    }
    # An answer that did not arrive is asked for again, until its token was used.
    repeated = await client.http.post("/api/devices/enrol", json=body, auth=proof_of(key))
    with pytest.raises(Unauthorized, match="revoked"):
        client.registry.authority.check(token)
    token = repeated.json()["token"]
    assert (await client.http.get("/api/bus", auth=Authorization(token, {key.kid: key}))).status_code == 200
    again = await client.http.post("/api/devices/enrol", json=body, auth=proof_of(key))
    assert again.status_code == 401
    assert again.json()["detail"] == "the enrolment token was used already"


async def test_guessing_enrolment_tokens_is_soon_refused(client):
    key = KeyPair.generate()
    body = {"token": "x.y", "public_key": key.public.jwk()}
    answers = [
        (await client.http.post("/api/devices/enrol", json=body, auth=proof_of(key))).status_code
        for _ in range(5)
    ]
    assert answers == [401, 401, 401, 429, 429]


async def test_anybody_may_see_which_hub_this_is(client, hub_key):
    known = (await client.http.get("/.well-known/strawberry")).json()
    assert (known["hub_id"], known["key"]) == (client.registry.hub_id, hub_key.kid)
    (key,) = (await client.http.get("/.well-known/jwks.json")).json()["keys"]
    assert (key["kid"], key["alg"]) == (hub_key.kid, "EdDSA")
    assert "d" not in key


async def test_devices_are_listed_renamed_and_removed_by_any_of_their_names(client):
    await client("POST", "/api/devices", {"name": "TV"})
    changed = await client("PATCH", "/api/devices/TV", {"name": "Projector", "aliases": ["beamer"]})
    assert (changed["id"], changed["key"], changed["name"]) == ("tv", "projector", "Projector")
    (listed,) = await client("GET", "/api/devices")
    assert (listed["id"], listed["state"], listed["aliases"]) == ("tv", "invited", ["beamer"])
    removed = await client("DELETE", "/api/devices/beamer")
    assert removed["id"] == "tv"
    assert await client("GET", "/api/devices") == []


async def test_an_unknown_device_is_named_with_the_nearest(client):
    await client("POST", "/api/devices", {"name": "Radio"})
    answer = await client("PATCH", "/api/devices/radios", {"area": "Kitchen"}, status=404)
    assert "radio" in answer["hint"]


async def test_a_revoked_device_stays_listed_and_can_be_invited_anew(client):
    await client("POST", "/api/devices", {"name": "TV"})
    assert (await client("POST", "/api/devices/tv/revoke"))["state"] == "revoked"
    invitation = await client("POST", "/api/devices/tv/invitations")
    key = KeyPair.generate()
    body = {"token": invitation["token"], "public_key": key.public.jwk()}
    assert (await client.http.post("/api/devices/enrol", json=body, auth=proof_of(key))).status_code == 200
    (listed,) = await client("GET", "/api/devices")
    assert listed["state"] == "offline"


async def test_a_program_gets_a_token_with_chosen_scopes_that_can_be_revoked(client):
    token = (await client("POST", "/api/tokens", {"name": "Node-RED", "scopes": ["chat"]}))["token"]
    assert client.registry.authority.check(token).scopes == {"chat"}
    await client("GET", "/api/skills", token=token)
    listed = next(each for each in await client("GET", "/api/tokens") if each["name"] == "Node-RED")
    await client("DELETE", f"/api/tokens/{listed['jti']}", status=204)
    refused = await client("GET", "/api/skills", token=token, status=401)
    assert "revoked" in refused["detail"]


ADMIN_ONLY = [
    ("POST", "/api/devices", {"name": "X"}),
    ("PATCH", "/api/devices/tv", {"area": "X"}),
    ("DELETE", "/api/devices/tv", None),
    ("POST", "/api/devices/tv/revoke", None),
    ("POST", "/api/devices/tv/invitations", None),
    ("GET", "/api/tokens?all=true", None),
    ("GET", "/api/users", None),
    ("POST", "/api/users", {"name": "Eve"}),
    ("PATCH", "/api/users/ada", {"role": "admin"}),
    ("DELETE", "/api/users/ada", None),
    ("POST", "/api/users/ada/code", None),
    ("GET", "/api/devices/join", None),
    ("POST", "/api/devices/join/AAAA-AAAA/approve", {"fingerprint": ""}),
    ("DELETE", "/api/devices/join/AAAA-AAAA", None),
    ("GET", "/api/clients", None),
    ("POST", "/api/clients", {"name": "explorer"}),
    ("DELETE", "/api/clients/explorer", None),
    ("POST", "/api/purge", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ADMIN_ONLY)
async def test_only_an_admin_in_person_administers(client, method, path, body):
    await client("POST", "/api/devices", {"name": "TV", "shared": True})
    member = await client.registry.accounts.add("Ada", role="member")
    for token in (
        await client.token(member),
        await client.token(None, "register", "chat", "call", "confirm"),
        await client.token(member, "admin"),
        await client.token(kind="device"),
    ):
        assert (await client(method, path, body, token=token, status=403))["code"] == "forbidden"
    assert (await client.http.request(method, path, json=body)).status_code == 401


async def test_a_login_for_mqtt_opens_nothing_over_http(client):
    login = await client.token(None, "chat", kind="client")
    for path in ("/api/skills", "/api/bus", "/api/devices"):
        refused = await client("GET", path, token=login, status=401)
        assert refused["detail"] == "the token is not for HTTP"


@pytest.mark.parametrize("path", ["/api/skills", "/api/skills/search?q=x", "/api/skills/describe?path=x"])
async def test_skills_are_for_those_with_a_token_that_may_chat_or_call(client, path):
    assert (await client.http.get(path)).status_code == 401
    await client("GET", path, token=await client.token(None, "register"), status=403)


@pytest.mark.parametrize("header", ["", "Basic abc", "Bearer", "Bearer ", "Bearer nonsense", "Bearer a.b.c"])
async def test_what_is_no_token_is_refused(client, header):
    answer = await client.http.get("/api/devices", headers={"authorization": header})
    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthorized"


async def test_a_token_of_a_device_counts_only_with_a_proof_of_its_key(client):
    token, key = await client.token(kind="device"), KeyPair.generate()
    own = client.keys[Claims.model_validate(jwt.decode(token, options={"verify_signature": False})).cnf.jkt]
    url, present = f"{client.http.base_url}/api/skills", time.time()

    async def refusal(by: KeyPair, *, scheme: str = "DPoP", **changes) -> str:
        made = {"method": "GET", "target": url, "token": token, "now": present, **changes}
        headers = {"authorization": f"{scheme} {token}", "dpop": make_proof(by, **made)}
        answers = [await client.http.get("/api/skills", headers=headers) for _ in range(2)]
        assert answers[1].status_code == 401
        told = answers[0].json()
        return "" if answers[0].status_code == 200 else f"{told['detail']} {told['hint']}"

    assert await refusal(own) == ""  # and refused the second time
    assert "counts only with a proof" in await refusal(own, scheme="Bearer")
    assert "another key" in await refusal(key)
    assert "another token" in await refusal(own, token="another")
    assert "for 'POST'" in await refusal(own, method="POST")
    assert "/api/bus" in await refusal(own, target=url.replace("skills", "bus"))
    assert "not now" in await refusal(own, now=present - 120)
    assert "http://[" in await refusal(own, target="http://[")


async def test_a_key_under_which_anything_can_be_signed_does_not_join(client):
    added = await client("POST", "/api/devices", {"name": "TV"})
    key = KeyPair.generate()
    for point in (b"\1" + bytes(31), bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f"):
        jwk = {"kty": "OKP", "crv": "Ed25519", "x": urlsafe_b64encode(point).rstrip(b"=").decode()}
        body = {"token": added["token"], "public_key": jwk}
        answer = await client.http.post("/api/devices/enrol", json=body, auth=proof_of(key))
        assert (answer.status_code, answer.json()["detail"]) == (
            422,
            "the key is not a safe Ed25519 key",
        )
    body = {"token": added["token"], "public_key": KeyPair.generate().public.jwk()}
    for auth in (None, proof_of(key)):
        assert (await client.http.post("/api/devices/enrol", json=body, auth=auth)).status_code == 401


async def test_the_hub_proves_that_it_answers(client, hub_key):
    async def proof(challenge: str) -> httpx.Response:
        return await client.http.get("/.well-known/strawberry", params={"challenge": challenge})

    card, host = (await proof("c" * 22)).json(), client.http.base_url.netloc.decode()
    assert proves_hub(card, key_id=hub_key.kid, challenge="c" * 22, host=host)
    assert not proves_hub(card, key_id=hub_key.kid, challenge="d" * 22, host=host)
    assert not proves_hub(card, key_id=hub_key.kid, challenge="c" * 22, host="elsewhere:8321")
    assert not proves_hub(card, key_id=KeyPair.generate().kid, challenge="c" * 22, host=host)
    assert (await proof("short")).status_code == 422


async def test_a_device_renews_its_token_and_a_person_does_not(client):
    device = await client.token(kind="device")
    renewed = (await client("POST", "/api/tokens/renew", token=device))["token"]
    await client("GET", "/api/skills", token=device)
    await client("GET", "/api/skills", token=renewed)
    await client("GET", "/api/skills", token=device, status=401)
    await client("POST", "/api/tokens/renew", status=403)


async def test_a_device_renews_its_token_a_few_times_a_day_and_no_more(client):
    device = await client.token(kind="device")
    for _ in range(12):
        await client("POST", "/api/tokens/renew", token=device)
    await client("POST", "/api/tokens/renew", token=device, status=429)


async def test_skills_are_searched_and_described(client):
    await client("POST", "/api/devices", {"name": "TV"})
    directory = client.registry.directory
    directory.get("tv").last_heartbeat = now()
    directory.put_skill("tv", RegisteredSkill.of(registration("MediaSkill", "set_volume", "play"), "1"))
    while client.registry.search.sync() is not None:
        pass  # the first words that are indexed take longer than one slice on a busy machine
    everything = await client("GET", "/api/skills")
    assert (len(everything["results"]), everything["more"]) == (2, 0)
    (found,) = (await client("GET", "/api/skills/search?q=volume&limit=5"))["results"]
    assert found["path"] == "devices.tv.MediaSkill.set_volume"
    assert found["unavailable"] == {"tv": "not joined yet"}
    described = await client("GET", f"/api/skills/describe?path={found['path']}")
    assert described["text"].startswith("def set_volume(level: int = 30) -> None:")
    assert await client("GET", "/api/skills/describe?path=MediaSkill.set_volume") == {
        **described,
        "path": "MediaSkill.set_volume",
    }
    unknown = await client("GET", "/api/skills/describe?path=devices.tv.MediaSkill.volume", status=404)
    assert "set_volume" in unknown["hint"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/devices", {}),
        ("POST", "/api/devices", {"name": ""}),
        ("POST", "/api/devices", {"name": "x", "what": 1}),
        ("POST", "/api/tokens", {"name": "x", "scopes": ["everything"]}),
        ("POST", "/api/tokens", {"name": "x", "scopes": []}),
        ("GET", "/api/skills/search?limit=0", None),
    ],
)
async def test_a_bad_request_says_what_is_wrong_with_it(client, method, path, body):
    answer = await client(method, path, body, status=422)
    assert answer["detail"]
