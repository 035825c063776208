"""Database and broker are changed together, whatever the broker says."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlmodel import delete

from contracts.errors import Conflict, LinkError, Unauthorized
from hub_registry.access.clients import Clients
from hub_registry.access.login_sync import LoginSync
from hub_registry.access.token_rows import TokenRequest, revoke_rows
from hub_registry.access.tokens import TokenAuthority
from hub_registry.registry import open_registry
from hub_registry.settings import RegistrySettings
from hub_registry.storage.tables import TokenRow
from identity import tokens
from identity.keys import KeyPair
from tests.hub_registry.broker_logins import AWAY, NO, FakeDoor
from tests.hub_registry.conftest import House
from tests.hub_registry.hubs import serve
from tests.hub_registry.spokes import eventually


@pytest.fixture
def logins() -> FakeDoor:
    return FakeDoor()


@pytest.fixture
async def sync(house: House, logins: FakeDoor) -> AsyncIterator[LoginSync]:
    """Runs as it does in the hub."""
    sync = LoginSync(house.authority, logins)
    stop = house.authority.use_logins(sync)
    async with asyncio.TaskGroup() as running:
        task = running.create_task(sync.run())
        yield sync
        task.cancel()
    stop()


async def renewed(house: House, token: str) -> str:
    return await house.authority.renew(house.authority.check(token), lifetime_s=60)


async def test_a_token_comes_out_of_the_database_byte_for_byte_as_it_was_given_out(house):
    _, _, device = await house.joined("TV")
    clients = Clients(house.store, house.authority, instance="main")
    _, client = await clients.add("explorer", owner="admin", chat=True, lifetime_s=60)
    again = TokenAuthority(house.store, hub_id=house.authority.hub_id, key=house.authority.key)
    await again.load()
    made = {each.principal.id: each.token.get_secret_value() for each in again.bus_logins()}
    assert made == {"tv": house.authority.bus_token(device), "explorer": client.get_secret_value()}


def test_the_same_claims_make_the_same_token_in_every_version(tmp_path):
    pem = (
        "-----BEGIN PRIVATE KEY-----\n"
        "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
        "-----END PRIVATE KEY-----\n"
    )
    path = tmp_path / "key.pem"
    path.write_text(pem)
    claims = tokens.make_claims(
        hub_id="hub-1",
        subject="tv",
        kind="device",
        owner="admin",
        scopes=("register", "chat"),
        lifetime_s=60,
        key=KeyPair.load(path).public,
        now=1_700_000_000,
    ).model_copy(update={"jti": "0" * 32, "aud": "mqtt"})
    # A broker that compares passwords has this one; another order or spacing would lock everybody out.
    assert tokens.issue(KeyPair.load(path), claims) == EXPECTED


EXPECTED = (
    "eyJhbGciOiJFZERTQSIsImtpZCI6IjFJRzJ0TUg3SjJ3Ykpabk9mOExKelFpdEtmN0xNdm9BRWxzdURNVk01NFkiLC"
    "J0eXAiOiJKV1QifQ.eyJpc3MiOiJodWItMSIsInN1YiI6InR2Iiwia2luZCI6ImRldmljZSIsIm93biI6ImFkbWluI"
    "iwiYXVkIjoibXF0dCIsInNjb3BlIjoicmVnaXN0ZXIgY2hhdCIsImlhdCI6MTcwMDAwMDAwMCwiZXhwIjoxNzAwMDA"
    "wMDYwLCJqdGkiOiIwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMCIsImNuZiI6eyJqa3QiOiIxSUcydE1IN"
    "0oyd2JKWm5PZjhMSnpRaXRLZjdMTXZvQUVsc3VETVZNNTRZIn19.pKmZ8mgVyr04RMd-x8832K4Bw1IQZDxUpE4mXm"
    "WyNIuCNAe1au4EWZFjjm-KISoQcytj7Q1xPsBkgbBoXamXBA"
)


async def test_who_joins_is_let_in_and_who_is_revoked_is_shut_out(house, logins, sync):
    device, _, token = await house.joined("TV")
    assert logins.has(device, token)
    await house.authority.revoke_subject("device", device)
    assert (logins.password(device), logins.kicked) == (None, [device])


async def test_who_was_let_in_just_before_the_revocation_is_shut_out_too(house, logins, sync):
    logins.answer_s = 0.01
    device, _, token = await house.joined("TV")
    await eventually(lambda: logins.settled == 1)
    await house.authority.revoke_subject("device", device)
    logins.passwords["device", device] = token
    await eventually(lambda: logins.password(device) is None)


async def test_a_renewed_token_is_the_password_only_after_its_first_use(house, logins, sync):
    device, _, old = await house.joined("TV")
    lost, new = await renewed(house, old), await renewed(house, old)
    assert logins.has(device, old)
    await house.authority.authenticate(old)
    assert logins.has(device, old)
    await house.authority.authenticate(new)
    assert logins.has(device, new)
    for ended in (old, lost):
        with pytest.raises(Unauthorized, match="revoked"):
            await house.authority.authenticate(ended)


async def test_a_broker_that_refuses_a_renewed_token_leaves_both_tokens_good(house, logins, sync):
    device, _, old = await house.joined("TV")
    new = await renewed(house, old)
    logins.trouble = NO
    for token in (new, old):
        assert await house.authority.authenticate(token)
    assert logins.has(device, old)
    logins.trouble = None
    await house.authority.authenticate(new)
    assert logins.has(device, new)


async def test_a_renewed_token_that_is_used_while_the_broker_is_away_is_the_password_later(
    house, logins, sync
):
    device, _, old = await house.joined("TV")
    new = await renewed(house, old)
    logins.trouble = AWAY
    await house.authority.authenticate(new)
    with pytest.raises(Unauthorized, match="revoked"):
        house.authority.check(old)
    assert logins.has(device, old)
    logins.trouble = None
    await sync.sync()
    assert logins.has(device, new)


async def test_revoking_a_token_ends_what_was_renewed_from_it_too(house, logins, sync):
    device, _, token = await house.joined("TV")
    stolen = await renewed(house, token)
    await house.authority.revoke([house.authority.check(token).jti])
    assert logins.password(device) is None
    with pytest.raises(Unauthorized, match="revoked"):
        await house.authority.authenticate(stolen)


async def test_revoking_a_renewal_that_was_never_used_disconnects_nobody(house, logins, sync):
    device, _, token = await house.joined("TV")
    unused = await renewed(house, token)
    await house.authority.revoke([house.authority.check(unused).jti])
    assert (logins.has(device, token), logins.kicked) == (True, [])


async def test_who_the_broker_does_not_let_in_has_not_joined_and_may_try_again(house, logins, sync):
    device = await house.devices.add("TV", owner="admin")
    invitation = await house.enrolment.invite(device.id, lifetime_s=600)
    key = KeyPair.generate()
    logins.trouble = Conflict("somebody else is called tv there")
    with pytest.raises(Conflict, match="somebody else"):
        await house.enrolment.enrol(invitation.token, key.public.jwk())
    assert await house.authority.list() == []
    assert await house.devices.with_key(key.public) is None
    logins.trouble = None
    joined = await house.enrolment.enrol(invitation.token, key.public.jwk())
    assert logins.has("tv", joined.token)


async def test_joining_anew_that_the_broker_refuses_leaves_the_device_as_it_was(house, logins, sync):
    device, key, token = await house.joined("TV")
    invitation = await house.enrolment.invite(device, lifetime_s=600)
    logins.trouble = NO
    with pytest.raises(LinkError):
        await house.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk())
    assert house.authority.check(token)
    assert (await house.devices.with_key(key.public)).id == device
    assert logins.has(device, token)


async def test_a_wrong_enrolment_token_never_reaches_the_broker(house, logins, sync):
    _, _, token = await house.joined("TV")
    with pytest.raises(Unauthorized):
        await house.enrolment.enrol("wrong.wrong", KeyPair.generate().public.jwk())
    assert (logins.has("tv", token), logins.kicked) == (True, [])


async def test_a_database_that_fails_after_the_broker_agreed_has_the_broker_set_right(house, logins, sync):
    _, _, token = await house.joined("TV")
    claims, _ = house.authority.prepare(
        TokenRequest(kind="device", subject="tv", owner="admin", scopes=(), lifetime_s=60)
    )
    with pytest.raises(RuntimeError, match="disk"):
        async with house.authority.acts, house.authority.admitting(claims):
            raise RuntimeError("the disk is full")
    assert not logins.has("tv", token)
    await eventually(lambda: logins.has("tv", token))


async def test_an_act_that_was_cut_short_after_it_reached_the_database_counts(house, logins, sync):
    _, _, old = await house.joined("TV")
    claims, row = house.authority.prepare(
        TokenRequest(kind="device", subject="tv", owner="admin", scopes=(), lifetime_s=60)
    )

    def work(session) -> None:
        revoke_rows(session, "device", "tv")
        session.add(row)

    async def cut_short() -> None:
        async with house.authority.acts, house.authority.admitting(claims):
            await house.store.write(work)
            raise RuntimeError("the request was cut off")

    with pytest.raises(RuntimeError):
        await cut_short()
    new = tokens.issue(house.authority.key, claims)
    logins.passwords.clear()
    await eventually(lambda: logins.has("tv", new))
    with pytest.raises(Unauthorized, match="revoked"):
        house.authority.check(old)


async def test_what_the_broker_refuses_to_revoke_is_an_error_and_is_tried_again(house, logins, sync):
    device, _, token = await house.joined("TV")
    logins.trouble = NO
    with pytest.raises(LinkError, match="still accepts the login of tv") as refused:
        await house.authority.revoke_subject("device", device)
    assert "asked again" in refused.value.hint
    with pytest.raises(Unauthorized, match="revoked"):
        house.authority.check(token)
    logins.trouble = None
    await eventually(lambda: logins.password(device) is None)


async def test_a_revocation_while_the_broker_is_away_holds_over_http_at_once_and_there_later(
    house, logins, sync
):
    device, _, token = await house.joined("TV")
    logins.trouble = AWAY
    await house.authority.revoke_subject("device", device)
    with pytest.raises(Unauthorized, match="revoked"):
        house.authority.check(token)
    assert logins.has(device, token)
    logins.trouble = None
    await sync.sync()
    assert logins.password(device) is None


async def test_who_joins_while_the_broker_is_away_is_let_in_when_it_is_back(house, logins, sync):
    logins.trouble = AWAY
    device, _, token = await house.joined("TV")
    logins.trouble = None
    await eventually(lambda: logins.has(device, token))


async def test_the_broker_is_told_when_a_token_expires(house, logins, sync):
    await house.authority.issue(
        TokenRequest(kind="client", subject="explorer", owner="admin", scopes=(), lifetime_s=1)
    )
    await eventually(lambda: logins.kicked == ["explorer"])
    assert logins.password("explorer", "client") is None


async def test_the_tokens_of_a_person_are_no_logins_on_the_bus(house, logins, sync):
    request = TokenRequest(kind="user", subject="admin", owner="admin", scopes=("chat",), lifetime_s=60)
    first, second = await house.authority.issue(request), await house.authority.issue(request)
    await house.authority.revoke([house.authority.check(first).jti])
    assert house.authority.check(second)
    assert logins.passwords == {}


async def test_after_a_restart_the_broker_is_told_the_one_good_token_of_each(house, logins):
    device, _, old = await house.joined("TV")
    new = await renewed(house, old)
    await house.authority.authenticate(new)
    unused = await renewed(house, new)
    again = TokenAuthority(house.store, hub_id=house.authority.hub_id, key=house.authority.key)
    await again.load()
    await LoginSync(again, logins).sync()
    assert logins.has(device, new)
    assert again.awaits_first_use(device) is False
    assert again.was_used(again.check(unused).jti) is False


async def test_a_token_whose_row_is_gone_is_not_let_in(house, logins):
    await house.joined("TV")
    await house.store.write(lambda session: session.exec(delete(TokenRow)))
    again = TokenAuthority(house.store, hub_id=house.authority.hub_id, key=house.authority.key)
    await again.load()
    await LoginSync(again, logins).sync()
    assert logins.passwords == {}


@pytest.mark.parametrize("trouble", [AWAY, NO])
async def test_a_broker_that_cannot_be_told_does_not_keep_the_hub_from_being_there(
    trouble, logins, mosquitto, tmp_path, hub_key
):
    logins.trouble = trouble
    settings = RegistrySettings(database=tmp_path / "hub.db")
    async with (
        open_registry(settings, key=hub_key) as registry,
        # Entered once the hub has said that it is online.
        serve(registry, mosquitto.url, logins=lambda _: logins) as hub,
    ):
        spoke = await hub.joined("TV") if trouble is AWAY else None
        logins.trouble = None
        await eventually(lambda: logins.settled)
        assert spoke is None or logins.password(spoke.device)
