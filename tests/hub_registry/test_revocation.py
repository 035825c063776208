"""Revoking on the embedded broker: one act for the database, the bus and HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from pydantic import SecretStr

from broker.embedded import EmbeddedSettings, Listener, open_embedded
from broker.envelope import Seal
from broker.keys import KeyPair
from broker.link import Link, LinkSettings, Message, open_link
from contracts.errors import LoginRefused, Unauthorized
from contracts.presence import DeviceStatus
from hub_registry.presence import State
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from tests.hub_registry.hubs import Hub, hub_login, serve
from tests.hub_registry.spokes import FakeSpoke, eventually


@pytest.fixture
async def registry(tmp_path, hub_key) -> AsyncIterator[Registry]:
    async with open_registry(RegistrySettings(database=tmp_path / "hub" / "hub.db"), key=hub_key) as opened:
        yield opened


@pytest.fixture
def broker_settings(tmp_path, registry) -> EmbeddedSettings:
    return EmbeddedSettings(
        data_dir=tmp_path / "broker",
        hub_id=registry.hub_id,
        hub_key=registry.key.public,
        listeners=(Listener(port=0),),
    )


@pytest.fixture
async def hub(registry, broker_settings) -> AsyncIterator[Hub]:
    async with (
        open_embedded(broker_settings) as broker,
        serve(registry, broker.url, login=hub_login) as running,
    ):
        running.url = broker.url
        yield running


@asynccontextmanager
async def logged_in(hub: Hub, name: str) -> AsyncIterator[tuple[FakeSpoke, Link, str]]:
    """A device with its own login, its own will, and its token."""
    device = await hub.registry.add_device(name, owner="admin")
    key = KeyPair.generate()
    invitation = await hub.registry.invite(device.id)
    token = (await hub.registry.enrol(invitation.token, key.public.jwk())).token
    seal = Seal(hub.registry.hub_id, key)

    def will() -> Message:
        topic = f"devices/{device.id}/status"
        gone = DeviceStatus(state="offline", epoch=1_000, connection=1, seq=0)
        return Message(topic, seal.seal(topic, gone), retain=True)

    settings = LinkSettings(
        urls=(hub.url,), client_id=device.id, username=device.id, password=SecretStr(token), backoff_s=0.05
    )
    async with open_link(settings, will=will) as link:
        spoke = FakeSpoke(link, hub_id=hub.registry.hub_id, device=device.id, key=key)
        await spoke.status(seq=1)
        await eventually(lambda: hub.state(spoke) is State.ONLINE)
        yield spoke, link, token


async def test_revoking_a_device_disconnects_it_and_keeps_it_out(hub):
    async with logged_in(hub, "TV") as (spoke, link, token):
        await hub.service.revoke_device(spoke.device)
        await eventually(lambda: isinstance(link.last_error, LoginRefused))
        assert not link.connected
        with pytest.raises(Unauthorized, match="revoked"):
            hub.registry.authority.check(token)


async def test_removing_a_device_disconnects_it_and_hears_its_will(hub):
    async with logged_in(hub, "TV") as (spoke, link, _):
        await hub.service.remove_device(spoke.device)
        ended = [change for change in hub.changes if not change.connected]
        assert ended
        assert hub.registry.directory.get(spoke.device) is None
        await eventually(lambda: isinstance(link.last_error, LoginRefused))


async def test_enrolling_anew_disconnects_whoever_has_the_old_token(hub):
    async with logged_in(hub, "TV") as (spoke, link, _):
        invitation = await hub.registry.invite(spoke.device)
        await hub.registry.enrol(invitation.token, KeyPair.generate().public.jwk())
        await eventually(lambda: isinstance(link.last_error, LoginRefused))


async def test_a_renewed_token_takes_over_when_it_is_first_used(hub):
    async with logged_in(hub, "TV") as (_, link, token):
        authority = hub.registry.authority
        renewed = await authority.renew(authority.check(token), lifetime_s=60)
        assert link.connected
        await authority.authenticate(renewed)
        await eventually(lambda: isinstance(link.last_error, LoginRefused))


async def test_a_broker_that_was_away_is_told_of_every_revocation_when_it_is_back(
    registry, broker_settings, tmp_path
):
    async with open_embedded(broker_settings) as broker:
        port = broker.port
        async with serve(registry, broker.url, login=hub_login) as hub:
            hub.url = broker.url
            async with logged_in(hub, "TV") as (_, _, token):
                pass
    await registry.revoke_device("tv")
    # Another data directory: this broker has forgotten all that it ever knew.
    forgetful = replace(broker_settings, data_dir=tmp_path / "other", port=port)
    async with open_embedded(forgetful) as broker, serve(registry, broker.url, login=hub_login):
        settings = LinkSettings(
            urls=(broker.url,), client_id="tv", username="tv", password=SecretStr(token), refused_s=0.05
        )
        async with open_link(settings, wait_s=0.2) as link:
            await eventually(lambda: isinstance(link.last_error, LoginRefused))


async def test_all_that_listen_are_told_which_tokens_ended(hub):
    told: list[str] = []

    async def close_streams(revocation) -> None:
        told.extend(revocation.tokens)

    hub.registry.authority.on_revoked(close_streams)
    async with logged_in(hub, "TV") as (spoke, _, token):
        jti = hub.registry.authority.check(token).jti
        await hub.service.revoke_device(spoke.device)
    assert told == [jti]
