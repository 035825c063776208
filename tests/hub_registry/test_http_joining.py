"""Joining, logins on the bus and purging, over HTTP."""

from base64 import urlsafe_b64decode

import httpx
import pytest

from contracts.devices.joining import (
    BusAccess,
    EnrolAnswer,
    HubCard,
    JoinAsked,
    JoinState,
    ca_document,
    join_fingerprint,
)
from contracts.errors import Unauthorized
from identity.keys import KeyPair, PublicKey
from tests.proofs import proof_of

CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
LOGIN = {"username": "home", "password": "swordfish"}


def request(key: KeyPair, name: str = "Bedroom PC") -> dict[str, object]:
    return {"name": name, "public_key": key.public.jwk()}


async def ask(client, key: KeyPair) -> httpx.Response:
    return await client.http.post("/api/devices/join", json=request(key), auth=proof_of(key))


@pytest.mark.parametrize("registry_settings", [{"ca": CA}], indirect=True)
async def test_a_device_joins_by_code_and_is_told_all_it_needs(client, hub_key):
    key = KeyPair.generate()
    asked = JoinAsked.model_validate((await ask(client, key)).json())
    (waiting,) = await client("GET", "/api/devices/join")
    fingerprint = join_fingerprint(hub_key=hub_key.kid, device_key=key.kid, ca=CA)
    assert (waiting["code"], waiting["name"], waiting["fingerprint"]) == (
        asked.code,
        "Bedroom PC",
        fingerprint,
    )
    assert waiting["source"] == "127.0.0.1"
    path, shown = f"/api/devices/join/{asked.code}/approve", {"fingerprint": fingerprint}
    await client("POST", path, {"fingerprint": "another"}, status=409)
    approved = await client("POST", path, {**shown, "name": "Office PC"})
    assert approved == {
        "id": "office_pc",
        "key": "office_pc",
        "name": "Office PC",
        "fingerprint": fingerprint,
    }
    answer = await client.http.post("/api/devices/join/poll", json={"secret": asked.secret})
    state = JoinState.model_validate(answer.json())
    assert state.state == "approved"
    enrolment = state.enrolment
    assert (enrolment.device, enrolment.ca, enrolment.brokers) == (
        "office_pc",
        CA,
        ("mqtt://192.0.2.1:1883",),
    )
    assert PublicKey.from_jwk(enrolment.hub_key) == hub_key.public
    (listed,) = await client("GET", "/api/devices")
    assert (listed["id"], listed["state"]) == ("office_pc", "offline")


async def test_an_admin_turns_a_device_away(client):
    asked = (await ask(client, KeyPair.generate())).json()
    await client("DELETE", f"/api/devices/join/{asked['code']}", status=204)
    answer = await client.http.post("/api/devices/join/poll", json={"secret": asked["secret"]})
    assert answer.json() == {"state": "refused", "enrolment": None}
    path = f"/api/devices/join/{asked['code']}/approve"
    await client("POST", path, {"fingerprint": "none"}, status=404)


async def test_wrong_secrets_are_unknown_and_polling_too_often_is_throttled(client):
    asked = (await ask(client, KeyPair.generate())).json()
    answers = [
        (await client.http.post("/api/devices/join/poll", json={"secret": secret})).status_code
        for secret in ("wrong", asked["secret"], asked["secret"])
    ]
    assert answers == [404, 200, 429]


async def test_a_device_that_is_called_join_can_still_be_changed(client):
    await client("POST", "/api/devices", {"name": "Join"})
    assert (await client("PATCH", "/api/devices/join", {"area": "Hall"}))["area"] == "Hall"
    assert (await client("DELETE", "/api/devices/join"))["id"] == "join"


@pytest.mark.parametrize("registry_settings", [{"ca": CA}], indirect=True)
async def test_the_card_of_the_hub_vouches_for_its_authority(client, hub_key):
    card = HubCard.model_validate((await client.http.get("/.well-known/strawberry")).json())
    assert (card.key, PublicKey.from_jwk(card.hub_key)) == (hub_key.kid, hub_key.public)
    signature = urlsafe_b64decode(card.ca_signature + "==")
    assert hub_key.public.verify(signature, ca_document(hub_id=card.hub_id, ca=CA))
    assert not hub_key.public.verify(signature, ca_document(hub_id=card.hub_id, ca=CA + " "))


async def test_a_hub_without_an_authority_says_so(client):
    card = (await client.http.get("/.well-known/strawberry")).json()
    assert (card["ca"], card["ca_signature"]) == (None, None)


@pytest.mark.parametrize(
    "registry_settings", [{"login": LOGIN, "prefix": "strawberry/", "authentication": "login"}], indirect=True
)
async def test_the_login_of_a_shared_broker_is_for_those_who_have_joined(client):
    assert "swordfish" not in (await client.http.get("/.well-known/strawberry")).text
    assert (await client.http.get("/api/bus")).status_code == 401
    await client("GET", "/api/bus", token=await client.token(None, "chat"), status=403)
    bus = BusAccess.model_validate(await client("GET", "/api/bus", token=await client.token(kind="device")))
    assert (bus.prefix, bus.login.username, bus.login.password) == ("strawberry/", "home", "swordfish")
    assert "swordfish" not in repr(bus)

    added = await client("POST", "/api/devices", {"name": "TV"})
    key = KeyPair.generate()
    exported = {**key.public.jwk(), "ext": True, "key_ops": ["verify"]}
    body = {"token": added["token"], "public_key": exported}
    enrolled = await client.http.post("/api/devices/enrol", json=body, auth=proof_of(key))
    joined = EnrolAnswer.model_validate(enrolled.json())
    assert joined.login == bus.login


@pytest.mark.parametrize("registry_settings", [{"login": LOGIN, "authentication": "login"}], indirect=True)
async def test_nobody_is_let_in_on_a_broker_that_is_shared(client):
    refused = await client("POST", "/api/clients", {"name": "explorer"}, status=409)
    assert "on the broker itself" in refused["hint"]


async def test_a_login_for_a_program_is_made_listed_and_removed(client):
    made = await client("POST", "/api/clients", {"name": "node-red", "chat": True, "lifetime_s": 60})
    assert (made["username"], made["chat"], made["brokers"]) == ("node-red", True, ["mqtt://192.0.2.1:1883"])
    with pytest.raises(Unauthorized, match="not for HTTP"):
        client.registry.authority.check(made["password"])
    (listed,) = await client("GET", "/api/clients")
    assert listed["username"] == "node-red"
    assert "password" not in listed
    await client("POST", "/api/clients", {"name": "node-red"}, status=409)
    await client("DELETE", "/api/clients/node-red", status=204)
    await client("DELETE", "/api/clients/node-red", status=404)
    assert await client("GET", "/api/clients") == []


async def test_purging_says_what_became_of_it(client):
    assert await client("POST", "/api/purge") == {
        "emptied": 3,
        "left": ["hub/other/status"],
        "connected": ["tv"],
    }
