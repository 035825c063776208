"""The hub's HTTP API as another machine sees it, over real TLS."""

import ssl
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from contracts.devices.joining import HubCard, ca_document
from contracts.errors import ConfigError
from deploy.home.local_hub import report_setup
from deploy.home.running import Reporter
from hub_agent.settings import HttpSettings, LanSettings
from hub_server.http.lan import open_lan
from identity.certificates import Authority, client_context
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill

NAME = "hub.test"


@asynccontextmanager
async def open_lan_home(directory: Path, **settings: Any) -> AsyncIterator[tuple[Home, Authority]]:
    """A home whose hub other machines reach over TLS."""
    certs = directory / "certs"
    authority = Authority.load_or_create(certs)
    authority.issue((NAME, "localhost"), ("127.0.0.1",), directory=certs)
    lan = LanSettings(host="127.0.0.1", port=0, certificates=certs)
    http = HttpSettings(port=0, lan=lan)
    async with open_home(directory / "home", http=http, ca=authority.pem, **settings) as home:
        yield home, authority


@pytest.fixture
async def lan(tmp_path: Path) -> AsyncIterator[tuple[Home, Authority]]:
    async with open_lan_home(tmp_path) as opened:
        yield opened


def from_afar(
    home: Home, authority: Authority, token: str | None = None, **headers: str
) -> httpx.AsyncClient:
    """A client on another machine that has pinned the authority."""
    return httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{home.hub.lan_port}",
        headers={"authorization": f"Bearer {token or home.admin_token}", **headers},
        verify=client_context(authority.pem),
        timeout=120,
    )


async def test_another_machine_uses_the_same_api_over_tls(lan: tuple[Home, Authority]) -> None:
    home, authority = lan
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp)
    async with from_afar(home, authority) as client:
        said = await client.post("/api/chat", json={"message": "turn on the lamp"})
        assert said.json()["answer"] == "The lamp is at 100 percent."
    async with home.client() as local:
        assert (await local.get("/api/skills")).status_code == 200


async def test_who_has_not_pinned_the_authority_sends_nothing(lan: tuple[Home, Authority]) -> None:
    home, _ = lan
    async with httpx.AsyncClient(base_url=f"https://127.0.0.1:{home.hub.lan_port}", timeout=60) as stranger:
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            await stranger.get("/api/health")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{home.hub.lan_port}", timeout=60) as plain:
        with pytest.raises(httpx.RemoteProtocolError):
            await plain.get("/api/health")


@pytest.mark.parametrize(
    ("host", "far", "near"),
    [
        ("127.0.0.1", 200, 200),
        (f"{NAME}:8443", 200, 421),
        ("HUB.test", 200, 421),
        ("other.test", 421, 421),
        (f"{NAME}.evil.example", 421, 421),
    ],
)
async def test_the_names_of_the_certificate_are_served_there(
    lan: tuple[Home, Authority], host: str, far: int, near: int
) -> None:
    home, authority = lan
    async with from_afar(home, authority, host=host) as client:
        assert (await client.get("/api/skills")).status_code == far
    async with home.client(host=host) as client:
        answer = await client.get("/api/skills")
    # A refusal has the headers of every answer.
    assert (answer.status_code, answer.headers["x-content-type-options"]) == (near, "nosniff")
    assert {"date", "x-request-id"} <= answer.headers.keys()


async def test_what_a_device_is_told_is_good_from_where_it_asks(lan: tuple[Home, Authority]) -> None:
    home, authority = lan
    registry = home.hub.registry
    async with from_afar(home, authority, host=f"{NAME}:8443") as client:
        added = (await client.post("/api/devices", json={"name": "Attic"})).json()
        assert added["command"] == (
            f"strawberry spoke run --hub https://{NAME}:8443 --hub-key {registry.key.kid}"
        )
        card = HubCard.model_validate((await client.get("/.well-known/strawberry")).json())
    async with home.client() as local:
        # Whoever asks on the machine itself wants it for another one.
        invited = (await local.post("/api/devices/attic/invitations")).json()
        assert f"--hub https://127.0.0.1:{home.hub.lan_port} " in invited["command"]
    assert card.ca == authority.pem
    assert card.ca_signature is not None
    document = ca_document(hub_id=card.hub_id, ca=card.ca)
    assert registry.key.public.verify(urlsafe_b64decode(card.ca_signature + "=="), document)
    assert registry.settings.bus.ca == authority.pem


async def test_who_accepted_the_warning_gets_what_a_browser_trusts(lan: tuple[Home, Authority]) -> None:
    home, authority = lan
    async with httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{home.hub.lan_port}", verify=False
    ) as accepting:
        answer = await accepting.get("/ca.crt")
    assert answer.headers["content-type"] == "application/x-x509-ca-cert"
    pem = ssl.DER_cert_to_PEM_cert(answer.content)
    # Not the authority itself, which vouches for any name.
    assert pem.strip() != authority.pem.strip()
    async with httpx.AsyncClient(verify=client_context(pem)) as client:
        assert (await client.get(f"https://127.0.0.1:{home.hub.lan_port}/api/health")).status_code == 200


async def test_a_renewed_certificate_is_shown_without_a_restart(
    lan: tuple[Home, Authority], tmp_path: Path
) -> None:
    home, authority = lan
    async with from_afar(home, authority) as before:
        assert (await before.get("/api/health")).status_code == 200
        authority.issue(("new.test",), ("127.0.0.1",), directory=tmp_path / "certs")
        assert home.hub.reload_certificate is not None
        home.hub.reload_certificate()
        async with from_afar(home, authority, host="new.test") as client:
            assert (await client.get("/api/health")).status_code == 200
        # Who is connected already stays so.
        assert (await before.get("/api/health")).status_code == 200
    async with from_afar(home, authority, host=NAME) as client:
        assert (await client.get("/api/health")).status_code == 421


async def test_a_damaged_certificate_leaves_the_present_one_as_it_is(
    lan: tuple[Home, Authority], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home, authority = lan
    (tmp_path / "certs" / "server.pem").write_text("rubbish")
    assert home.hub.reload_certificate is not None
    home.hub.reload_certificate()
    assert "cannot be used" in caplog.text
    async with from_afar(home, authority, host=NAME) as client:
        assert (await client.get("/api/health")).status_code == 200


async def test_in_the_clear_only_where_that_was_spelled_out(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="insecure"):
        LanSettings()
    lan = LanSettings(host="127.0.0.1", port=0, insecure=True, names=("Hub.Test",))
    async with open_home(tmp_path / "home", http=HttpSettings(port=0, lan=lan)) as home:
        url = f"http://127.0.0.1:{home.hub.lan_port}"
        headers = {"authorization": f"Bearer {home.admin_token}", "host": NAME}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            assert (await client.get("/api/skills")).status_code == 200
        assert home.hub.lan_port != home.hub.http_port


async def test_the_link_for_the_first_password_is_good_on_another_machine(
    lan: tuple[Home, Authority],
) -> None:
    printed: list[str] = []
    await report_setup(lan[0].hub, Reporter(printed.append))
    assert f"password https://127.0.0.1:{lan[0].hub.lan_port}/setup#" in printed[0]


@pytest.mark.parametrize(
    ("names", "addresses", "told", "host"),
    [
        (("localhost", "hub.lan"), ("127.0.0.1",), (), "hub.lan"),
        (("hub.lan",), ("192.0.2.9",), (), "192.0.2.9"),
        # A container knows none of the addresses that others have for it.
        (("hub.lan",), ("192.0.2.9",), ("hub.lan",), "hub.lan"),
    ],
)
def test_the_address_for_others_is_one_that_the_certificate_is_for(
    tmp_path: Path, names: tuple[str, ...], addresses: tuple[str, ...], told: tuple[str, ...], host: str
) -> None:
    Authority.load_or_create(tmp_path).issue(names, addresses, directory=tmp_path)
    with open_lan(LanSettings(port=0, certificates=tmp_path, told=told)) as opened:
        assert opened.url == f"https://{host}:{opened.port}"


async def test_without_certificates_it_does_not_listen(tmp_path: Path) -> None:
    lan = LanSettings(host="127.0.0.1", port=0, certificates=tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot read") as raised:
        async with open_home(tmp_path / "home", http=HttpSettings(port=0, lan=lan)):
            pass
    assert "strawberry certs" in raised.value.hint
