"""One connection to a broker that falls silent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Literal

import pytest

from broker.link.connection import Connection, Login, Verdict
from broker.link.drivers import DriverName, make_driver
from broker.link.message import Message
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
    login = Login(
        host="127.0.0.1",
        port=silent,
        tls=None,
        client_id="one",
        username=None,
        password=None,
        keepalive=60,
        will=None,
        timeout_s=10,
        acknowledge_s=0.05,
    )
    connection = Connection(login, make_driver(driver), protocol=4, limit=8, on_message=lambda _: None)
    try:
        assert (await connection.open()).verdict is Verdict.ACCEPTED
        with pytest.raises(Disconnected):
            await _ask(connection, asked)
        assert "did not" in await connection.drive()
    finally:
        await connection.close(politely=False)


def _ask(connection: Connection, what: Literal["subscribe", "publish"]) -> Awaitable[None]:
    if what == "subscribe":
        return connection.subscribe([("a", 1)])
    return connection.confirm(connection.publish(Message("a", b"x", 1, False)))
