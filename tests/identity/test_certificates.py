"""The certificate authority of a home and its server certificates, as Python and OpenSSL see them."""

import logging
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from contracts.errors import ConfigError
from identity.certificates import (
    Authority,
    ServerCertificate,
    authority_for_browsers,
    client_context,
    needs_renewal,
    own_names,
)
from identity.keys import KeyPair
from tests.requirements import require

NAMES = ("localhost", "hub.local")
ADDRESSES = ("127.0.0.1", "::1")
DAY = 24 * 3600


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "certs"


@pytest.fixture
def authority(directory: Path) -> Authority:
    return Authority.load_or_create(directory)


@pytest.fixture
def server(authority: Authority, directory: Path) -> ServerCertificate:
    return authority.issue(NAMES, ADDRESSES, directory=directory)


def find_openssl() -> str:
    openssl = shutil.which("openssl")
    require(openssl is not None, "openssl is not installed: apt-get install openssl")
    assert openssl is not None
    return openssl


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str:
    """Connect with real sockets; give the TLS version."""
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    theirs.settimeout(30)

    def serve() -> None:
        with theirs:
            try:
                server.wrap_socket(theirs, server_side=True).close()
            except OSError:
                return  # the client's side tells

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours, client.wrap_socket(ours, server_hostname=host) as secure:
            return str(secure.version())
    finally:
        thread.join()


def test_the_authority_stays_the_same_once_it_is_made(authority: Authority, directory: Path) -> None:
    again = Authority.load_or_create(directory)
    assert again.pem == authority.pem
    assert (directory / "ca.pem").read_text() == authority.pem


@pytest.mark.skipif(sys.platform == "win32", reason="file modes are POSIX")
def test_keys_are_for_their_owner_alone(server: ServerCertificate, directory: Path) -> None:
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert {modes[name] for name in ("ca.key", "server.key", "ca.pem", "server.pem")} == {0o600}


def test_the_authority_may_sign_servers_and_no_other_authority(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.pem.encode())
    extensions = certificate.extensions
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.crl_sign, usage.value.digital_signature) == (
        True,
        True,
        False,
    )
    years = (certificate.not_valid_after_utc - datetime.now(UTC)).days / 365.2
    assert 9.9 < years < 10.1


def test_a_server_certificate_is_for_its_hosts_and_for_servers_among_each_other(
    server: ServerCertificate,
) -> None:
    certificate = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(days=397)
    assert (server.names, server.addresses) == (NAMES, ADDRESSES)
    assert server.expires_at == certificate.not_valid_after_utc.timestamp()
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=23)


@pytest.mark.parametrize("host", [*NAMES, *ADDRESSES])
def test_a_client_that_pins_the_authority_trusts_the_server(
    server: ServerCertificate, authority: Authority, host: str
) -> None:
    assert shake_hands(server.context(), client_context(authority.pem), host) == "TLSv1.3"


def test_what_a_browser_trusts_is_good_for_the_home_alone(
    server: ServerCertificate, authority: Authority, directory: Path, tmp_path: Path
) -> None:
    browser = ssl.create_default_context(cadata=authority_for_browsers(directory))
    for host in (*NAMES, *ADDRESSES):
        assert shake_hands(server.context(), browser, host) == "TLSv1.3"
    for host in ("bank.example", "203.0.113.7"):
        other = authority.issue((host,), (), directory=tmp_path / host)
        assert shake_hands(other.context(), client_context(authority.pem), host) == "TLSv1.3"
        with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
            shake_hands(other.context(), browser, host)


def test_tls_1_2_is_taken_and_nothing_older(server: ServerCertificate, authority: Authority) -> None:
    older = client_context(authority.pem)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake_hands(server.context(), older, "localhost") == "TLSv1.2"
    assert server.context().minimum_version == ssl.TLSVersion.TLSv1_2
    assert client_context(None).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_server_certificate_is_found_again(server: ServerCertificate, directory: Path) -> None:
    assert ServerCertificate.load(directory) == server


def test_a_new_certificate_counts_in_a_context_that_is_in_use(
    server: ServerCertificate, authority: Authority, directory: Path
) -> None:
    context = server.context()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, client_context(authority.pem), "new.local")
    authority.issue([*NAMES, "new.local"], ADDRESSES, directory=directory).load_into(context)
    assert shake_hands(context, client_context(authority.pem), "new.local") == "TLSv1.3"


def test_a_new_key_counts_in_a_context_that_is_in_use(
    server: ServerCertificate, authority: Authority, directory: Path
) -> None:
    context = server.context()
    server.key.unlink()
    authority.issue(NAMES, ADDRESSES, directory=directory).load_into(context)
    assert shake_hands(context, client_context(authority.pem), "localhost") == "TLSv1.3"


def test_the_servers_key_outlives_a_renewal(
    server: ServerCertificate, authority: Authority, directory: Path
) -> None:
    before = server.key.read_bytes()
    authority.issue(NAMES, ADDRESSES, directory=directory)
    assert server.key.read_bytes() == before


def test_renewal_is_due_in_the_last_month_and_when_a_host_is_missing(server: ServerCertificate) -> None:
    assert not needs_renewal(server, NAMES, ADDRESSES)
    assert not needs_renewal(server, NAMES[:1], ADDRESSES[:1])
    assert needs_renewal(server, [*NAMES, "new.local"], ADDRESSES)
    assert needs_renewal(server, NAMES, [*ADDRESSES, "192.168.1.2"])
    now = int(datetime.now(UTC).timestamp())
    assert needs_renewal(replace(server, expires_at=now + 30 * DAY - 60), NAMES, ADDRESSES)
    assert not needs_renewal(replace(server, expires_at=now + 30 * DAY + 60), NAMES, ADDRESSES)


def test_only_what_is_due_is_made_anew(authority: Authority, directory: Path) -> None:
    first = authority.ensure(NAMES, ADDRESSES, directory=directory)
    content = first.certificate.read_bytes()
    assert authority.ensure(NAMES, ADDRESSES, directory=directory) == first
    assert first.certificate.read_bytes() == content
    second = authority.ensure([*NAMES, "new.local"], ADDRESSES, directory=directory)
    assert second.names == (*NAMES, "new.local")


def test_a_certificate_of_another_authority_is_made_anew(server: ServerCertificate, directory: Path) -> None:
    for name in ("ca.pem", "ca.key"):
        (directory / name).unlink()
    other = Authority.load_or_create(directory)
    assert not other.issued(server)
    assert other.issued(other.ensure(NAMES, ADDRESSES, directory=directory))


def test_a_broken_certificate_is_made_anew(
    server: ServerCertificate, authority: Authority, directory: Path
) -> None:
    server.certificate.write_text("broken")
    assert authority.ensure(NAMES, ADDRESSES, directory=directory).names == NAMES


def test_no_certificate_outlives_its_authority(authority: Authority, directory: Path) -> None:
    end = datetime.fromtimestamp(authority.expires_at, UTC)
    last = authority.issue(NAMES, ADDRESSES, directory=directory, at=end - timedelta(days=5))
    assert last.expires_at == authority.expires_at
    with pytest.raises(ConfigError, match="has expired") as caught:
        authority.issue(NAMES, ADDRESSES, directory=directory, at=end)
    assert "join again" in caught.value.hint


def test_addresses_among_the_names_count_as_addresses(authority: Authority, directory: Path) -> None:
    certificate = authority.issue(["HUB.local", "hub.local", "192.168.1.2"], ["0:0::1"], directory=directory)
    assert (certificate.names, certificate.addresses) == (("hub.local",), ("192.168.1.2", "::1"))


def test_names_beyond_ascii_are_written_as_the_net_does(authority: Authority, directory: Path) -> None:
    assert authority.issue(["küche.local"], [], directory=directory).names == ("xn--kche-0ra.local",)


@pytest.mark.parametrize("name", ["", "a b", "*.local", "http://hub", "-hub", "x" * 64, "hub..local", "a\0b"])
def test_what_is_no_name_is_refused(authority: Authority, directory: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not the name of a machine"):
        authority.issue([name], [], directory=directory)


def test_a_certificate_for_nobody_is_refused(authority: Authority, directory: Path) -> None:
    with pytest.raises(ConfigError, match="at least one name"):
        authority.issue([], [], directory=directory)


def test_this_machine_is_known_by_its_names_and_addresses(authority: Authority, directory: Path) -> None:
    names, addresses = own_names()
    host = socket.gethostname().lower().partition(".")[0]
    assert {"localhost", host, f"{host}.local"} <= set(names)
    assert {"127.0.0.1", "::1"} <= set(addresses)
    assert not any(ip_address(address).is_link_local for address in addresses)
    certificate = authority.issue(names, addresses, directory=directory)
    assert not needs_renewal(certificate, *own_names())


@pytest.mark.parametrize(
    "ca", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_authority_to_trust_that_is_none_is_an_error(ca: str) -> None:
    with pytest.raises(ConfigError, match="not a PEM certificate"):
        client_context(ca)


def test_what_cannot_be_used_is_an_error_that_shows_no_key(
    server: ServerCertificate, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = (directory / "ca.key").read_text().splitlines()[1]
    (directory / "ca.key").write_text(f"-----BEGIN PRIVATE KEY-----\n{secret}\n")
    with pytest.raises(ConfigError, match=r"ca\.key is not a key") as caught:
        Authority.load_or_create(directory)
    KeyPair.generate().save(directory / "ca.key")
    with pytest.raises(ConfigError, match="not a key of the kind"):
        Authority.load_or_create(directory)
    (directory / "ca.key").write_bytes(server.key.read_bytes())
    with pytest.raises(ConfigError, match="do not belong together"):
        Authority.load_or_create(directory)
    (directory / "ca.key").unlink()
    (directory / "ca.key").mkdir()
    with pytest.raises(ConfigError, match=r"cannot read .*ca\.key"):
        Authority.load_or_create(directory)
    (directory / "server.key").write_text(secret)
    with pytest.raises(ConfigError, match=r"server\.key is not a key"):
        ServerCertificate.load(directory)
    with pytest.raises(ConfigError, match="do not belong together"):
        server.context()
    assert secret not in f"{caught.value.message} {caught.value.hint} {caplog.text}"
    assert "strawberry certs" in caught.value.hint


def test_a_certificate_serves_without_the_key_of_the_authority_and_is_not_renewed_there(
    server: ServerCertificate, directory: Path
) -> None:
    (directory / "ca.key").unlink()
    authority = Authority.load_or_create(directory)
    assert authority.ensure(server.names, server.addresses, directory=directory) == server
    with pytest.raises(ConfigError, match=r"there is no ca\.key"):
        authority.ensure(["other.lan"], (), directory=directory)
    with pytest.raises(ConfigError, match=r"there is no ca\.key"):
        authority_for_browsers(directory)
    assert not (directory / "ca.key").exists()


def test_an_encrypted_key_is_refused_without_asking_for_a_password(
    server: ServerCertificate, directory: Path
) -> None:
    openssl = find_openssl()
    locked = directory / "locked.key"
    subprocess.run(
        [openssl, "ec", "-aes128", "-passout", "pass:secret", "-in", str(server.key), "-out", str(locked)],
        check=True,
        capture_output=True,
    )
    with pytest.raises(ConfigError, match="do not belong together"):
        replace(server, key=locked).context()


def test_a_key_that_a_crash_left_alone_becomes_the_authority(directory: Path) -> None:
    first = Authority.load_or_create(directory)
    key = (directory / "ca.key").read_bytes()
    (directory / "ca.pem").unlink()
    second = Authority.load_or_create(directory)
    assert (directory / "ca.key").read_bytes() == key
    server = second.issue(NAMES, ADDRESSES, directory=directory)
    # Who pinned the first certificate of the same key need not join again.
    assert shake_hands(server.context(), client_context(first.pem), "localhost") == "TLSv1.3"


def test_several_at_once_make_one_authority(directory: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Authority.load_or_create(directory).pem, range(8)))
    assert len(set(made)) == 1
