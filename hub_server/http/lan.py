"""The listener for other machines, over TLS or, with an explicit setting, unencrypted."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from bus.ports import listen
from contracts.addresses import bracketed, is_loopback
from contracts.errors import ConfigError
from hub_agent.settings import LanSettings
from identity.certificates import ServerCertificate, authority_for_browsers, primary_address

_log = logging.getLogger(__name__)


class Lan:
    """A listener that is bound.

    Attributes:
        context: The server's side of TLS; None without TLS.
    """

    def __init__(self, settings: LanSettings, certificate: ServerCertificate | None) -> None:
        self.listener: socket.socket
        self.context = certificate.context() if certificate is not None else None
        self._certificate = certificate
        self._settings = settings

    @property
    def host(self) -> str:
        return self._settings.host

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The best address for other machines, without a path: one that the certificate is for."""
        known = self._certificate
        certified = (*known.addresses, *known.names) if known is not None else ()
        host = self.host
        if ip_address(host).is_unspecified:
            found = (*self._settings.told, primary_address(), *certified, *self._settings.names)
            usable = [each for each in found if each and (known is None or each in certified)]
            host = next((each for each in usable if not is_loopback(each)), host)
        return f"{'https' if known is not None else 'http'}://{bracketed(host)}:{self.port}"

    @property
    def fingerprint(self) -> str:
        return self._certificate.fingerprint if self._certificate is not None else ""

    def pin(self) -> str:
        return self._certificate.pin if self._certificate is not None else ""

    def authority(self) -> bytes:
        return authority_for_browsers(self._directory)

    def names(self) -> frozenset[str]:
        """Return the host names of this machine, in small letters."""
        certified = self._certificate.names if self._certificate is not None else ()
        return frozenset(name.lower() for name in (*self._settings.names, *certified))

    def reload(self) -> None:
        """Show the certificate that was renewed; one that is bad leaves the present one as it is."""
        assert self.context is not None
        try:
            renewed = ServerCertificate.load(self._directory)
            renewed.load_into(self.context)
        except ConfigError as error:
            _log.error("the renewed server certificate cannot be used: %s", error)
            return
        self._certificate = renewed
        _log.info("a renewed server certificate is shown from now on")

    @property
    def _directory(self) -> Path:
        return self._settings.certificates or Path()


@contextmanager
def open_lan(settings: LanSettings) -> Iterator[Lan]:
    """Bind the listener.

    Raises:
        PortTaken: If another program has the port.
        ConfigError: If it cannot be bound, or there is no certificate that can be used.
    """
    # Checked before the port is taken: without certificates there is nothing to listen for.
    certificate = ServerCertificate.load(settings.certificates) if settings.certificates is not None else None
    lan = Lan(settings, certificate)
    purpose = "HTTPS" if certificate is not None else "HTTP from other machines"
    with listen(settings.host, settings.port, purpose=purpose) as lan.listener:
        yield lan
