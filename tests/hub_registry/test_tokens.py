import asyncio
import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from contracts.errors import NotFound, Unauthorized
from hub_registry.access.token_rows import TokenRequest
from hub_registry.access.tokens import TokenAuthority
from identity import tokens
from identity.keys import KeyPair


def user_token(**changes) -> TokenRequest:
    given = {
        "kind": "user",
        "subject": "admin",
        "owner": "admin",
        "scopes": ["chat", "call"],
        "lifetime_s": 60,
        **changes,
    }
    return TokenRequest(**given)


async def test_a_token_carries_what_was_asked_for(house):
    claims = house.authority.check(await house.authority.issue(user_token()))
    assert (claims.kind, claims.sub, claims.own, claims.scopes) == (
        "user",
        "admin",
        "admin",
        {"chat", "call"},
    )


async def test_an_expired_token_is_refused(house):
    token = await house.authority.issue(user_token(lifetime_s=-60))
    with pytest.raises(Unauthorized, match="expired"):
        house.authority.check(token)


async def test_a_revoked_token_is_refused_here_and_after_a_restart(house):
    token = await house.authority.issue(user_token())
    await house.authority.revoke([house.authority.check(token).jti])
    with pytest.raises(Unauthorized, match="revoked"):
        house.authority.check(token)

    again = TokenAuthority(house.store, hub_id=house.authority.hub_id, key=house.authority.key)
    await again.load()
    with pytest.raises(Unauthorized, match="revoked"):
        again.check(token)


async def test_a_tampered_token_is_refused(house):
    head, body, signature = (await house.authority.issue(user_token(scopes=["chat"]))).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims["scope"] = "register chat call"
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    with pytest.raises(Unauthorized, match="signature"):
        house.authority.check(f"{head}.{forged}.{signature}")


@pytest.mark.parametrize(("algorithm", "with_key"), [("none", False), ("HS256", True)])
async def test_a_token_that_is_not_signed_by_the_hub_is_refused(house, algorithm, with_key):
    good = await house.authority.issue(user_token())
    claims = jwt.decode(good, options={"verify_signature": False})
    public = house.authority.key.public
    secret = public.for_tokens.public_bytes(Encoding.Raw, PublicFormat.Raw) if with_key else None
    forged = jwt.encode(claims, secret, algorithm=algorithm)
    with pytest.raises(Unauthorized, match="EdDSA"):
        house.authority.check(forged)


@pytest.mark.parametrize(
    ("kind", "command"), [("user", "tokens add"), ("client", "broker login"), ("device", "devices invite")]
)
async def test_the_hint_of_a_token_that_is_no_longer_good_is_for_its_kind(house, kind, command):
    claims = house.authority.check(await house.authority.issue(user_token()))
    claims = claims.model_copy(update={"kind": kind, "jti": "of a later time"})
    expired = tokens.issue(house.authority.key, claims.model_copy(update={"exp": 0}))
    with pytest.raises(Unauthorized, match="expired") as error:
        house.authority.check(expired)
    assert f"strawberry {command} NAME" in error.value.hint
    with pytest.raises(Unauthorized, match="not in the backup") as error:
        await house.authority.authenticate(tokens.issue(house.authority.key, claims))
    assert f"strawberry {command} NAME" in error.value.hint
    assert tokens.revoked(claims).hint == error.value.hint


async def test_a_token_for_another_audience_is_refused(house):
    claims = jwt.decode(await house.authority.issue(user_token()), options={"verify_signature": False})
    forged = jwt.encode({**claims, "aud": "elsewhere"}, house.authority.key.for_tokens, algorithm="EdDSA")
    with pytest.raises(Unauthorized, match="audience"):
        house.authority.check(forged)


async def test_a_token_of_another_hub_is_refused_whatever_key_it_has(house):
    other_id = TokenAuthority(house.store, hub_id="hub-other", key=house.authority.key)
    with pytest.raises(Unauthorized, match="another hub"):
        house.authority.check(await other_id.issue(user_token()))
    other_key = TokenAuthority(house.store, hub_id=house.authority.hub_id, key=KeyPair.generate())
    with pytest.raises(Unauthorized, match="signature"):
        house.authority.check(await other_key.issue(user_token()))


async def test_a_renewed_token_ends_its_predecessor_only_when_it_is_used(house):
    old = await house.authority.issue(user_token(name="Node-RED"))
    new = await house.authority.renew(house.authority.check(old), lifetime_s=60)
    assert house.authority.check(old)
    claims = await house.authority.authenticate(new)
    assert claims.scopes == {"chat", "call"}
    with pytest.raises(Unauthorized, match="revoked"):
        house.authority.check(old)
    assert {token.name for token in await house.authority.list()} == {"Node-RED"}


async def test_an_unused_renewal_still_ends_its_predecessor_after_a_restart(house):
    old = await house.authority.issue(user_token())
    new = await house.authority.renew(house.authority.check(old), lifetime_s=60)
    again = TokenAuthority(house.store, hub_id=house.authority.hub_id, key=house.authority.key)
    await again.load()
    await again.authenticate(new)
    with pytest.raises(Unauthorized, match="revoked"):
        again.check(old)


async def test_a_token_that_is_being_revoked_is_not_renewed(house):
    _, _, token = await house.joined("TV")
    claims = house.authority.check(token)
    revoking = house.authority.revoke([claims.jti])
    renewing = house.authority.renew(claims, lifetime_s=60)
    ended = await asyncio.gather(revoking, renewing, return_exceptions=True)
    assert [type(each) for each in ended] == [type(None), Unauthorized]


async def test_every_revocation_is_announced_once_and_kept_until_the_token_expires(house):
    told = []

    async def listener(revocation):
        told.append(revocation.tokens)

    stop = house.authority.on_revoked(listener)
    jtis = [house.authority.check(await house.authority.issue(user_token())).jti for _ in range(3)]
    await house.authority.revoke(jtis[:1])
    await house.authority.revoke_subject("user", "admin")
    stop()
    await house.authority.revoke([jtis[2]])
    assert [sorted(each) for each in told] == [jtis[:1], sorted(jtis[1:])]
    assert house.authority.unexpired_revocations().tokens == sorted(jtis)


async def test_a_token_that_was_never_issued_cannot_be_revoked(house):
    with pytest.raises(NotFound):
        await house.authority.revoke(["nothing"])


async def test_a_token_that_expired_long_ago_is_forgotten(house):
    await house.authority.issue(user_token(lifetime_s=-31 * 24 * 3600))
    kept = await house.authority.issue(user_token())
    await house.authority.forget_expired()
    assert [row.jti for row in await house.authority.list()] == [house.authority.check(kept).jti]
