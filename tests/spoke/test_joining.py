"""Joining a hub over real HTTP."""

import asyncio
import json
import logging
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from contracts.errors import ConfigError, HubUntrusted, InvalidMessage
from identity.certificates import Authority
from identity.keys import KeyPair
from spoke.membership.joining import Identity, join
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings
from tests.ports import free_port
from tests.spoke.home import DEVICE, HUB, Place, StandInHub, serving, wait_for
from tests.spoke.hub import ENROL

Answering = Callable[..., tuple[int, Any]]

BROKER = "mqtt://127.0.0.1:1883"


@pytest.fixture
def hub() -> Iterator[StandInHub]:
    with serving(StandInHub(brokers=[BROKER])) as hub:
        yield hub


@pytest.fixture
def settings(hub: StandInHub, place: Place) -> SpokeSettings:
    return place.settings(hub)


async def joined(
    settings: SpokeSettings, token: SecretStr | None = None, clock: HubClock | None = None
) -> Identity:
    return await join(settings, token=token, clock=clock or HubClock())


async def test_the_first_start_enrols_and_the_next_uses_what_was_stored(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    first = await joined(settings, hub.invite())
    again = await joined(settings)
    assert first.enrolment == again.enrolment
    assert (first.enrolment.device, first.enrolment.hub_id) == (DEVICE, HUB)
    assert first.key.public == again.key.public == hub.device_keys[DEVICE]
    assert hub.requests.count("/api/devices/enrol") == 1


async def test_what_is_stored_can_only_be_read_by_its_owner(hub: StandInHub, settings: SpokeSettings) -> None:
    await joined(settings, hub.invite())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in settings.directory.iterdir()}
    assert modes == {"enrolment.json": 0o600, "key.pem": 0o600}
    assert stat.S_IMODE(settings.directory.stat().st_mode) == 0o700


async def test_the_same_token_given_again_changes_nothing(hub: StandInHub, settings: SpokeSettings) -> None:
    token = hub.invite()
    first = await joined(settings, token)
    assert (await joined(settings, token)).enrolment == first.enrolment
    # HUB_DEVICE_TOKEN may also hold the device token itself.
    assert (await joined(settings, first.enrolment.token)).enrolment == first.enrolment
    assert hub.requests.count("/api/devices/enrol") == 1


async def test_a_new_token_lets_a_revoked_device_in_again_with_its_old_key(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    first = await joined(settings, hub.invite())
    again = await joined(settings, hub.invite())
    assert again.enrolment.token != first.enrolment.token
    assert again.key.public == first.key.public
    assert (await joined(settings)).enrolment == again.enrolment


async def test_a_refused_token_does_not_spoil_what_was_stored(
    hub: StandInHub, settings: SpokeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    first = await joined(settings, hub.invite())
    again = await joined(settings, SecretStr("yesterdays-token"))
    assert again.enrolment == first.enrolment
    assert "ignoring the enrolment token" in caplog.text
    assert "yesterdays-token" not in caplog.text


async def test_without_a_token_the_error_says_how_to_get_one(settings: SpokeSettings) -> None:
    with pytest.raises(ConfigError, match="has not joined") as error:
        await joined(settings)
    assert "strawberry devices add" in error.value.hint


async def test_the_hubs_key_must_have_the_fingerprint_that_was_given(hub: StandInHub, place: Place) -> None:
    other, token = KeyPair.generate(), hub.invite()
    with pytest.raises(ConfigError, match=hub.key.kid):
        await joined(place.settings(hub, hub_key=other.kid), token)
    assert not (place.settings(hub).directory / "enrolment.json").exists()
    # The wrong hub has not seen the token, which is good only once.
    assert (await joined(place.settings(hub, hub_key=hub.key.kid), token)).enrolment.device == DEVICE
    with pytest.raises(ConfigError, match=other.kid):
        await joined(place.settings(hub, hub_key=other.kid))


def _forging(answers: tuple[Answering, Answering], forged: dict[str, Any]) -> Answering:
    """The card of one hub, and what the other says when a device enrols."""

    def answer(path: str, body: dict[str, Any], bearer: str = "") -> tuple[int, Any]:
        if path != ENROL:
            return answers[0](path, body, bearer)
        status, answered = answers[1](path, body, bearer)
        return status, answered | forged

    return answer


async def test_an_answer_whose_token_the_hub_did_not_sign_is_refused(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    genuine, token = KeyPair.generate(), hub.invite()
    impostor = StandInHub(brokers=[BROKER], key=genuine, invitations=hub.invitations)
    answers = (impostor.answer, hub.answer)
    # It shows the key of the genuine hub, which it does not have, and signs with its own.
    for forged in ({"hub_key": genuine.public.jwk()}, {}):
        hub.answer = _forging(answers, forged)  # type: ignore[method-assign]
        with pytest.raises((InvalidMessage, HubUntrusted), match=r"no valid device token|does not prove"):
            await joined(settings, token)
        token = hub.invite()
    assert not (settings.directory / "enrolment.json").exists()


async def test_a_token_that_is_bound_to_another_key_is_refused(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    token, genuine = hub.invite(), hub.answer
    body = {"token": token.get_secret_value(), "public_key": KeyPair.generate().public.jwk()}
    replayed = hub.answer(ENROL, body)
    hub.answer = lambda path, *given: replayed if path == ENROL else genuine(path, *given)  # type: ignore[method-assign]
    with pytest.raises(InvalidMessage, match="not bound to the key of this device"):
        await joined(settings, token)


async def test_a_hub_that_is_away_is_waited_for(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    hub = StandInHub(brokers=[BROKER], port=free_port())
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(joined(place.settings(hub), hub.invite()))
        await wait_for(lambda: "retrying" in caplog.text, "the first attempt")
        with serving(hub, port=hub.port):
            identity = await waiting
    assert identity.enrolment.device == DEVICE
    assert "cannot be reached: Connection refused" in caplog.text


async def test_a_hub_that_is_overloaded_is_asked_again(hub: StandInHub, settings: SpokeSettings) -> None:
    hub.outages, hub.rushed = 2, 2
    assert (await joined(settings, hub.invite())).enrolment.device == DEVICE
    assert (hub.outages, hub.rushed) == (0, 0)


async def test_what_answers_and_is_no_hub_is_named(hub: StandInHub, place: Place) -> None:
    elsewhere = place.settings(hub, hub_url=f"{hub.url}/printer")
    with pytest.raises(InvalidMessage, match="there is nothing here"):
        await joined(elsewhere, hub.invite())
    with pytest.raises(ConfigError, match="not the address of a hub"):
        await joined(place.settings(hub, hub_url="garage:8321"), hub.invite())


async def test_another_hub_needs_another_home_or_a_word(
    hub: StandInHub, settings: SpokeSettings, place: Place
) -> None:
    await joined(settings, hub.invite())
    elsewhere = "http://127.0.0.1:9"
    with pytest.raises(ConfigError, match=f"belongs to the hub {hub.url}") as error:
        await joined(place.settings(hub, hub_url=elsewhere))
    assert "enrolment.json" in error.value.hint
    with serving(StandInHub(brokers=[BROKER], key=hub.key)) as moved:
        # The same key at a new address is the same hub.
        identity = await joined(place.settings(moved, hub_key=hub.key.kid))
        assert identity.enrolment.hub_url == moved.url
        assert (await joined(place.settings(moved))).enrolment == identity.enrolment


async def test_a_moved_broker_is_followed_on_known_hosts_only(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    await joined(settings, hub.invite())
    hub.brokers[:] = ["mqtt://127.0.0.1:1999", "mqtt://thief.example:1883"]
    assert (await joined(settings)).enrolment.brokers == ("mqtt://127.0.0.1:1999",)
    stored = json.loads((settings.directory / "enrolment.json").read_text())
    assert stored["brokers"] == ["mqtt://127.0.0.1:1999"]
    hub.brokers[:] = ["mqtt://thief.example:1883"]
    assert (await joined(settings)).enrolment.brokers == ("mqtt://127.0.0.1:1999",)


async def test_the_nodes_of_a_cluster_are_learned_from_the_hub_on_this_machine(
    hub: StandInHub, settings: SpokeSettings, tmp_path: Path
) -> None:
    await joined(settings, hub.invite())
    nodes = ("mqtts://one.lan:8883", "mqtts://two.lan:8883")
    hub.brokers[:] = [*nodes, "mqtt://thief.example:1883"]
    # Nothing that the hub's key signed could tell a node from another server.
    assert (await joined(settings)).enrolment.brokers == (BROKER,)
    hub.ca = Authority.load_or_create(tmp_path / "certs").pem
    found = (await joined(settings)).enrolment
    assert (found.brokers, found.ca) == (nodes, hub.ca)


async def test_the_qos_that_the_hub_names_is_taken_over_at_the_join_and_later(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    hub.qos = 0
    assert (await joined(settings, hub.invite())).enrolment.qos == 0
    hub.qos = 1
    assert (await joined(settings)).enrolment.qos == 1


async def test_a_damaged_enrolment_says_which_file_it_is(hub: StandInHub, settings: SpokeSettings) -> None:
    await joined(settings, hub.invite())
    path = settings.directory / "enrolment.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(ConfigError, match="damaged") as error:
        await joined(settings)
    assert str(path) in error.value.message


async def test_a_lost_key_is_not_replaced_in_silence(hub: StandInHub, settings: SpokeSettings) -> None:
    first = await joined(settings, hub.invite())
    (settings.directory / "key.pem").unlink()
    with pytest.raises(ConfigError, match="is not the key that joined") as error:
        await joined(settings)
    assert "strawberry devices add" in error.value.hint
    again = await joined(settings, hub.invite())
    assert again.key.public != first.key.public
    assert hub.device_keys[DEVICE] == again.key.public


async def test_a_machine_without_a_clock_takes_the_hubs_time(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    hub.clock_ahead_s = 86_400.0
    clock = HubClock()
    await joined(settings, hub.invite(), clock)
    assert abs(clock.now() - time.time() - 86_400) < 60


async def test_no_token_appears_in_any_log(
    hub: StandInHub, settings: SpokeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = hub.invite()
    identity = await joined(settings, token)
    await joined(settings)
    assert token.get_secret_value() not in caplog.text
    assert identity.enrolment.token.get_secret_value() not in caplog.text
    assert identity.enrolment.token.get_secret_value() not in repr(identity)
