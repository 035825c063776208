"""Certificates of a home: its authority, and the server's for what this machine is called."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.addresses import is_address
from contracts.errors import ConfigError
from deploy.directory import Home
from identity.certificates import Authority, ServerCertificate, own_names
from identity.files import write_private

_NAMES_FILE: Final = "names.json"
_DAY_S: Final = 24 * 3600


@dataclass(frozen=True)
class Provided:
    """The certificates that lie in ``certs``.

    Attributes:
        hosts: Names, and addresses, under which this machine is reached today.
        told: Those of them that a person gave with ``strawberry certs --name``.
        made_authority: Whether the authority is new.
        made_certificate: Whether the server certificate is new.
    """

    authority: Authority
    certificate: ServerCertificate
    hosts: tuple[tuple[str, ...], tuple[str, ...]]
    told: tuple[str, ...]
    made_authority: bool
    made_certificate: bool

    @property
    def days_left(self) -> int:
        return days_left(self.certificate)

    def describe(self) -> Iterator[str]:
        """Return lines for a person: what was made and what exists."""
        if self.made_authority:
            yield "made the certificate authority of this home"
        verb = "made a server certificate" if self.made_certificate else "server certificate"
        hosts = ", ".join((*self.certificate.names, *self.certificate.addresses))
        yield f"{verb} for {hosts}; good for {self.days_left} days"


def provide_certificate(home: Home, *, more: Sequence[str] = (), renew: bool = False) -> Provided:
    """See to it that there is a good server certificate for what this machine is called.

    Args:
        more: Names or addresses besides; kept for every later certificate.
        renew: Whether to make a new one even if the present one is good.

    Raises:
        ConfigError: If a file cannot be used, or a name cannot stand in a certificate.
    """
    made_authority = not (home.certs / "ca.pem").exists()
    authority = Authority.load_or_create(home.certs)
    before = shown(home)
    kept = _kept_names(home)
    extra = tuple(dict.fromkeys((*kept, *more)))
    names, addresses = _sorted_out(extra)
    make = authority.issue if renew else authority.ensure
    certificate = make(names, addresses, directory=home.certs)
    if extra != kept:
        # Only now: a name that cannot stand in a certificate would spoil all later ones.
        write_private(home.certs / _NAMES_FILE, json.dumps(extra).encode())
    return Provided(
        authority,
        certificate,
        (names, addresses),
        extra,
        made_authority,
        made_certificate=shown(home) != before,
    )


def load_certificate(home: Home) -> ServerCertificate | None:
    """Read the server certificate; None where none was made.

    Raises:
        ConfigError: If it cannot be used.
    """
    return ServerCertificate.load(home.certs) if (home.certs / "server.pem").exists() else None


def shown(home: Home) -> bytes:
    """Return what a server shows, to tell one certificate from another; empty where there is none."""
    try:
        return (home.certs / "server.pem").read_bytes()
    except OSError:
        return b""


def days_left(certificate: ServerCertificate) -> int:
    return int((certificate.expires_at - time.time()) // _DAY_S)


def _sorted_out(extra: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return all names and all addresses: the machine's own, and the additional ones."""
    names, addresses = own_names()
    told = tuple(each for each in extra if is_address(each))
    return (*names, *(each for each in extra if each not in told)), (*addresses, *told)


def _kept_names(home: Home) -> tuple[str, ...]:
    file = home.certs / _NAMES_FILE
    try:
        return tuple(map(str, json.loads(file.read_bytes())))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError):
        raise ConfigError(
            f"{file} is damaged", hint="Remove it, and give the names again with --name."
        ) from None
