"""One connection to a broker that falls silent, or that is given up before it is there."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable
from typing import Literal

import pytest

from bus.link.connection import Connection, ConnectRequest, Verdict
from bus.link.drivers import DriverName, make_driver
from bus.link.message import Message
from contracts.errors import Disconnected

CONNACK = b"\x20\x02\x00\x00"


@pytest.fixture
async def silent() -> AsyncIterator[int]:
    """The port of a broker that lets everybody in, and then says nothing more, as one that is frozen."""
    writers: list[asyncio.StreamWriter] = []

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read(1)
        writer.write(CONNACK)
        await reader.read(-1)

    async with await asyncio.start_server(welcome, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for writer in writers:
            writer.close()


@pytest.mark.parametrize("driver", ["loop", "thread"])
@pytest.mark.parametrize("asked", ["subscribe", "publish"])
async def test_a_connection_on_which_the_broker_no_longer_answers_is_ended(
    silent: int, driver: DriverName, asked: Literal["subscribe", "publish"]
) -> None:
    connection = _connection(silent, driver, acknowledge_s=0.05)
    try:
        assert (await connection.open()).verdict is Verdict.ACCEPTED
        with pytest.raises(Disconnected):
            await _ask(connection, asked)
        assert "did not" in await connection.drive()
    finally:
        await connection.close(politely=False)


@pytest.mark.parametrize("driver", ["loop", "thread"])
async def test_a_connection_that_is_given_up_while_a_thread_opens_it_leaves_no_socket(
    silent: int, driver: DriverName, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []
    there, go = threading.Event(), threading.Event()
    create = socket.create_connection

    def held(*arguments: object, **options: object) -> socket.socket:
        opened.append(create(*arguments, **options))  # type: ignore[arg-type]
        there.set()
        go.wait()
        return opened[-1]

    monkeypatch.setattr(socket, "create_connection", held)
    connection = _connection(silent, driver)
    async with asyncio.TaskGroup() as tasks:
        opening = tasks.create_task(connection.open())
        await asyncio.to_thread(there.wait)
        opening.cancel()
    await connection.close(politely=True)
    go.set()
    # The thread that opened it ends by itself.
    await asyncio.get_running_loop().shutdown_default_executor()
    assert [each.fileno() for each in opened] == [-1]


def _connection(port: int, driver: DriverName, *, acknowledge_s: float = 10.0) -> Connection:
    login = ConnectRequest(
        host="127.0.0.1",
        port=port,
        tls=None,
        client_id="one",
        username=None,
        password=None,
        keepalive=60,
        will=None,
        timeout_s=30,
        acknowledge_s=acknowledge_s,
    )
    return Connection(login, make_driver(driver), protocol=4, limit=8, on_message=lambda _: None)


def _ask(connection: Connection, what: Literal["subscribe", "publish"]) -> Awaitable[None]:
    if what == "subscribe":
        return connection.subscribe([("a", 1)])
    return connection.confirm(connection.publish(Message("a", b"x", 1, False)))
