import asyncio
import re

import pytest
from sqlmodel import select

from contracts.devices.joining import JoinRequest, join_fingerprint
from contracts.errors import Conflict, InvalidMessage, LinkError, NotFound, TooManyRequests
from hub_registry import limits
from hub_registry.access.joining import Joining
from hub_registry.access.login_sync import LoginSync
from hub_registry.storage.tables import DeviceRow
from identity.keys import KeyPair
from tests.hub_registry.broker_logins import NO, FakeDoor

CA = "-----BEGIN CERTIFICATE-----\n…"
HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def joining(house) -> Joining:
    return opened(house)


def opened(house) -> Joining:
    return Joining(
        house.devices,
        house.enrolment,
        house.authority,
        hub_key=house.authority.key.kid,
        ca=CA,
        clock=house.clock,
    )


def asking(name: str = "Bedroom PC", key: KeyPair | None = None) -> JoinRequest:
    return JoinRequest(name=name, public_key=(key or KeyPair.generate()).public.jwk())


async def test_a_device_shows_a_code_a_person_approves_it_and_the_device_is_let_in(house, joining):
    key = KeyPair.generate()
    asked = await joining.ask(asking(key=key), source=HERE)
    assert re.fullmatch(r"[2-9A-HJKMNP-Z]{4}-[2-9A-HJKMNP-Z]{4}", asked.code)
    assert joining.poll(asked.secret, source=HERE).state == "waiting"

    (waiting,) = joining.waiting()
    fingerprint = join_fingerprint(hub_key=house.authority.key.kid, device_key=key.kid, ca=CA)
    assert (waiting.code, waiting.name, waiting.source) == (asked.code, "Bedroom PC", HERE)
    assert waiting.fingerprint == fingerprint

    approved = await joining.approve(asked.code, owner="admin")
    assert (approved.device.id, approved.fingerprint) == ("bedroom_pc", fingerprint)
    assert joining.waiting() == []
    house.clock.now += asked.interval_s
    answer = joining.poll(asked.secret, source=HERE)
    claims = house.authority.check(answer.joined.token)
    assert (answer.state, claims.sub, claims.cnf.jkt) == ("approved", "bedroom_pc", key.kid)


async def test_case_blanks_and_dashes_of_a_code_do_not_matter(joining):
    asked = await joining.ask(asking(), source=HERE)
    typed = f" {asked.code.lower().replace('-', ' ')} "
    assert (await joining.approve(typed, owner="admin", name="Office PC")).device.display_name == "Office PC"


async def test_what_was_approved_is_handed_out_until_it_was_used_and_then_never_again(house, joining):
    asked = await joining.ask(asking(), source=HERE)
    await joining.approve(asked.code, owner="admin")
    tokens = []
    for _ in range(2):
        house.clock.now += asked.interval_s
        tokens.append(joining.poll(asked.secret, source=HERE).joined.token)
    assert tokens[0] == tokens[1]
    await house.authority.authenticate(tokens[0])
    house.clock.now += asked.interval_s
    answer = joining.poll(asked.secret, source=HERE)
    assert (answer.state, answer.joined) == ("approved", None)


async def test_a_device_that_is_revoked_before_it_came_gets_nothing(house, joining):
    asked = await joining.ask(asking(), source=HERE)
    approved = await joining.approve(asked.code, owner="admin")
    await house.authority.revoke_subject("device", approved.device.id)
    answer = joining.poll(asked.secret, source=HERE)
    assert (answer.state, answer.joined) == ("refused", None)


async def test_a_code_works_once_even_when_two_type_it_at_the_same_time(house, joining):
    asked = await joining.ask(asking(), source=HERE)
    tries = await asyncio.gather(
        *(joining.approve(asked.code, owner="admin") for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in tries) == ["Approved", "NotFound"]
    with pytest.raises(NotFound):
        await joining.approve(asked.code, owner="admin")


async def test_two_devices_at_once_each_get_their_own(house, joining):
    keys = KeyPair.generate(), KeyPair.generate()
    first = await joining.ask(asking("TV", keys[0]), source=HERE)
    second = await joining.ask(asking("Radio", keys[1]), source=THERE)
    await asyncio.gather(*(joining.approve(each.code, owner="admin") for each in (second, first)))
    for asked, key, device in ((first, keys[0], "tv"), (second, keys[1], "radio")):
        claims = house.authority.check(joining.poll(asked.secret, source=HERE).joined.token)
        assert (claims.sub, claims.cnf.jkt) == (device, key.kid)


async def test_two_codes_of_one_key_that_are_approved_at_once_make_one_device(house, joining):
    key = KeyPair.generate()
    codes = [(await joining.ask(asking(name, key), source=HERE)).code for name in ("TV", "Telly")]
    tries = await asyncio.gather(
        *(joining.approve(code, owner="admin") for code in codes), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in tries) == ["Approved", "Conflict"]
    (approved,) = (each for each in tries if not isinstance(each, BaseException))
    rows = await house.store.read(lambda session: [row.id for row in session.exec(select(DeviceRow))])
    assert rows == [approved.device.id]


async def test_a_code_expires_and_so_does_its_secret(house, joining):
    asked = await joining.ask(asking(), source=HERE)
    house.clock.now += asked.expires_in_s
    with pytest.raises(NotFound, match="no device is waiting"):
        await joining.approve(asked.code, owner="admin")
    with pytest.raises(NotFound):
        joining.poll(asked.secret, source=HERE)
    assert joining.waiting() == []


async def test_who_is_let_in_in_the_last_second_still_has_time_to_come(house, joining):
    asked = await joining.ask(asking(), source=HERE)
    house.clock.now += asked.expires_in_s - 1
    await joining.approve(asked.code, owner="admin")
    house.clock.now += 30
    assert joining.poll(asked.secret, source=HERE).joined


async def test_a_refused_device_is_told_so_and_its_code_is_gone(joining):
    asked = await joining.ask(asking(), source=HERE)
    joining.refuse(asked.code, by="admin")
    assert joining.poll(asked.secret, source=HERE).state == "refused"
    with pytest.raises(NotFound):
        await joining.approve(asked.code, owner="admin")


async def test_the_code_is_no_secret_and_the_secret_no_code(joining):
    asked = await joining.ask(asking(), source=HERE)
    with pytest.raises(NotFound):
        joining.poll(asked.code, source=HERE)
    with pytest.raises(NotFound):
        await joining.approve(asked.secret, owner="admin")


async def test_the_secret_of_one_device_brings_nothing_of_another(house, joining):
    victim = await joining.ask(asking("TV"), source=HERE)
    other = await joining.ask(asking("Radio"), source=THERE)
    await joining.approve(victim.code, owner="admin")
    assert joining.poll(other.secret, source=THERE).state == "waiting"


async def test_a_secret_has_128_bits_and_stands_nowhere_in_memory_as_it_is(joining):
    asked = await joining.ask(asking(), source=HERE)
    assert len(asked.secret) == 22
    assert asked.secret not in repr([vars(each) for each in joining._requests])
    assert asked.secret not in repr(asked)


async def test_who_guesses_codes_must_soon_wait(house, joining):
    asked = await joining.ask(asking(), source=HERE)
    for _ in range(10):
        with pytest.raises(NotFound):
            await joining.approve("AAAA-AAAA", owner="admin")
    with pytest.raises(TooManyRequests):
        await joining.approve(asked.code, owner="admin")
    house.clock.now += 60
    assert await joining.approve(asked.code, owner="admin")


async def test_who_guesses_secrets_must_soon_wait_and_who_waits_need_not(joining):
    asked = await joining.ask(asking(), source=HERE)
    for guess in range(10):
        with pytest.raises(NotFound):
            joining.poll(f"guess {guess}", source=THERE)
    with pytest.raises(TooManyRequests):
        joining.poll("guess 10", source=THERE)
    assert joining.poll(asked.secret, source=THERE).state == "waiting"


async def test_who_asks_sooner_than_told_is_refused(house, joining):
    asked = await joining.ask(asking(), source=HERE)
    joining.poll(asked.secret, source=HERE)
    with pytest.raises(TooManyRequests, match="too soon"):
        joining.poll(asked.secret, source=HERE)
    house.clock.now += asked.interval_s
    assert joining.poll(asked.secret, source=HERE).state == "waiting"


async def test_one_address_may_ask_for_a_few_codes_a_minute_and_others_still_may(house, joining):
    for number in range(6):
        await joining.ask(asking(f"PC {number}"), source=HERE)
    with pytest.raises(TooManyRequests):
        await joining.ask(asking(), source=HERE)
    assert await joining.ask(asking(), source=THERE)
    house.clock.now += 60
    assert await joining.ask(asking(), source=HERE)


async def test_all_addresses_together_have_a_limit_that_passes(house, joining):
    for number in range(60):
        await joining.ask(asking(), source=f"192.0.2.{number}")
    with pytest.raises(TooManyRequests):
        await joining.ask(asking(), source="192.0.2.99")
    house.clock.now += 1
    assert await joining.ask(asking(), source="192.0.2.99")


async def test_a_flood_of_one_address_displaces_its_own_requests_and_not_those_of_others(house, monkeypatch):
    monkeypatch.setattr(limits, "JOINS_WAITING", 4)
    monkeypatch.setattr(limits, "JOINS_ASKED", 100)
    joining = opened(house)
    honest = await joining.ask(asking("TV"), source=HERE)
    for number in range(20):
        await joining.ask(asking(f"Flood {number}"), source=THERE)
    assert len(joining.waiting()) == 4
    assert joining.waiting()[0].code == honest.code
    assert await joining.ask(asking("Radio"), source="192.0.2.3")
    assert honest.code in {each.code for each in joining.waiting()}


async def test_a_key_that_a_device_lives_with_cannot_join_again(house, joining):
    _, key, token = await house.joined("TV")
    await house.authority.authenticate(token)
    with pytest.raises(Conflict, match="already"):
        await joining.ask(asking("Other", key), source=HERE)
    assert house.authority.check(token)


async def test_a_key_that_another_device_bound_meanwhile_is_refused_at_the_approval(house, joining):
    key = KeyPair.generate()
    asked = await joining.ask(asking("Other", key), source=HERE)
    device = await house.devices.add("TV", owner="admin")
    invitation = await house.enrolment.invite(device.id, lifetime_s=60)
    joined = await house.enrolment.enrol(invitation.token, key.public.jwk())
    await house.authority.authenticate(joined.token)
    with pytest.raises(Conflict, match="already"):
        await joining.approve(asked.code, owner="admin")
    assert house.authority.check(joined.token)
    assert joining.waiting()


async def test_a_device_whose_answer_was_lost_with_a_restart_of_the_hub_asks_anew(house, joining):
    key = KeyPair.generate()
    asked = await joining.ask(asking("TV", key), source=HERE)
    first = await joining.approve(asked.code, owner="admin")
    restarted = opened(house)
    with pytest.raises(NotFound):
        restarted.poll(asked.secret, source=HERE)
    again = await restarted.ask(asking("TV", key), source=HERE)
    second = await restarted.approve(again.code, owner="admin", name="Telly")
    assert (second.device.id, second.device.display_name) == (first.device.id, "Telly")
    assert house.authority.check(restarted.poll(again.secret, source=HERE).joined.token).sub == "tv"


async def test_a_name_that_is_taken_leaves_the_device_waiting_for_another(house, joining):
    await house.devices.add("TV", owner="admin")
    asked = await joining.ask(asking("TV"), source=HERE)
    with pytest.raises(Conflict, match="'TV'"):
        await joining.approve(asked.code, owner="admin")
    assert (await joining.approve(asked.code, owner="admin", name="Telly")).device.id == "telly"


async def test_a_device_that_the_broker_refuses_was_never_there_and_goes_on_waiting(house, joining):
    door = FakeDoor()
    house.authority.use_logins(LoginSync(house.authority, door))
    asked = await joining.ask(asking("TV"), source=HERE)
    door.trouble = NO
    with pytest.raises(LinkError):
        await joining.approve(asked.code, owner="admin")
    assert await house.devices.retired() == set()
    door.trouble = None
    assert (await joining.approve(asked.code, owner="admin")).device.id == "tv"
    assert door.has("tv", joining.poll(asked.secret, source=HERE).joined.token)


@pytest.mark.parametrize("name", [" ", "TV\x1b[2J", "a\nb", "a\u202eb"])
async def test_a_name_that_would_garble_a_screen_is_refused(joining, name):
    with pytest.raises(InvalidMessage):
        await joining.ask(asking(name), source=HERE)


async def test_what_is_no_public_key_is_refused(joining):
    with pytest.raises(InvalidMessage):
        await joining.ask(JoinRequest(name="TV", public_key={"kty": "RSA"}), source=HERE)
