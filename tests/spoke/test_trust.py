"""Who is given a token: the hub whose key is known, over a connection that only it can hold."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from contracts.devices.joining import BusAccess, Login, ca_document
from contracts.errors import ConfigError, HubUntrusted, InvalidMessage
from identity.keys import KeyPair
from spoke.membership.hub_http import HubHttp
from spoke.membership.joining import Identity, join
from spoke.membership.refreshing import find_hub, refresh
from spoke.presence.clock import HubClock
from tests.spoke.certificates import Authority
from tests.spoke.home import Place
from tests.spoke.hub import BUS, CARD, DEVICE, ENROL, HUB, StandInHub, serving

BROKER = "mqtts://127.0.0.1:8883"


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def hub(authority: Authority, tmp_path: Path) -> Iterator[StandInHub]:
    """A hub with TLS whose key vouches for its authority."""
    hub = StandInHub(brokers=[BROKER], ca=authority.pem, tls=authority.context(tmp_path))
    with serving(hub):
        yield hub


async def joined(hub: StandInHub, place: Place, token: SecretStr | None = None, **changes: Any) -> Identity:
    settings = place.settings(hub, **{"hub_key": hub.key.kid, **changes})
    return await join(settings, token=token, clock=HubClock())


async def test_the_hubs_key_vouches_for_the_authority_that_everything_is_checked_against(
    hub: StandInHub, place: Place, authority: Authority
) -> None:
    enrolment = (await joined(hub, place, hub.invite())).enrolment
    assert (enrolment.hub_url, enrolment.ca, enrolment.brokers) == (hub.url, authority.pem, (BROKER,))
    again = (await joined(hub, place, hub_url=None, hub_key=None)).enrolment
    assert again == enrolment
    assert hub.seen_tokens == [enrolment.token.get_secret_value()]


async def test_without_the_hubs_key_only_the_systems_authorities_count(hub: StandInHub, place: Place) -> None:
    with pytest.raises(HubUntrusted, match="not from an authority that this machine knows") as error:
        await joined(hub, place, hub.invite(), hub_key=None)
    assert "--hub-key" in error.value.hint
    assert hub.requests == []


async def test_an_authority_that_the_hubs_key_did_not_sign_is_given_nothing(
    hub: StandInHub, place: Place
) -> None:
    genuine = hub.answer

    def forged(path: str, *given: Any) -> tuple[int, Any]:
        status, body = genuine(path, *given)
        return status, body | {"ca": Authority().pem} if path == CARD else body

    hub.answer = forged  # type: ignore[assignment, method-assign]
    with pytest.raises(ConfigError, match="not signed by the hub's key"):
        await joined(hub, place, hub.invite())
    assert hub.requests == [CARD]


async def test_a_card_whose_key_does_not_match_its_fingerprint_is_refused(
    hub: StandInHub, place: Place
) -> None:
    # An impostor names the fingerprint that is expected, and signs its own authority with its own key.
    genuine, key, authority = hub.answer, KeyPair.generate(), Authority()
    signed = key.sign(ca_document(hub_id=HUB, ca=authority.pem))
    forged = {
        "hub_key": key.public.jwk(),
        "ca": authority.pem,
        "ca_signature": base64.urlsafe_b64encode(signed).rstrip(b"=").decode(),
    }

    def answer(path: str, *given: Any) -> tuple[int, Any]:
        status, body = genuine(path, *given)
        return status, body | forged if path == CARD else body

    hub.answer = answer  # type: ignore[assignment, method-assign]
    with pytest.raises(InvalidMessage, match="does not match its fingerprint"):
        await joined(hub, place, hub.invite())
    assert hub.requests == [CARD]


async def test_an_impostor_with_the_genuine_card_is_given_nothing(
    hub: StandInHub, place: Place, tmp_path: Path
) -> None:
    impostor = replace(hub, tls=Authority().context(tmp_path), requests=[])
    with serving(impostor):
        with pytest.raises(HubUntrusted, match="not from the authority of this hub"):
            await joined(impostor, place, hub.invite())
        # Nor is one that took the place of a hub that was joined.
        stored = (await joined(hub, place, hub.invite())).enrolment
        seen = len(hub.seen_tokens)
        assert (await joined(impostor, place)).enrolment == stored.model_copy(
            update={"hub_url": impostor.url}
        )
        assert len(hub.seen_tokens) == seen
    assert set(impostor.requests) == {CARD}


@pytest.mark.parametrize(
    ("certificate", "problem", "hint"),
    [
        ({"address": "127.0.0.2"}, "is not for 127.0.0.1", "certs --name 127.0.0.1"),
        ({"lasts": -timedelta(days=1)}, "has expired", "clock"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_named_with_what_to_do(
    authority: Authority, place: Place, tmp_path: Path, certificate: dict[str, Any], problem: str, hint: str
) -> None:
    tls = authority.context(tmp_path, **certificate)
    with serving(StandInHub(brokers=[BROKER], ca=authority.pem, tls=tls)) as hub:
        with pytest.raises(HubUntrusted, match=problem) as error:
            await joined(hub, place, hub.invite())
        assert hint in error.value.hint
        assert ENROL not in hub.requests


async def test_a_connection_that_is_not_verified_carries_no_secret(hub: StandInHub) -> None:
    http = HubHttp(hub.url, verify=False)
    with pytest.raises(RuntimeError, match="not verified"):
        await http.request("GET", BUS, bearer=SecretStr("token"))
    with pytest.raises(RuntimeError, match="not verified"):
        await http.request("POST", ENROL, {"token": "token"})
    assert hub.requests == []


async def test_a_program_on_the_port_of_a_hub_that_is_off_gets_no_token(place: Place) -> None:
    with serving(StandInHub(brokers=["mqtt://127.0.0.1:9"])) as hub:
        identity = await joined(hub, place, hub.invite())
        card = hub.answer(CARD, {})
    # All that the hub tells everyone, from a program without its key.
    impostor = StandInHub(brokers=["mqtt://127.0.0.1:9"])
    impostor.answer = lambda path, *_: card if path == CARD else (200, {})  # type: ignore[method-assign]
    with serving(impostor, port=hub.port):
        found = await find_hub(identity.enrolment, key=identity.key)
        with pytest.raises(HubUntrusted, match="does not prove to be the hub"):
            await refresh(identity.enrolment, found, clock=HubClock())
    assert BUS not in impostor.requests


async def test_a_proof_from_another_time_is_made_again_by_the_hubs_clock(place: Place) -> None:
    with serving(StandInHub(brokers=["mqtt://127.0.0.1:9"])) as hub:
        identity = await joined(hub, place, hub.invite())
        found = await find_hub(identity.enrolment, key=identity.key)
        found.http.keep()
        for ahead_s in (0.0, 3600.0):
            hub.clock_ahead_s = ahead_s
            assert (await found.http.request("GET", BUS, bearer=identity.enrolment.token)).status == 200
        found.http.drop()


async def test_plain_http_to_another_machine_is_refused_until_it_is_asked_for(place: Place) -> None:
    with serving(StandInHub(brokers=["mqtt://127.1:1883"])) as hub:
        # An address of this machine that does not read as one.
        url = hub.url.replace("127.0.0.1", "127.1")
        with pytest.raises(ConfigError, match="is not encrypted") as error:
            await joined(hub, place, hub.invite(), hub_url=url)
        assert "--insecure" in error.value.hint
        assert hub.requests == []
        enrolment = (await joined(hub, place, hub.invite(), hub_url=url, insecure=True)).enrolment
        # It was said once, and is kept with what was joined by it.
        assert (await joined(hub, place, hub_url=None)).enrolment == enrolment
        assert enrolment.insecure


async def test_a_hub_that_only_has_brokers_without_tls_is_not_joined_over_the_network(
    hub: StandInHub, place: Place
) -> None:
    hub.brokers = ["mqtt://hub.local:1883"]
    with pytest.raises(ConfigError, match=r"receive the token unencrypted: mqtt://hub\.local:1883"):
        await joined(hub, place, hub.invite())
    hub.brokers.append("mqtts://hub.local:8883")
    assert (await joined(hub, place, hub.invite())).enrolment.brokers == ("mqtts://hub.local:8883",)


async def test_a_new_authority_of_the_same_hub_is_pinned_anew(
    hub: StandInHub, place: Place, tmp_path: Path
) -> None:
    await joined(hub, place, hub.invite())
    newer = Authority()
    renewed = replace(hub, ca=newer.pem, tls=newer.context(tmp_path))
    with serving(renewed):
        identity = await joined(renewed, place)
        assert identity.is_confirmed
        assert identity.enrolment.ca == newer.pem
    stored = json.loads((place.home / "spoke" / "enrolment.json").read_text())
    assert stored["ca"] == newer.pem


async def test_over_tls_the_hub_may_name_new_hosts_but_never_go_back_to_none(
    hub: StandInHub, place: Place
) -> None:
    first = (await joined(hub, place, hub.invite())).enrolment
    hub.brokers = ["mqtt://new.local:1883"]
    assert (await joined(hub, place)).enrolment == first
    hub.brokers = ["mqtts://new.local:8883", "mqtt://new.local:1883", "mqtts://other.local", "http://x"]
    hub.prefix, hub.login = "strawberry/", Login(username="anna", password="secret")
    moved = (await joined(hub, place)).enrolment
    assert moved.brokers == ("mqtts://new.local:8883", "mqtts://other.local")
    assert (moved.prefix, moved.login) == ("strawberry/", hub.login)


async def test_no_secret_of_an_enrolment_is_shown(hub: StandInHub, place: Place) -> None:
    hub.login = Login(username="anna", password="a-secret-word")
    enrolment = (await joined(hub, place, hub.invite())).enrolment
    assert enrolment.device == DEVICE
    for shown in (repr(enrolment), str(BusAccess(brokers=(), authentication="login", login=hub.login))):
        assert "a-secret-word" not in shown
        assert enrolment.token.get_secret_value() not in shown


async def test_another_key_at_a_known_address_gets_no_token(hub: StandInHub, place: Place) -> None:
    first = (await joined(hub, place, hub.invite())).enrolment
    seen = list(hub.seen_tokens)
    hub.key = KeyPair.generate()
    found = await joined(hub, place, hub_key=None)
    assert (found.enrolment, found.is_confirmed) == (first, False)
    assert hub.seen_tokens == seen
