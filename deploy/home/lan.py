"""Access for other machines: over TLS with certificates of this home, or without encryption where allowed."""

import asyncio
import ipaddress
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import psutil

from chat.tasks import open_tasks
from contracts.errors import ConfigError, StrawberryError
from deploy.home.directory import Home
from deploy.home.running import Reporter
from deploy.settings.options import LanOptions
from identity.certificates import Authority, ServerCertificate, own_names, primary_address
from identity.files import write_private

_log = logging.getLogger(__name__)

_BRIDGES: Final = ("docker", "br-", "podman", "cni", "virbr", "lxcbr", "lxdbr", "vethernet")

_NAMES_FILE: Final = "names.json"
_DAY_S: Final = 24 * 3600
_LOOK_S: Final = 60.0
"""How often is looked for a certificate that nears its end, lacks a new name of this machine, or was renewed
by ``strawberry certs``."""


@dataclass
class Lan:
    """The way in for other machines, open.

    Attributes:
        names: Host names of this machine, without those that mean every machine.
        addresses: Its IPv4 addresses in the network, the best first.
        certificate: None where there is no TLS.
        ca: PEM of the authority of this home, None where there is no TLS.
        context: What listeners use; a renewed certificate counts from the next connection on.
        shown: The certificate as those who connect see it.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    certificate: ServerCertificate | None = None
    ca: str | None = None
    context: ssl.SSLContext | None = None
    shown: bytes = b""
    _reloads: list[Callable[[], None]] = field(default_factory=list)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Under what other machines reach this one, the best first."""
        # An address needs no name service; a name still works when the address has changed.
        if self.context is not None:
            return self.addresses + self.names
        # Nothing proves who answers: a machine of the same name would find itself by it.
        return self.addresses or self.names

    def urls(self, scheme: str, port: int) -> tuple[str, ...]:
        """Return the addresses of a port under each name and address of this machine."""
        return tuple(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}" for host in self.hosts)

    def on_renewed(self, reload: Callable[[], None]) -> None:
        """Call a function when a new certificate has replaced the old one."""
        self._reloads.append(reload)

    async def keep(self, home: Home) -> None:
        """Renew the server certificate in time, for as long as this runs."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.renew(home)
            except (StrawberryError, OSError) as error:
                _log.error("the server certificate cannot be renewed: %s", error)

    async def renew(self, home: Home) -> bool:
        """Renew the server certificate where it is time, and take up what others renewed; whether it was.

        Raises:
            ConfigError: If the certificates cannot be used; the present one stays.
        """
        if self.context is None:
            return False
        certificate = (await asyncio.to_thread(provide_certificate, home)).certificate
        found = shown(home)
        if found == self.shown:
            return False
        certificate.load_into(self.context)
        self.certificate, self.shown = certificate, found
        for reload in self._reloads:
            reload()
        _log.info("the server certificate was renewed; it is good for %d days", days_left(certificate))
        return True


async def enter_lan(
    stack: AsyncExitStack, home: Home, options: LanOptions, *, report: Reporter
) -> Lan | None:
    """Prepare the way in for other machines; None where there is to be none.

    Raises:
        ConfigError: If the certificates cannot be used.
    """
    match options.exposure:
        case "loopback":
            return None
        case "insecure":
            names, addresses = _reachable(*own_names())
            return Lan(names=names, addresses=addresses)
        case "tls":
            return await _enter_secure(stack, home, report=report)


async def _enter_secure(stack: AsyncExitStack, home: Home, *, report: Reporter) -> Lan:
    provided = await asyncio.to_thread(provide_certificate, home)
    for line in provided.describe():
        report.say(f"  certs    {line}")
    certificate = provided.certificate
    names, addresses = _reachable(*provided.hosts)
    lan = Lan(
        names=names,
        addresses=addresses,
        certificate=certificate,
        ca=provided.authority.pem,
        context=certificate.context(),
        shown=shown(home),
    )
    tasks = await stack.enter_async_context(open_tasks())
    tasks.create_task(lan.keep(home), name="renew certificates")
    return lan


def _reachable(names: tuple[str, ...], addresses: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Leave out what means every machine for itself, and IPv6, which is not listened on."""
    inner = _inner_addresses()
    found = [
        each
        for each in map(ipaddress.ip_address, addresses)
        if each.version == 4 and not each.is_loopback and str(each) not in inner
    ]
    first = primary_address()
    found.sort(key=lambda each: str(each) != first)
    return tuple(each for each in names if each != "localhost"), tuple(map(str, found))


def _inner_addresses() -> set[str]:
    """List the addresses of bridges for containers and virtual machines; others have the same ones."""
    return {
        each.address
        for name, each_of in psutil.net_if_addrs().items()
        if name.startswith(_BRIDGES)
        for each in each_of
        if each.family == socket.AF_INET
    }


@dataclass(frozen=True)
class Provided:
    """The certificates that lie in ``certs``.

    Attributes:
        hosts: Names, and addresses, under which this machine is reached today.
        made_authority: Whether the authority is new.
        made_certificate: Whether the server certificate is new.
    """

    authority: Authority
    certificate: ServerCertificate
    hosts: tuple[tuple[str, ...], tuple[str, ...]]
    made_authority: bool
    made_certificate: bool

    @property
    def days_left(self) -> int:
        """Whole days until the server certificate ends."""
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
        authority, certificate, (names, addresses), made_authority, made_certificate=shown(home) != before
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
    """Return the whole days until a certificate ends; negative once it has."""
    return int((certificate.expires_at - time.time()) // _DAY_S)


def _sorted_out(extra: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return all names and all addresses: the machine's own, and those that it was told."""
    names, addresses = own_names()
    told = tuple(each for each in extra if _is_address(each))
    return (*names, *(each for each in extra if each not in told)), (*addresses, *told)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


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
