"""Hubs that announce themselves, heard over the loopback interface with the real library."""

import asyncio
import os
import socket
from typing import Any

import pytest
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from contracts import addresses
from spoke.membership.discovery import Suggestion, look_around

LOOPBACK = ["127.0.0.1"]


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service of this process: a hub of another test may announce itself at the same time."""
    monkeypatch.setattr(addresses, "DNS_SD_SERVICE", f"_strawb{os.getpid()}._tcp.local.")


def announcement(name: str, *, address: str = "127.0.0.1", port: int = 8443, **told: Any) -> ServiceInfo:
    return ServiceInfo(
        addresses.DNS_SD_SERVICE,
        f"{name}.{addresses.DNS_SD_SERVICE}",
        addresses=[socket.inet_aton(address)],
        port=port,
        properties=told,
        server=f"{name.replace(' ', '-')}.local.",
    )


async def heard(*announcements: ServiceInfo) -> list[Suggestion]:
    """Announce, and listen until all are heard: answers that come while all stands still are lost."""
    async with AsyncZeroconf(interfaces=LOOPBACK) as network:
        # It is not asked first whether the name is free, which would take a second each.
        for each in announcements:
            await network.async_register_service(each, cooperating_responders=True)
        try:
            async with asyncio.timeout(60):
                while True:
                    # What was announced within the last second is only said again after another one.
                    found = await look_around(listen_s=2.5, interfaces=LOOPBACK)
                    if {one.name for one in announcements} <= {_service(each.name) for each in found}:
                        return found
        finally:
            await network.async_unregister_all_services()


def _service(name: str) -> str:
    return f"{name}.{addresses.DNS_SD_SERVICE}"


@pytest.mark.slow
async def test_hubs_are_suggested_with_their_address_and_the_key_they_claim() -> None:
    found = await heard(
        announcement("Home of Anna", id="home-1", key="k1", path="", tls="1"),
        announcement("Cabin", port=8321, id="home-2", key="k2", path="/strawberry/", tls="0"),
    )
    assert found == [
        Suggestion("Cabin", "http://127.0.0.1:8321/strawberry", "home-2", "k2"),
        Suggestion("Home of Anna", "https://127.0.0.1:8443", "home-1", "k1"),
    ]


async def test_where_nobody_answers_nothing_is_suggested() -> None:
    assert await look_around(listen_s=0.3, interfaces=LOOPBACK) == []


@pytest.mark.slow
async def test_an_announcement_is_believed_in_nothing_and_spoils_no_terminal() -> None:
    found = await heard(
        announcement("Bare"), announcement("Flag", id=None), announcement("Odd", key="k\x1b[2J", tls="yes")
    )
    assert [(each.name, each.key) for each in found] == [("Bare", ""), ("Flag", ""), ("Odd", "k[2J")]
    assert {each.url for each in found} == {"http://127.0.0.1:8443"}
