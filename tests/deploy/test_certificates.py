"""The certificates of a home: made once, renewed in time, and taken up by what runs."""

import asyncio
import os
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from deploy.certificate import load_certificate, provide_certificate, shown
from deploy.directory import Home
from deploy.home.lan import Lan
from identity.certificates import ServerCertificate, client_context, own_names


def test_they_are_made_once_and_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert load_certificate(home) is None
    first, second = provide_certificate(home), provide_certificate(home)
    assert (first.made_authority, first.made_certificate) == (True, True)
    assert (second.made_authority, second.made_certificate) == (False, False)
    assert second.certificate == first.certificate
    assert set(own_names()[0]) <= set(first.certificate.names)
    for file in home.certs.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 or os.name != "posix", file


def test_a_name_that_was_given_once_is_in_every_later_certificate(tmp_path: Path) -> None:
    home = Home(tmp_path)
    provide_certificate(home, more=("hub.example", "203.0.113.7"))
    later = provide_certificate(home, renew=True)
    assert later.made_certificate
    assert "hub.example" in later.certificate.names
    assert "203.0.113.7" in later.certificate.addresses
    assert later.hosts[0][-1] == "hub.example"


def test_what_is_no_name_is_refused_and_not_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(ConfigError, match="is not the name of a machine"):
        provide_certificate(home, more=("no name",))
    assert "no name" not in provide_certificate(home).certificate.names


async def test_a_certificate_that_nears_its_end_is_renewed_for_what_listens_already(tmp_path: Path) -> None:
    home = Home(tmp_path)
    provided = provide_certificate(home)
    context, reloads = provided.certificate.context(), list[str]()
    authority = provided.authority
    lan = Lan(("hub",), ("192.0.2.1",), provided.certificate, authority.pem, context, shown(home))
    lan.on_renewed(lambda: reloads.append("reloaded"))
    assert not await lan.renew(home), "it is good for long"
    before = await asyncio.to_thread(_seen, context, authority.pem)

    # As if this machine had another name since yesterday.
    authority.issue(("formerly.local", "localhost"), (), directory=home.certs)
    assert await lan.renew(home)

    assert reloads == ["reloaded"]
    after = await asyncio.to_thread(_seen, context, authority.pem)
    assert after != before
    assert lan.certificate == ServerCertificate.load(home.certs)


def test_without_tls_others_are_told_addresses_because_a_name_may_mean_their_own_machine() -> None:
    assert Lan(("hub",), ("192.0.2.1",)).urls("mqtt", 1883) == ("mqtt://192.0.2.1:1883",)
    assert Lan(("hub",), ()).urls("mqtt", 1883) == ("mqtt://hub:1883",)
    secure = Lan(("hub",), ("192.0.2.1",), context=ssl.create_default_context())
    assert secure.urls("mqtts", 8883) == ("mqtts://192.0.2.1:8883", "mqtts://hub:8883")
    secure.told = ("hub.lan", "hub")
    assert secure.hosts == ("hub.lan", "hub", "192.0.2.1")


def _seen(context: ssl.SSLContext, ca: str) -> bytes:
    """The certificate that a client is shown which connects now."""
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def serve() -> None:
            with context.wrap_socket(theirs, server_side=True):
                pass

        server = threading.Thread(target=serve)
        server.start()
        with client_context(ca).wrap_socket(ours, server_hostname="localhost") as tls:
            shown = tls.getpeercert(binary_form=True)
        server.join()
    assert shown is not None
    return shown
