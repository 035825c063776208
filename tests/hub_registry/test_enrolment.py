import asyncio

import pytest

from contracts.errors import InvalidMessage, NotFound, TooManyRequests, Unauthorized
from identity.keys import KeyPair


async def invited(house, name="Bedroom PC", lifetime_s=600):
    device = await house.devices.add(name, owner="admin")
    return await house.enrolment.invite(device.id, lifetime_s=lifetime_s)


async def test_joining_binds_the_key_and_gives_a_device_token_for_it(house):
    invitation = await invited(house)
    key = KeyPair.generate()
    joined = await house.enrolment.enrol(invitation.token, key.public.jwk())
    claims = house.authority.check(joined.token)
    assert joined.device.public_key == key.public
    assert (claims.kind, claims.sub, claims.own, claims.scopes) == (
        "device",
        "bedroom_pc",
        "admin",
        {"register", "chat"},
    )
    assert claims.cnf is not None
    assert claims.cnf.jkt == key.kid


async def test_an_enrolment_token_works_once_even_when_two_try_at_the_same_time(house):
    invitation = await invited(house)
    tries = await asyncio.gather(
        *(house.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk()) for _ in range(2)),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in tries) == ["Joined", "Unauthorized"]
    with pytest.raises(Unauthorized, match="used already"):
        await house.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk())


async def test_an_expired_enrolment_token_is_refused(house):
    invitation = await invited(house, lifetime_s=-1)
    with pytest.raises(Unauthorized, match="expired"):
        await house.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk())


async def test_a_newer_invitation_ends_the_older_one(house):
    older = await invited(house)
    await house.enrolment.invite("bedroom_pc", lifetime_s=600)
    with pytest.raises(Unauthorized, match="wrong"):
        await house.enrolment.enrol(older.token, KeyPair.generate().public.jwk())


async def test_a_bad_key_does_not_use_up_the_token(house):
    invitation = await invited(house)
    with pytest.raises(InvalidMessage):
        await house.enrolment.enrol(invitation.token, {"kty": "RSA", "n": "x", "e": "AQAB"})
    await house.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk())


async def test_wrong_guesses_are_slowed_down_and_never_a_right_token(house):
    invitation = await invited(house)
    locator = invitation.token.partition(".")[0]
    key = KeyPair.generate().public.jwk()
    for guess in range(5):
        with pytest.raises(Unauthorized, match="wrong"):
            await house.enrolment.enrol(f"{locator}.{guess}", key, source="10.0.0.9")
    with pytest.raises(TooManyRequests):
        await house.enrolment.enrol(f"{locator}.more", key, source="10.0.0.9")
    for source in range(60):
        with pytest.raises(Unauthorized, match="wrong"):
            await house.enrolment.enrol("nonsense", key, source=f"10.0.1.{source}")
    assert await house.enrolment.enrol(invitation.token, key, source="10.0.0.9")


async def test_after_a_minute_the_one_who_guessed_may_try_again(house):
    key = KeyPair.generate().public.jwk()
    for _ in range(5):
        with pytest.raises(Unauthorized):
            await house.enrolment.enrol("nonsense", key, source="10.0.0.9")
    house.clock.now += 60
    with pytest.raises(Unauthorized, match="wrong"):
        await house.enrolment.enrol("nonsense", key, source="10.0.0.9")


async def test_joining_anew_ends_the_tokens_the_device_had(house):
    device, _, old = await house.joined("TV")
    invitation = await house.enrolment.invite(device, lifetime_s=600)
    await house.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk())
    with pytest.raises(Unauthorized, match="revoked"):
        house.authority.check(old)


async def test_revoking_a_device_ends_an_invitation_that_was_not_used(house):
    invitation = await invited(house)
    await house.devices.revoke("bedroom_pc")
    with pytest.raises(Unauthorized):
        await house.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk())


async def test_nobody_is_invited_for_a_device_that_does_not_exist(house):
    with pytest.raises(NotFound):
        await house.enrolment.invite("fridge", lifetime_s=600)


async def test_a_device_that_joins_again_with_another_key_is_trusted_with_nothing(house):
    device = await house.devices.add("Bedroom PC", owner="admin", may_confirm=True, trusted=True)

    async def join(key: KeyPair) -> tuple[bool | None, bool]:
        invitation = await house.enrolment.invite(device.id, lifetime_s=600)
        joined = (await house.enrolment.enrol(invitation.token, key.public.jwk())).device
        return joined.may_confirm, joined.trusted

    own = KeyPair.generate()
    assert await join(own) == (True, True)
    assert await join(own) == (True, True)
    assert await join(KeyPair.generate()) == (False, False)
