"""Access for other machines: over TLS with certificates of this home, or without encryption where allowed."""

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import psutil

from chat.tasks import open_tasks
from contracts.errors import StrawberryError
from deploy import limits
from deploy.certificate import days_left, provide_certificate, shown
from deploy.directory import Home
from deploy.settings.options import LanOptions
from identity.certificates import ServerCertificate, own_names, primary_address

_log = logging.getLogger(__name__)

_BRIDGES: Final = ("docker", "br-", "podman", "cni", "virbr", "lxcbr", "lxdbr", "vethernet")


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
        told: Names and addresses that a person gave, which come first: a container knows only its own.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    certificate: ServerCertificate | None = None
    ca: str | None = None
    context: ssl.SSLContext | None = None
    shown: bytes = b""
    told: tuple[str, ...] = ()
    _reloads: list[Callable[[], None]] = field(default_factory=list)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Under what other machines reach this one, the best first."""
        # An address needs no name service; a name still works when the address has changed.
        if self.context is not None:
            return tuple(dict.fromkeys((*self.told, *self.addresses, *self.names)))
        # Nothing proves who answers: a machine of the same name would find itself by it.
        return self.addresses or self.names

    def urls(self, scheme: str, port: int) -> tuple[str, ...]:
        return tuple(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}" for host in self.hosts)

    def on_renewed(self, reload: Callable[[], None]) -> None:
        self._reloads.append(reload)

    async def keep(self, home: Home) -> None:
        """Renew the server certificate in time, for as long as this runs."""
        while True:
            await asyncio.sleep(limits.CERTIFICATE_LOOK_S)
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


async def open_lan(
    stack: AsyncExitStack,
    home: Home,
    options: LanOptions,
    *,
    say: Callable[[str], None],
    names: Sequence[str] = (),
) -> Lan:
    """Prepare the way in for other machines.

    Args:
        names: Under which they know this machine, besides its own.

    Raises:
        ConfigError: If the certificates cannot be used.
    """
    if options.exposure == "insecure":
        hosts, addresses = _reachable(*own_names())
        return Lan(names=hosts, addresses=addresses)
    provided = await asyncio.to_thread(provide_certificate, home, more=names)
    for line in provided.describe():
        say(f"  certs    {line}")
    certificate = provided.certificate
    hosts, addresses = _reachable(*provided.hosts)
    lan = Lan(
        names=hosts,
        addresses=addresses,
        certificate=certificate,
        ca=provided.authority.pem,
        context=certificate.context(),
        shown=shown(home),
        told=provided.told,
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
