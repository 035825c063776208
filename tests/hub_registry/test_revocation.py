"""Joining, renewing and revoking on our own brokers: one act for the database, the bus and HTTP."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from pydantic import SecretStr

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from bus.link import open_link
from contracts import topics
from contracts.errors import LoginRefused, Unauthorized
from hub_registry.devices.presence import PresenceState
from hub_registry.limits import CENTURY_S
from identity.keys import KeyPair
from tests.hub_registry.hubs import Hub, hub_login, serve
from tests.hub_registry.own_brokers import KINDS, device_password, log_in_with, logged_in, open_own
from tests.hub_registry.retained import retained
from tests.hub_registry.spokes import eventually


@pytest.fixture
def hub(own: Hub) -> Hub:
    return own


def is_refused(link) -> bool:
    return not link.connected and isinstance(link.last_error, LoginRefused)


async def test_revoking_a_device_disconnects_it_and_keeps_it_out(hub):
    async with logged_in(hub, "TV") as tv:
        await hub.service.revoke_device("tv")
        await eventually(lambda: is_refused(tv.link))
        with pytest.raises(Unauthorized, match="revoked"):
            hub.registry.authority.check(tv.token)


async def test_a_revoked_device_that_is_invited_anew_comes_back_with_its_new_token_only(hub):
    async with logged_in(hub, "TV") as tv:
        await hub.service.revoke_device("tv")
        await eventually(lambda: is_refused(tv.link))
        invitation = await hub.registry.invite("tv")
        tv.token = (await hub.registry.enrolment.enrol(invitation.token, tv.spoke.key.public.jwk())).token
        await eventually(lambda: tv.link.connected)


async def test_whoever_looks_on_sees_a_revoked_device_as_gone_and_not_as_online_for_ever(hub):
    async with logged_in(hub, "TV") as tv:
        assert tv.spoke.status_topic in await retained(hub.outside)
        await hub.service.revoke_device("tv")
        await eventually(lambda: hub.state(tv.spoke) is PresenceState.OFFLINE)

        async def is_gone() -> bool:
            return tv.spoke.status_topic not in await retained(hub.outside)

        await eventually(is_gone)


async def test_removing_a_device_disconnects_it_and_all_that_follow_it_hear_so(hub):
    async with logged_in(hub, "TV") as tv:
        await hub.service.remove_device("tv")
        assert [change for change in hub.changes if not change.connected]
        assert hub.registry.directory.get("tv") is None
        await eventually(lambda: is_refused(tv.link))


async def test_enrolling_anew_disconnects_whoever_has_the_old_token(hub):
    async with logged_in(hub, "TV") as tv:
        invitation = await hub.registry.invite("tv")
        await hub.registry.enrolment.enrol(invitation.token, KeyPair.generate().public.jwk())
        await eventually(lambda: is_refused(tv.link))


async def test_an_answer_that_is_lost_locks_nobody_out_and_the_next_one_takes_over_when_it_is_used(hub):
    authority = hub.registry.authority
    async with logged_in(hub, "TV") as tv:
        old = tv.token
        lost = await authority.renew(authority.check(old), lifetime_s=60)
        # The device never heard of it: what it has stays good over HTTP, and on the bus after a reconnect.
        await authority.authenticate(old)
        connections: list[None] = []

        async def connected() -> None:
            connections.append(None)

        tv.link.on_connected(connected)
        tv.link.reconnect()
        await eventually(lambda: connections)

        new = await authority.renew(authority.check(old), lifetime_s=60)
        await authority.authenticate(new)
        await eventually(lambda: is_refused(tv.link))
        tv.token = lost
        await eventually(lambda: is_refused(tv.link))
        for ended in (old, lost):
            with pytest.raises(Unauthorized, match="revoked"):
                await authority.authenticate(ended)
        tv.token = new
        await eventually(lambda: tv.link.connected)


@pytest.mark.slow
async def test_who_expires_is_disconnected_and_kept_out_until_it_has_another_token(hub):
    authority = hub.registry.authority
    async with logged_in(hub, "TV") as tv:
        first = authority.check(tv.token)
        for lifetime_s in (2, 8, 16):
            tv.token = await authority.renew(first, lifetime_s=lifetime_s)
            # On a machine that stands still it may have expired before its first use.
            with suppress(Unauthorized):
                await authority.authenticate(tv.token)
                break
        await eventually(lambda: is_refused(tv.link))
        await eventually(lambda: not hub.registry.directory.get("tv").connected)
        invitation = await hub.registry.invite("tv")
        tv.token = (await hub.registry.enrolment.enrol(invitation.token, tv.spoke.key.public.jwk())).token
        await eventually(lambda: tv.link.connected)


async def test_a_client_reads_what_it_may_and_is_disconnected_when_it_is_removed(hub):
    async with logged_in(hub, "TV") as tv:
        _, password = await hub.registry.clients.add("explorer", owner="admin", chat=False, lifetime_s=60)
        seen: list[str] = []
        async with open_link(log_in_with(hub, "explorer", password)) as link:
            await link.subscribe(topics.STATUS.filter(), lambda message: seen.append(message.topic))
            await eventually(lambda: tv.spoke.status_topic in seen)
            await hub.registry.clients.remove("explorer")
            await eventually(lambda: is_refused(link))


async def test_a_client_chats_only_where_that_was_granted(hub):
    heard: list[str] = []
    await hub.outside.subscribe(topics.CHAT_REQUEST.filter(), lambda message: heard.append(message.topic))
    for name, chat in (("quiet", False), ("talker", True)):
        _, password = await hub.registry.clients.add(name, owner="admin", chat=chat, lifetime_s=CENTURY_S)
        async with open_link(log_in_with(hub, name, password)) as link:
            await link.publish(topics.CHAT_REQUEST.build(principal=name, request="1"), b"{}")
            await link.publish(topics.CHAT_REQUEST.build(principal="tv", request="1"), b"{}")
            await hub.outside.publish(topics.CHAT_REQUEST.build(principal="marker", request=name), b"{}")
            await eventually(lambda name=name: f"hub/chat/marker/request/{name}" in heard)
    passed = [topic for topic in heard if "/marker/" not in topic]
    assert passed == [topics.CHAT_REQUEST.build(principal="talker", request="1")]


async def test_what_the_hub_did_while_it_was_not_on_the_bus_counts_there_when_it_is(
    registry, tmp_path, hub_key
):
    device, key = await registry.devices.add("TV", owner="admin"), KeyPair.generate()
    for kind in KINDS:
        invitation = await registry.invite(device.id)
        first = (await registry.enrolment.enrol(invitation.token, key.public.jwk())).token
        invitation = await registry.invite(device.id)
        second = (await registry.enrolment.enrol(invitation.token, key.public.jwk())).token
        async with open_own(kind, tmp_path / kind, registry) as hub:
            async with open_link(log_in_with(hub, "tv", device_password(hub, "tv", key, second))) as link:
                await eventually(lambda link=link: link.connected)
            login = log_in_with(hub, "tv", partial(device_password, hub, "tv", key, first))
            async with open_link(login, wait_s=0.2) as link:
                await eventually(lambda: is_refused(link))


async def test_a_broker_that_has_forgotten_all_is_told_of_every_revocation(registry, tmp_path):
    settings = EmbeddedSettings(
        data_dir=tmp_path / "broker",
        hub_id=registry.hub_id,
        hub_key=registry.key.public,
        listeners=(Listener(port=0),),
    )
    async with open_embedded(settings) as broker, serve(registry, broker.url, login=hub_login) as hub:
        hub.url = broker.url
        async with logged_in(hub, "TV") as tv:
            token = tv.token
    await registry.revoke_device("tv")
    forgetful = replace(settings, data_dir=tmp_path / "other")
    async with open_embedded(forgetful) as broker, serve(registry, broker.url, login=hub_login) as hub:
        hub.url = broker.url
        async with open_link(log_in_with(hub, "tv", SecretStr(token)), wait_s=0.2) as link:
            await eventually(lambda: is_refused(link))


async def test_all_that_listen_are_told_which_tokens_ended(hub):
    told: list[str] = []

    async def close_streams(revocation) -> None:
        told.extend(revocation.tokens)

    hub.registry.authority.on_revoked(close_streams)
    async with logged_in(hub, "TV") as tv:
        jti = hub.registry.authority.check(tv.token).jti
        await hub.service.revoke_device("tv")
    assert told == [jti]
