"""The listener for other machines, over TLS or, with an explicit setting, unencrypted."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from bus.ports import listen
from contracts.addresses import bracketed, is_loopback
from contracts.errors import ConfigError
from hub_agent.settings import LanSettings
from identity.certificates import ServerCertificate, primary_address

_log = logging.getLogger(__name__)


class Lan:
    """A listener that is bound.

    Attributes:
        context: The server's side of TLS; None without TLS.
    """

    def __init__(self, settings: LanSettings, listener: socket.socket, shown: "_Shown | None") -> None:
        self.listener = listener
        self.context = shown.context if shown else None
        self._settings = settings
        self._shown = shown

    @property
    def host(self) -> str:
        """Its configured address."""
        return self._settings.host

    @property
    def port(self) -> int:
        """The port that it really has."""
        return int(self.listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The best address for other machines, without a path: one that the certificate is for."""
        certified = (
            (*self._shown.certificate.addresses, *self._shown.certificate.names) if self._shown else ()
        )
        host = self.host
        if ip_address(host).is_unspecified:
            found = (primary_address(), *certified, *self._settings.names)
            usable = [each for each in found if each and (not self._shown or each in certified)]
            host = next((each for each in usable if not is_loopback(each)), host)
        return f"{'https' if self._shown else 'http'}://{bracketed(host)}:{self.port}"

    def names(self) -> frozenset[str]:
        """Return the host names of this machine, in small letters."""
        certified = self._shown.certificate.names if self._shown else ()
        return frozenset(name.lower() for name in (*self._settings.names, *certified))

    async def watch(self) -> None:
        """Reload renewed certificates until cancelled."""
        while self._shown is not None:
            await asyncio.sleep(self._settings.look_s)
            self._shown.look()


@contextmanager
def open_lan(settings: LanSettings) -> Iterator[Lan]:
    """Bind the listener.

    Raises:
        PortTaken: If another program has the port.
        ConfigError: If it cannot be bound, or there is no certificate that can be used.
    """
    # Checked before the port is taken: without certificates there is nothing to listen for.
    shown = _Shown(settings.certificates) if settings.certificates is not None else None
    purpose = "HTTPS" if shown else "HTTP from other machines"
    with listen(settings.host, settings.port, purpose=purpose) as listener:
        yield Lan(settings, listener, shown)


class _Shown:
    """The server certificate as the listener shows it; files that change are read again."""

    def __init__(self, directory: Path) -> None:
        self.certificate = ServerCertificate.load(directory)
        self.context: ssl.SSLContext = self.certificate.context()
        self._directory = directory
        self._state = self._stat()

    def look(self) -> None:
        """Read the files again if they have changed; what is bad leaves the present certificate as it is."""
        state = self._stat()
        if state == self._state:
            return
        self._state = state
        try:
            renewed = ServerCertificate.load(self._directory)
            renewed.load_into(self.context)
        except ConfigError as error:
            _log.error("the renewed server certificate cannot be used: %s", error)
            return
        self.certificate = renewed
        _log.info("a renewed server certificate is shown from now on")

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = (self._directory / "server.pem").stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino
