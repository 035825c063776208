"""What speech says where nothing can answer: by what the hub did, whatever the bus says of it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.chat.messages import TurnError
from contracts.errors import HubUnreachable
from spoke.chat.speech import SpokenChat
from tests.hub_agent.home import open_home
from tests.mosquitto import Mosquitto
from tests.spoke.home import Place, wait_for
from tests.spoke.talk import Talker, open_talker


def spoken_to(talker: Talker) -> tuple[SpokenChat, Callable[[], Awaitable[bool]]]:
    """The chat of a voice, and what says whether its messages reach the hub."""
    server: Any = talker.spoke._server
    return SpokenChat(server.speech.agent, may_confirm=lambda: False), server._reaches_hub


async def test_a_hub_that_hangs_cannot_be_reached_although_it_is_on_the_bus(
    tmp_path: Path, place: Place
) -> None:
    async with open_home(tmp_path / "home") as home, open_talker(home, place, chat={"hub_s": 0.4}) as talker:
        chat, reaches_hub = spoken_to(talker)
        server: Any = talker.spoke._server
        await wait_for(server._is_hub_there, "the hub's status on the bus")
        talker.line.silent = True
        with pytest.raises(HubUnreachable):
            _ = [event async for event in chat.ask("what is the meaning of life")]
        assert server._is_hub_there()
        assert not await reaches_hub()


async def test_a_hub_that_refuses_the_device_is_quoted(tmp_path: Path, place: Place) -> None:
    async with open_home(tmp_path / "home") as home, open_talker(home, place) as talker:
        chat, _ = spoken_to(talker)
        async with home.client() as client:
            assert (await client.delete(f"/api/devices/{talker.spoke.device}")).is_success
        *_, last = [event async for event in chat.ask("what is the meaning of life")]
        assert isinstance(last, TurnError)
        assert last.code == "refused"
        assert "revoked" in last.message


async def test_a_hub_that_is_too_slow_for_display_still_gets_the_next_message(
    tmp_path: Path, place: Place
) -> None:
    async with (
        open_home(tmp_path / "home") as home,
        open_talker(home, place, chat={"check_s": 0.2}) as talker,
    ):
        chat, reaches_hub = spoken_to(talker)
        server: Any = talker.spoke._server
        await server.speech.agent()
        server.hub_online = lambda: False
        talker.line.silent = True
        assert not await reaches_hub()
        talker.line.silent = False
        *_, last = [event async for event in chat.ask("what is the meaning of life")]
        assert isinstance(last, TurnError)
        assert last.code == "no_model"


async def test_a_hub_without_a_model_says_so_although_the_broker_is_away(
    tmp_path: Path, place: Place, mosquitto: Mosquitto
) -> None:
    bus = {"url": mosquitto.url}
    async with (
        open_home(tmp_path / "home", kind="shared", bus=bus) as home,
        open_talker(home, place) as talker,
    ):
        chat, reaches_hub = spoken_to(talker)
        mosquitto.kill()
        await wait_for(lambda: not talker.spoke.connected, "the loss of the broker")
        *_, last = [event async for event in chat.ask("what is the meaning of life")]
        assert isinstance(last, TurnError)
        assert last.code == "no_model"
        assert await reaches_hub()
