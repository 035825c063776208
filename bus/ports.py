"""Listening sockets, and an error that helps where the port is taken."""

import asyncio
import errno
import logging
import socket
import ssl
from contextlib import suppress

from bus.limits import ACCEPT_PAUSE_S
from contracts.errors import ConfigError, PortTaken

_log = logging.getLogger(__name__)


def listen(host: str, port: int, *, purpose: str, later: bool = False) -> socket.socket:
    """Bind a TCP socket that listens.

    Args:
        host: An address or name; an IPv6 address without brackets. ``::`` is every address of the machine,
            ``0.0.0.0`` every one of IPv4.
        port: 0 takes any free one.
        purpose: What it is for, as the error names it, for example ``MQTT``.
        later: Take the port without listening yet; the caller calls ``listen`` of the socket.

    Raises:
        PortTaken: If another program has it; names the process where the system tells.
        ConfigError: If it cannot be had for another reason.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _bound(socket.socket(family, kind, protocol), address, later=later)
    except socket.gaierror as error:
        raise ConfigError(
            f"cannot listen for {purpose} on {host}: {error.strerror}", hint="Use an address of this machine."
        ) from None
    except OSError as error:
        raise _explained(error, host, port, purpose) from None


async def accept(listener: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
    """Wait for the next client, however often one is gone again or the system has no room for it.

    Args:
        listener: A socket that listens.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            return await loop.sock_accept(listener)
        except ConnectionError:
            continue
        except OSError as error:
            _log.error("cannot take a connection: %s", error.strerror or error)
            await asyncio.sleep(ACCEPT_PAUSE_S)


async def try_port(host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
    """Connect and hang up; nothing is sent.

    Raises:
        OSError: If no program accepts connections there.
    """
    _, writer = await asyncio.open_connection(host, port, ssl=tls)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _bound(sock: socket.socket, address: tuple[object, ...], *, later: bool) -> socket.socket:
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # on Windows SO_REUSEADDR would let two programs share it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # Connections of an earlier run that are still closing must not keep the port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6 and address[0] == "::":
            # What the system makes of "all addresses" differs; here it is those of IPv4, too.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
        if not later:
            sock.listen(socket.SOMAXCONN)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _explained(error: OSError, host: str, port: int, purpose: str) -> ConfigError:
    where = f"{purpose} on {host} port {port}"
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port)
        return PortTaken(
            f"cannot listen for {where}: it is in use by {owner or 'another program'}",
            hint="Stop that program, or choose another port (0 takes any free one).",
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"cannot listen for {where}: not permitted", hint="Choose a port above 1023.")
    return ConfigError(
        f"cannot listen for {where}: {error.strerror or error}", hint="Use an address of this machine."
    )


def port_owner(port: int) -> str | None:
    """Name the process that listens on a TCP port, for example ``mosquitto (pid 812)``.

    Returns:
        None if there is none, or the system does not tell this user.
    """
    # 20 ms that a start does not need otherwise.
    import psutil

    try:
        for _ in range(3):
            for each in psutil.net_connections(kind="tcp"):
                if (
                    each.status != psutil.CONN_LISTEN
                    or not each.laddr
                    or each.laddr.port != port
                    or not each.pid
                ):
                    continue
                owner = psutil.Process(each.pid)
                # A child that is just being started has the descriptors of its parent for a moment.
                if any(own.laddr and own.laddr.port == port for own in owner.net_connections(kind="tcp")):
                    return f"{owner.name()} (pid {each.pid})"
    except (psutil.Error, OSError):
        return None
    return None
