"""The hub as a Wyoming handle service, asked as Home Assistant asks it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from wyoming.asr import Transcript
from wyoming.client import AsyncTcpClient
from wyoming.event import Event
from wyoming.handle import Handled, NotHandled
from wyoming.info import Describe, Info

from contracts.errors import ConfigError
from hub_agent.settings import WyomingSettings
from tests.hub_agent.home import Home, open_home, wait_for
from tests.hub_agent.skills import LampSkill, LockSkill, SlowSkill
from tests.model_server import Says, ScriptedModel

HANDLES = WyomingSettings(user="admin", port=0)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with open_home(tmp_path / "home", wyoming=HANDLES) as opened:
        yield opened


@pytest.fixture
def port(home: Home) -> int:
    return port_of(home)


def port_of(home: Home) -> int:
    assert home.hub.wyoming_port is not None
    return home.hub.wyoming_port


async def answer_to(port: int, text: str, **context: Any) -> Event:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Transcript(text, context=context or None).event())
        event = await client.read_event()
    assert event is not None
    return event


async def test_it_describes_itself_so_that_home_assistant_offers_it(home: Home, port: int) -> None:
    """Its agent is greyed out where no language of a model matches that of the pipeline."""
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Describe().event())
        event = await client.read_event()
    assert event is not None
    (program,) = Info.from_event(event).handle
    assert program.installed
    assert program.supports_home_control
    assert [(model.installed, model.languages) for model in program.models] == [(True, ["de", "en"])]


async def test_a_sentence_acts_and_its_answer_comes_back(home: Home, port: int) -> None:
    lamp = LampSkill()
    await home.device("Desk", lamp)
    event = await answer_to(port, " turn on the lamp\n")
    assert Handled.from_event(event).text == "The lamp is at 100 percent."
    assert lamp.level == 100


async def test_what_needs_a_confirmation_is_refused(home: Home, port: int) -> None:
    lock = LockSkill()
    await home.device("Door", lock)
    event = await answer_to(port, "unlock the door")
    assert "I cannot ask here" in str(Handled.from_event(event).text)
    assert lock.opened == []


async def test_a_yes_confirms_once_in_its_conversation_where_that_is_allowed(tmp_path: Path) -> None:
    lock = LockSkill()
    async with open_home(
        tmp_path / "home", wyoming=WyomingSettings(user="admin", port=0, say_yes=True)
    ) as home:
        await home.device("Door", lock)
        event = await answer_to(port_of(home), "unlock the door", conversation_id="1")
        assert "Say yes to go on." in str(Handled.from_event(event).text)
        for context in ({"conversation_id": "2"}, {}):
            await answer_to(port_of(home), "yes", **context)
        assert lock.opened == []
        await answer_to(port_of(home), "yes", conversation_id="1")
        opened = list(lock.opened)
        assert len(opened) == 1
        await answer_to(port_of(home), "yes", conversation_id="1")
        # Without the name of a conversation no message is the next one.
        await answer_to(port_of(home), "unlock the door")
        await answer_to(port_of(home), "yes")
    assert lock.opened == opened


async def test_a_client_that_hangs_up_stops_what_it_asked_for(home: Home, port: int) -> None:
    slow = SlowSkill()
    await home.device("Desk", slow)
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Transcript("take your time").event())
        await wait_for(slow.begun)
    await wait_for(slow.stopped)


async def test_a_conversation_goes_on_under_the_name_of_its_client(tmp_path: Path) -> None:
    with ScriptedModel([Says(text="Blue.")] * 3) as model:
        async with open_home(tmp_path / "home", model_url=model.base_url, wyoming=HANDLES) as home:
            for text, name in (("my colour?", "/../1"), ("what was it?", "/../1"), ("and now?", "other")):
                event = await answer_to(port_of(home), text, conversation_id=name)
                assert Handled.from_event(event).text == "Blue."
            await answer_to(port_of(home), " ")  # nothing to ask a model about
        asked = [request.said("assistant") for request in model.requests]
    assert asked == [[], ["Blue."], []]


async def test_without_its_user_it_does_nothing_and_says_so(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home", wyoming=WyomingSettings(user="nobody", port=0)) as home:
        event = await answer_to(port_of(home), "turn on the lamp")
    assert "there is no user 'nobody'" in str(NotHandled.from_event(event).text)


async def test_it_is_off_without_a_setting_and_local_without_allowed_addresses(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Wyoming has no login"):
        async with open_home(
            tmp_path / "home", wyoming=WyomingSettings(user="admin", host="0.0.0.0", port=0)
        ):
            pass


@pytest.mark.parametrize(
    "hostile",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"type": "transcript", "data_length": 99999999999}\n',
        b'{"type": "transcript", "data": {"text": ["turn on the lamp"]}}\n',
        b'{"type": "transcript", "data": {"text": "' + b"x" * 100_000 + b'"}}\n',
        b'{"type": "transcript", "data": {"text": "hi", "context": [[]]}}\n',
        b'{"type": 7}\n',
    ],
)
async def test_hostile_clients_harm_nobody(home: Home, port: int, hostile: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(hostile)
    writer.write_eof()
    await reader.read(-1)
    writer.close()
    await home.device("Desk", lamp := LampSkill())
    assert Handled.is_type((await answer_to(port, "turn on the lamp")).type)
    assert lamp.level == 100
