"""Joining by a code that a person types where the hub is."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError, HubUntrusted, InvalidMessage, Unauthorized
from identity.files import only_one
from identity.keys import KeyPair
from spoke.membership.enrolment import Enrolment
from spoke.membership.join_code import JoinCode, join_by_code
from spoke.membership.joining import join
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings
from tests.spoke.certificates import Authority
from tests.spoke.home import Place, wait_for
from tests.spoke.hub import DEVICE, JOIN, POLL, StandInHub, serving


@pytest.fixture(params=["http", "https"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StandInHub]:
    hub = StandInHub(brokers=["mqtt://127.0.0.1:1883"])
    if request.param == "https":
        authority = Authority()
        hub.ca, hub.tls = authority.pem, authority.context(tmp_path)
    with serving(hub):
        yield hub


@pytest.fixture
def settings(hub: StandInHub, place: Place) -> SpokeSettings:
    return place.settings(hub)


@dataclass
class Screen:
    """What the new device shows, and what becomes of it."""

    task: "asyncio.Task[Enrolment]"
    codes: list[JoinCode] = field(default_factory=list)

    async def code(self, number: int = 1) -> JoinCode:
        await wait_for(lambda: len(self.codes) >= number or self.task.done(), f"code {number}")
        assert len(self.codes) >= number, self.task.exception()
        return self.codes[-1]


@asynccontextmanager
async def joining(settings: SpokeSettings, name: str = "Garage PC") -> AsyncIterator[Screen]:
    codes: list[JoinCode] = []
    async with asyncio.TaskGroup() as tasks:

        async def ask() -> Enrolment | BaseException:
            # An error is part of what is looked at, and not the end of the test.
            try:
                return await join_by_code(settings, name=name, show=codes.append)
            except (ConfigError, InvalidMessage, Unauthorized, HubUntrusted) as error:
                return error

        task = tasks.create_task(ask())
        yield Screen(task, codes)  # type: ignore[arg-type]


async def test_a_device_that_was_approved_is_in_and_nothing_is_stored_before(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    async with joining(settings) as screen:
        shown = await screen.code()
        asking = hub.joining(shown.code)
        assert (asking.name, shown.hub_url) == ("Garage PC", hub.url)
        assert shown.fingerprint == hub.fingerprint(shown.code)
        await wait_for(lambda: hub.requests.count(POLL) >= 2, "some polls")
        assert not (settings.directory / "enrolment.json").exists()
        asking.state = "approved"
        enrolment = await screen.task
    assert (enrolment.device, enrolment.ca) == (DEVICE, hub.ca)
    assert len(screen.codes) == 1
    # The hub has seen the token in use, and the next start needs neither address nor token.
    assert hub.seen_tokens[-1] == enrolment.token.get_secret_value()
    alone = settings.model_copy(update={"hub_url": None})
    assert (await join(alone, token=None, clock=HubClock())).enrolment == enrolment


async def test_a_refused_device_is_told_so_and_stores_nothing(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    async with joining(settings) as screen:
        hub.joining((await screen.code()).code).state = "refused"
        error = await screen.task
    assert isinstance(error, Unauthorized)
    assert "refused this device" in error.message
    assert "spoke join" in error.hint
    assert not (settings.directory / "enrolment.json").exists()


async def test_a_code_that_nobody_typed_in_time_ends_with_what_to_do(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    hub.code_s = 0
    async with joining(settings) as screen:
        error = await screen.task
    assert isinstance(error, Unauthorized)
    assert f"the code {screen.codes[0].code} was not approved in time" in error.message
    assert "devices approve" in error.hint


async def test_a_hub_that_was_started_anew_has_forgotten_the_code(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    async with joining(settings) as screen:
        code = (await screen.code()).code
        hub.waiting.clear()
        error = await screen.task
    assert isinstance(error, Unauthorized)
    assert f"no longer knows the code {code}" in error.message
    assert "spoke join" in error.hint


async def test_a_hub_that_is_away_for_a_moment_loses_no_code(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    async with joining(settings) as screen:
        shown = await screen.code()
        hub.fault(POLL).ignore, hub.fault(POLL).lose = 2, 1
        hub.outages, hub.rushed = 1, 1
        hub.joining(shown.code).state = "approved"
        assert (await screen.task).device == DEVICE
    assert len(screen.codes) == 1


async def test_a_hub_that_hears_too_many_wishes_is_asked_later(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    genuine = hub.answer
    refusals = iter([429, 503])

    def busy(path: str, *given: Any) -> tuple[int, Any]:
        status = next(refusals, 200) if path == JOIN else 200
        return genuine(path, *given) if status == 200 else (status, None)

    hub.answer = busy  # type: ignore[assignment, method-assign]
    async with joining(settings) as screen:
        hub.joining((await screen.code()).code).state = "approved"
        assert (await screen.task).device == DEVICE
    assert hub.requests.count(JOIN) == 3


async def test_an_enrolment_of_another_hub_than_the_fingerprint_is_of_is_refused(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    async with joining(settings) as screen:
        shown = await screen.code()
        # Whoever sits in between lets the device in by itself, with a key of its own.
        hub.key = KeyPair.generate()
        hub.joining(shown.code).state = "approved"
        error = await screen.task
    assert isinstance(error, HubUntrusted)
    assert "does not prove to be the hub" in error.message
    assert not (settings.directory / "enrolment.json").exists()


async def test_whoever_sits_in_between_shows_another_fingerprint(
    hub: StandInHub, settings: SpokeSettings, tmp_path: Path
) -> None:
    authority = Authority()
    between = replace(hub, ca=authority.pem, tls=authority.context(tmp_path), key=KeyPair.generate())
    with serving(between):
        async with joining(settings.model_copy(update={"hub_url": between.url})) as screen:
            shown = await screen.code()
            # It hands the device's key on to the genuine hub, where the owner looks.
            assert shown.fingerprint != hub.fingerprint(shown.code)
            hub.joining(shown.code).state = "refused"
            await screen.task


@pytest.mark.parametrize(
    "code",
    ["\x1b[8mABCD", "ABCD\n\n  fingerprint  AAAA-BBBB-CCCC-DDDD", "AAAA-BBBB-CCCC-DDDD", "AB\u202eCD", ""],
)
async def test_a_code_cannot_bring_a_fingerprint_of_its_own_to_the_screen(
    hub: StandInHub, settings: SpokeSettings, code: str
) -> None:
    genuine = hub.answer

    def forged(path: str, *given: Any) -> tuple[int, Any]:
        status, answer = genuine(path, *given)
        return status, {**answer, "code": code} if path == JOIN else answer

    hub.answer = forged  # type: ignore[assignment, method-assign]
    async with joining(settings) as screen:
        error = await screen.task
    assert isinstance(error, InvalidMessage)
    assert screen.codes == []


async def test_who_has_joined_asks_for_no_code_again_but_who_was_locked_out_does_with_its_old_key(
    hub: StandInHub, settings: SpokeSettings
) -> None:
    async with joining(settings) as screen:
        hub.joining((await screen.code()).code).state = "approved"
        first = await screen.task
    async with joining(settings) as screen:
        assert (await screen.task).device == first.device
        assert screen.codes == []
    hub.revoke(first.token)
    async with joining(settings.model_copy(update={"hub_url": None})) as screen:
        hub.joining((await screen.code()).code).state = "approved"
        again = await screen.task
    assert (again.key_id, again.device) == (first.key_id, first.device)
    assert again.token != first.token


async def test_the_key_that_was_given_must_be_the_hubs(hub: StandInHub, settings: SpokeSettings) -> None:
    hub.code_s, other = 0, KeyPair.generate().kid
    async with joining(settings.model_copy(update={"hub_key": other})) as screen:
        error = await screen.task
    assert isinstance(error, ConfigError)
    assert (hub.key.kid in error.message, JOIN in hub.requests) == (True, False)


async def test_a_device_of_another_hub_stays_there(hub: StandInHub, settings: SpokeSettings) -> None:
    async with joining(settings) as screen:
        hub.joining((await screen.code()).code).state = "approved"
        first = await screen.task
    hub.key = KeyPair.generate()
    async with joining(settings) as screen:
        error = await screen.task
    assert isinstance(error, ConfigError)
    assert "belongs to the hub" in error.message
    assert Enrolment.load(settings.directory / "enrolment.json") == first


async def test_a_spoke_that_runs_is_not_joined_beneath(settings: SpokeSettings) -> None:
    with only_one(settings.directory, what="a spoke", hint=""):
        async with joining(settings) as screen:
            error = await screen.task
    assert isinstance(error, ConfigError)
    assert "already runs with" in error.message


async def test_a_name_that_is_none_and_an_address_that_is_missing_are_said(settings: SpokeSettings) -> None:
    for changes, name, problem in (({}, " ", "1 to 64 characters"), ({"hub_url": None}, "PC", "no hub")):
        async with joining(settings.model_copy(update=changes), name) as screen:
            error = await screen.task
        assert isinstance(error, ConfigError)
        assert problem in error.message


async def test_neither_secret_nor_token_is_in_the_log_or_stands_open(
    hub: StandInHub, settings: SpokeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with joining(settings) as screen:
        hub.joining((await screen.code()).code).state = "approved"
        enrolment = await screen.task
    (secret,) = hub.waiting
    assert secret not in caplog.text
    assert enrolment.token.get_secret_value() not in caplog.text
    path = settings.directory / "enrolment.json"
    assert secret not in json.dumps(json.loads(path.read_text()))
    assert path.stat().st_mode & 0o777 == 0o600
