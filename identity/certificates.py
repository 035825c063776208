"""TLS of a home: its own certificate authority, the certificates of its servers, and whom clients trust."""

import ipaddress
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from contracts.errors import ConfigError
from identity.files import only_one, write_private
from identity.limits import CERTIFICATES_S

__all__ = [
    "Authority",
    "ServerCertificate",
    "authority_for_browsers",
    "client_context",
    "needs_renewal",
    "own_names",
    "primary_address",
]

_AUTHORITY: Final = timedelta(days=3652)
_SERVER: Final = timedelta(days=397)
"""The most that browsers accept of public authorities."""
_BACKDATED: Final = timedelta(days=1)
"""The clocks of two machines may differ, and many a small one starts with yesterday's time."""
_RENEWED_BEFORE: Final = timedelta(days=30)

_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\Z")
_ELSEWHERE: Final = "192.0.2.1"
"""A documentation address (RFC 5737), to ask the system which of its own it would use to get there."""

_PRIVATE: Final = (
    *("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    # A provider changes the IPv6 addresses of a home from one day to the next.
    "::/0",
)
"""Networks whose addresses a browser lets the authority vouch for."""


class Authority:
    """The certificate authority of one home; its private key never leaves its file.

    Args:
        key: None where it is kept elsewhere: then it makes no certificate, and those that are there serve.

    Attributes:
        pem: Its certificate, which clients pin.
    """

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | None) -> None:
        self.pem = _pem(certificate)
        self._certificate = certificate
        self._key = key

    @classmethod
    def load_or_create(cls, directory: Path) -> Self:
        """Read ``ca.pem`` and ``ca.key``, or make them, owner-only.

        Raises:
            ConfigError: If they cannot be used.
        """
        with _alone(directory):
            certificate_file, key_file = directory / "ca.pem", directory / "ca.key"
            if certificate_file.exists():
                return cls(*_load_authority(certificate_file, key_file))
            # A key without certificate is what a crash in between leaves; it is as good as a new one.
            key = _load_or_create_key(key_file)
            begins = datetime.now(UTC) - _BACKDATED
            certificate = _make_authority(key, begins, begins + _AUTHORITY)
            write_private(certificate_file, _pem(certificate).encode())
            return cls(certificate, key)

    @property
    def expires_at(self) -> int:
        return int(self._certificate.not_valid_after_utc.timestamp())

    def issue(
        self,
        names: Collection[str],
        addresses: Collection[str],
        *,
        directory: Path,
        at: datetime | None = None,
    ) -> "ServerCertificate":
        """Make a server certificate: ``server.pem`` and ``server.key``, owner-only.

        The key stays the same when it is there already, so that the two files always fit together; who
        wants a new one removes ``server.key`` first.

        Args:
            names: Host names; an address among them counts as one.
            addresses: IP addresses.
            at: When its time begins, with a time zone; now unless a test wants another moment.

        Raises:
            ConfigError: If a name or address is none, or a file cannot be used.
        """
        own = _required(self._key)
        hosts, numbers = _sorted_out([*names, *addresses])
        now = at or datetime.now(UTC)
        if now >= self._certificate.not_valid_after_utc:
            raise ConfigError(
                "the certificate authority of this home has expired",
                hint="Remove ca.pem and ca.key, make new certificates, and let every device join again.",
            )
        with _alone(directory):
            key = _load_or_create_key(directory / "server.key")
            certificate = (
                x509.CertificateBuilder()
                .subject_name(_name(next((name for name in hosts if len(name) <= 64), "strawberry")))
                .issuer_name(self._certificate.subject)
                .public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - _BACKDATED)
                .not_valid_after(min(now - _BACKDATED + _SERVER, self._certificate.not_valid_after_utc))
                .add_extension(x509.SubjectAlternativeName(_general(hosts, numbers)), critical=False)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .add_extension(_usage(signature=True), critical=True)
                .add_extension(x509.ExtendedKeyUsage(_BOTH), critical=False)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
                .add_extension(
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key()),
                    critical=False,
                )
                .sign(own, SHA256())
            )
            write_private(directory / "server.pem", _pem(certificate).encode())
        return ServerCertificate.load(directory)

    def ensure(
        self, names: Collection[str], addresses: Collection[str], *, directory: Path
    ) -> "ServerCertificate":
        """Return the server certificate that is there; a new one where it is missing, unfit, or due."""
        try:
            certificate = ServerCertificate.load(directory)
        except ConfigError:
            return self.issue(names, addresses, directory=directory)
        if needs_renewal(certificate, names, addresses) or not self.issued(certificate):
            return self.issue(names, addresses, directory=directory)
        return certificate

    def issued(self, certificate: "ServerCertificate") -> bool:
        """Return whether a server certificate is by this authority."""
        try:
            _read_certificate(certificate.certificate).verify_directly_issued_by(self._certificate)
        except (ConfigError, ValueError, TypeError, InvalidSignature):
            return False
        return True


@dataclass(frozen=True)
class ServerCertificate:
    """The certificate of a server, and where its key is.

    Attributes:
        certificate: PEM file.
        key: PEM file of the private key.
        names: Host names that it is for.
        addresses: IP addresses that it is for.
        expires_at: Not valid from here on, seconds since the epoch.
    """

    certificate: Path
    key: Path
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    expires_at: int

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read ``server.pem``.

        Raises:
            ConfigError: If there is none, or it and ``server.key`` cannot be used.
        """
        path, key_file = directory / "server.pem", directory / "server.key"
        certificate = _read_certificate(path)
        if certificate.public_key() != _read_key(key_file).public_key():
            raise _unfit(path, key_file)
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            names = x509.SubjectAlternativeName([])
        return cls(
            certificate=path,
            key=key_file,
            names=tuple(names.get_values_for_type(x509.DNSName)),
            addresses=tuple(str(address) for address in names.get_values_for_type(x509.IPAddress)),
            expires_at=int(certificate.not_valid_after_utc.timestamp()),
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, as browsers show it."""
        der = ssl.PEM_cert_to_DER_cert(self.certificate.read_text("ascii"))
        return sha256(der).digest().hex(":").upper()

    @property
    def pin(self) -> str:
        """SHA-256 of its public key in base64, as ``curl --pinnedpubkey`` takes it."""
        key = _read_certificate(self.certificate).public_key()
        return b64encode(
            sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
        ).decode()

    def context(self) -> ssl.SSLContext:
        """Make the server's side of TLS, 1.2 or newer.

        Raises:
            ConfigError: If the files cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make a context that is in use present this certificate to new connections.

        Raises:
            ConfigError: If the files cannot be used.
        """
        try:
            # Without a password function OpenSSL would ask on the terminal for an encrypted key.
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (OSError, ssl.SSLError):
            raise _unfit(self.certificate, self.key) from None


def needs_renewal(certificate: ServerCertificate, names: Collection[str], addresses: Collection[str]) -> bool:
    """Return whether to renew a certificate: 30 days are left, or a name or address is missing in it."""
    hosts, numbers = _sorted_out([*names, *addresses])
    if certificate.expires_at - time.time() < _RENEWED_BEFORE.total_seconds():
        return True
    return not (set(hosts) <= set(certificate.names) and set(numbers) <= set(certificate.addresses))


def authority_for_browsers(directory: Path) -> bytes:
    """Return the authority as phones and browsers are to trust it: DER, for names of the home alone.

    It has the name and the key of the authority itself, so that the server's certificate is by both. Its
    name constraints are the server's names and addresses, and private networks.

    Raises:
        ConfigError: If a file cannot be used.
    """
    certificate, key = _load_authority(directory / "ca.pem", directory / "ca.key")
    key = _required(key)
    server = ServerCertificate.load(directory)
    networks = map(ipaddress.ip_network, dict.fromkeys((*_PRIVATE, *server.addresses)))
    permitted = [*map(x509.DNSName, server.names), *map(x509.IPAddress, networks)]
    made = _make_authority(
        key,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None),
    )
    return made.public_bytes(Encoding.DER)


def client_context(ca: str | None) -> ssl.SSLContext:
    """Make a client's side of TLS, 1.2 or newer, which always checks that the certificate is for the host.

    Args:
        ca: PEM of the authorities that are trusted; None trusts those of the system.

    Raises:
        ConfigError: If the PEM holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            "the certificate authority that is to be trusted is not a PEM certificate",
            hint="Give the file ca.pem of the home, or join again.",
        ) from None
    return context


def own_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the host names and the IP addresses of this machine, as others in the home may write them."""
    import psutil  # 15 ms, which a start over loopback does not need

    host = socket.gethostname().lower().rstrip(".")
    short = host.partition(".")[0]
    names = {host, short, f"{short}.local"}
    found = {"127.0.0.1", "::1"}
    for interface in psutil.net_if_addrs().values():
        for each in interface:
            if each.family in (socket.AF_INET, socket.AF_INET6):
                address = ipaddress.ip_address(each.address.partition("%")[0])
                if not (address.is_loopback or address.is_link_local or address.is_unspecified):
                    found.add(str(address))
    return ("localhost", *sorted(name for name in names if _NAME.match(name))), tuple(sorted(found))


def primary_address() -> str | None:
    """Return the address by which this machine reaches others; None where it reaches none.

    Nothing is sent.
    """
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect((_ELSEWHERE, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _make_authority(
    key: ec.EllipticCurvePrivateKey,
    begins: datetime,
    ends: datetime,
    constraints: x509.NameConstraints | None = None,
) -> x509.Certificate:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # The name is one of a kind, so that two homes do not get mixed up in a list of authorities.
    name = _name(f"Strawberry home {identifier.digest.hex()[:8]}")
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signature=False), critical=True)
        .add_extension(identifier, critical=False)
    )
    if constraints is not None:
        builder = builder.add_extension(constraints, critical=True)
    return builder.sign(key, SHA256())


_BOTH: Final = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
"""A node of a cluster is a client of the others, too."""


def _usage(*, signature: bool) -> x509.KeyUsage:
    """Return what a key is for: a server's signs handshakes, an authority's signs certificates."""
    return x509.KeyUsage(
        digital_signature=signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=not signature,
        crl_sign=not signature,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general(hosts: list[str], numbers: list[str]) -> list[x509.GeneralName]:
    addresses = (x509.IPAddress(ipaddress.ip_address(number)) for number in numbers)
    return [*(x509.DNSName(host) for host in hosts), *addresses]


def _sorted_out(given: list[str]) -> tuple[list[str], list[str]]:
    """Separate names from addresses, each once and in its canonical form.

    Raises:
        ConfigError: If there is none, or one is neither.
    """
    hosts: dict[str, None] = {}
    numbers: dict[str, None] = {}
    for each in given:
        try:
            numbers[str(ipaddress.ip_address(each))] = None
        except ValueError:
            hosts[_host(each)] = None
    if not hosts and not numbers:
        raise ConfigError("a certificate needs at least one name or address")
    return list(hosts), list(numbers)


def _host(text: str) -> str:
    try:
        host = text.encode("idna").decode().lower()
    except UnicodeError:
        host = ""
    if not _NAME.match(host):
        raise ConfigError(f"{text!r} is not the name of a machine", hint="Write it as hub.local.")
    return host


def _load_authority(path: Path, key_file: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey | None]:
    certificate = _read_certificate(path)
    if not key_file.exists():
        return certificate, None
    key = _read_key(key_file)
    if certificate.public_key() != key.public_key():
        raise _unfit(path, key_file)
    return certificate, key


def _required(key: ec.EllipticCurvePrivateKey | None) -> ec.EllipticCurvePrivateKey:
    if key is None:
        raise ConfigError(
            "there is no ca.key here, with which to make a certificate",
            hint="Copy it from certs of another machine of the home, or make the certificate there.",
        )
    return key


def _load_or_create_key(path: Path) -> ec.EllipticCurvePrivateKey:
    if path.exists():
        return _read_key(path)
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=_REMAKE) from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} is not a key of the kind that is made here", hint=_REMAKE)
    return key


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=_REMAKE) from None
    except ValueError:
        raise ConfigError(f"{path} is not a certificate", hint=_REMAKE) from None


_REMAKE: Final = "Restore it from a backup, or remove it and run: strawberry certs."


def _unfit(certificate: Path, key: Path) -> ConfigError:
    return ConfigError(f"{certificate} and {key.name} do not belong together", hint=_REMAKE)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Wait until no other process makes files in the directory, and keep others waiting."""
    deadline = time.monotonic() + CERTIFICATES_S
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(only_one(directory, what="another program", hint="Try again."))
                break
            except ConfigError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        yield
