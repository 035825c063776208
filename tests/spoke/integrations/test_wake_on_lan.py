"""Wake-on-LAN, received as a network card does."""

import socket

import pytest
from pydantic import ValidationError

from contracts.errors import CallError
from spoke.integrations.wake_on_lan import WakeOnLanSkill

COMPUTERS = {"Gaming PC": "00:11:22:AA:bb:cc", "nas": "0011223344ff"}


@pytest.fixture
def card():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        yield receiver


async def test_a_computer_gets_the_packet_that_wakes_it(opened, card):
    place = {"broadcast": "127.0.0.1", "port": card.getsockname()[1]}
    async with opened("wake_on_lan", computers=COMPUTERS, **place) as lan:
        assert await lan.answer("wake up the gaming pc") == "I woke Gaming PC."
        assert card.recv(200) == b"\xff" * 6 + bytes.fromhex("001122aabbcc") * 16
        assert await lan.answer("weck das NAS auf", "de") == "nas fährt hoch."
        with pytest.raises(CallError, match="no computer 'toaster'") as caught:
            await lan.call("wake", computer="toaster")
        assert caught.value.hint == "There are: Gaming PC, nas."


@pytest.mark.parametrize("address", ["00:11:22:33:44", "zz:11:22:33:44:55", ""])
def test_what_is_no_hardware_address_is_refused(address):
    with pytest.raises(ValidationError, match="pattern"):
        WakeOnLanSkill.Settings(computers={"pc": address})
