"""Servers of protocols without a login: who may connect, and how many at once."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_network
from typing import Final

from bus.ports import listen
from chat.tasks import open_tasks
from contracts.addresses import is_loopback
from contracts.errors import ConfigError, InvalidMessage
from contracts.rates import Slots
from voice import limits

_log = logging.getLogger(__name__)

MOST_LINE: Final = 1024 * 1024
"""Bytes that are buffered of one connection before it is read."""


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection; its end closes the connection."""


class Allowed:
    """Who may connect.

    Args:
        addresses: IP addresses or networks besides this machine.

    Raises:
        ConfigError: If one is none.
    """

    def __init__(self, addresses: Collection[str] = ()) -> None:
        try:
            self._networks = tuple(ip_network(each) for each in addresses)
        except ValueError as error:
            raise ConfigError(
                f"in 'allow': {error}", hint="Write IP addresses or networks, as in 192.168.1.5."
            ) from None

    def check(self, host: str, *, protocol: str) -> None:
        """Check where a server is to listen.

        Raises:
            ConfigError: If others would reach it and no address is allowed.
        """
        if not is_loopback(host) and not self._networks:
            raise ConfigError(
                f"{protocol} has no login, and on {host} everybody in the network could use it",
                hint="Name the machines that may, in 'allow' of that table, or listen on 127.0.0.1.",
            )

    def __contains__(self, peer: str) -> bool:
        """Return whether a machine may connect."""
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return address.is_loopback or any(address in each for each in self._networks)


@asynccontextmanager
async def open_server(
    serve: Serve, *, host: str, port: int, allow: Collection[str] = (), protocol: str
) -> AsyncIterator[int]:
    """Serve connections for as long as the context is open; it yields the port.

    Args:
        port: 0 takes any free one.
        allow: See `Allowed`.
        protocol: As the log names it.

    Raises:
        ConfigError: If it cannot listen there, or others than those allowed could use it.
    """
    allowed = Allowed(allow)
    allowed.check(host, protocol=protocol)
    slots = Slots(each=limits.CONNECTIONS_PER_ADDRESS, total=limits.MOST_CONNECTIONS)
    async with open_tasks() as tasks:

        def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = peer_of(writer)
            if peer not in allowed:
                _log.warning("a %s connection from %s is refused: not in 'allow'", protocol, peer)
            elif slots.take(peer):
                tasks.create_task(served(reader, writer, peer), name=f"{protocol} {peer}")
                return
            writer.close()

        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str) -> None:
            try:
                await serve(reader, writer)
            except (InvalidMessage, OSError) as error:
                _log.info("the %s connection of %s ends: %s", protocol, peer, error or type(error).__name__)
            except Exception:  # noqa: BLE001  one connection must not end the others
                _log.exception("the %s connection of %s failed", protocol, peer)
            finally:
                writer.close()
                try:
                    async with asyncio.timeout(limits.CLOSE_S):
                        await writer.wait_closed()
                except OSError:
                    pass
                finally:
                    # It holds its place for as long as its socket is open.
                    writer.transport.abort()
                    slots.give_back(peer)

        with listen(host, port, purpose=protocol) as listener:
            server = await asyncio.start_server(met, sock=listener, limit=MOST_LINE)
            try:
                yield int(listener.getsockname()[1])
            finally:
                server.close()


def peer_of(writer: asyncio.StreamWriter) -> str:
    return str((writer.get_extra_info("peername") or ("",))[0])
