"""Who comes and says nothing, or says it by the letter, keeps nobody else from the hub."""

import asyncio
import gc
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bus.ports import listen
from chat.http.connections import MAX_HEAD, MAX_HEADERS, ConnectionBounds, DeadlineProtocol
from chat.http.server import serve
from identity.certificates import Authority, client_context

BEGINNINGS = {
    "nothing": b"",
    "half a header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    "half a body": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the whole request, then answer."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.request":
        await PlainTextResponse("here")(scope, receive, send)


@asynccontextmanager
async def serving(
    bounds: ConnectionBounds, directory: Path, *, secure: bool, served: ASGIApp = app
) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    authority = Authority.load_or_create(directory)
    certificate = authority.issue(["localhost"], ["127.0.0.1"], directory=directory)
    tls = certificate.context() if secure else None
    with listen("127.0.0.1", 0, purpose="HTTP") as listener:
        async with serve(served, listener, tls=tls, bounds=bounds):
            yield listener.getsockname()[1], client_context(authority.pem)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("begun", BEGINNINGS.values(), ids=BEGINNINGS)
async def test_those_who_never_end_what_they_say_make_room_for_who_comes(
    tmp_path: Path, begun: bytes, secure: bool
) -> None:
    bounds = ConnectionBounds(most=8, deadline_s=600)
    async with serving(bounds, tmp_path, secure=secure) as (port, tls), AsyncExitStack() as stack:
        # Without TLS where there should be: they stay in the handshake.
        silent = []
        for _ in range(bounds.most * 3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"" if secure else begun)
            silent.append(reader)
        scheme = "https" if secure else "http"
        async with httpx.AsyncClient(verify=tls, timeout=60) as client:
            answer = await client.get(f"{scheme}://127.0.0.1:{port}/")
        assert answer.text == "here"
        # The first ones had to go.
        assert await _rest(silent[0]) == b""


async def test_the_address_with_most_connections_makes_room_not_the_oldest_of_another(tmp_path: Path) -> None:
    async with (
        serving(ConnectionBounds(most=3, deadline_s=600), tmp_path, secure=False) as (port, _),
        AsyncExitStack() as stack,
    ):
        ends = []
        for address in ("127.0.0.2", *["127.0.0.1"] * 3):
            ends.append(await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))
            stack.callback(ends[-1][1].close)
        assert await _rest(ends[1][0]) == b""
        reader, writer = ends[0]
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await _rest(reader)).endswith(b"here")


@pytest.mark.parametrize("begun", BEGINNINGS.values(), ids=BEGINNINGS)
async def test_who_never_ends_what_it_says_is_not_waited_for(tmp_path: Path, begun: bytes) -> None:
    async with serving(ConnectionBounds(deadline_s=0.05), tmp_path, secure=False) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        assert await _rest(reader) == b""
        writer.close()


REFUSED = {
    # To the byte: what a server has not read when it closes may cost the client its answer.
    "a head without an end": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ".ljust(MAX_HEAD + 1, b"a"),
    "a path without an end": b"GET /".ljust(MAX_HEAD + 1, b"a"),
    "too many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * MAX_HEADERS + b"\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "a length and chunks": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n c\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "no path": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
async def test_what_is_no_request_is_refused_and_ends_the_connection(tmp_path: Path, sent: bytes) -> None:
    async with serving(ConnectionBounds(deadline_s=600), tmp_path, secure=False) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        answer = await _rest(reader)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "bad_request"
        writer.close()


async def test_of_requests_sent_at_once_the_first_is_answered(tmp_path: Path) -> None:
    async with serving(ConnectionBounds(deadline_s=600), tmp_path, secure=False) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        answers = await _rest(reader)
        assert answers.count(b"HTTP/1.1 200") == 1
        assert answers.endswith(b"here")
        writer.close()


async def test_a_trailer_is_no_header_and_is_not_endless(tmp_path: Path) -> None:
    seen = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.append(dict(scope["headers"]))
        await PlainTextResponse("here")(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
    bounds = ConnectionBounds(deadline_s=600)
    async with serving(bounds, tmp_path, secure=False, served=look) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"X-Forwarded-For: 127.0.0.1\r\n\r\n")
        assert b"HTTP/1.1 200" in await reader.readuntil(b"here")
        assert [set(headers) for headers in seen] == [{b"host", b"transfer-encoding"}]
        writer.write(head)
        # What comes in one piece with the end of the body, at most 256 kB, is not counted.
        writer.write(b"X-A: " + b"a" * 8 * MAX_HEAD)
        assert b"HTTP/1.1 200" not in await _rest(reader)
        writer.close()


async def test_as_many_as_there_is_room_for_stay(tmp_path: Path) -> None:
    async with serving(ConnectionBounds(most=3, deadline_s=600), tmp_path, secure=False) as (port, _):
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in clients:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP/1.1 200" in await reader.readuntil(b"here")
        clients.append(await asyncio.open_connection("127.0.0.1", port))
        assert await _rest(clients[0][0]) == b""
        for _, writer in clients:
            writer.close()


async def test_connections_that_ended_are_not_kept(tmp_path: Path) -> None:
    async with serving(ConnectionBounds(), tmp_path, secure=False) as (port, _):
        for _ in range(40):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"here" in await reader.read()
            writer.close()
        gc.collect()
        assert sum(issubclass(type(each), DeadlineProtocol) for each in gc.get_objects()) <= 20


async def test_a_connection_rests_between_requests_but_not_within_one(tmp_path: Path) -> None:
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(ConnectionBounds(deadline_s=0.05), tmp_path, secure=False) as (port, _):
        # The first is sent before the server looks at it, however short its patience is.
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(request)
        reader, writer = await asyncio.open_connection(sock=client)
        for number in range(2):
            if number:
                writer.write(request)
            assert b"HTTP/1.1 200" in await reader.readuntil(b"here")
            # Two that say nothing are disconnected meanwhile, each at its deadline.
            for _ in range(2):
                silent, other = await asyncio.open_connection("127.0.0.1", port)
                assert await _rest(silent) == b""
                other.close()
        writer.write(BEGINNINGS["half a header"])
        assert await _rest(reader) == b""
        writer.close()


async def test_a_handshake_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    async with serving(ConnectionBounds(deadline_s=0.05), tmp_path, secure=True) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await _rest(reader) == b""
        writer.close()


async def test_who_waits_for_an_answer_is_left_in_peace(tmp_path: Path) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await may_answer.wait()
        await PlainTextResponse("at last")(scope, receive, send)

    bounds = ConnectionBounds(most=2, deadline_s=0.02)
    with listen("127.0.0.1", 0, purpose="HTTP") as listener:
        async with serve(slow, listener, bounds=bounds):
            # All is sent before the server looks at it, however short its patience is.
            asking = socket.create_connection(listener.getsockname())
            asking.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer, asker = await asyncio.open_connection(sock=asking)
            await asked.wait()
            for _ in range(4):
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                assert await _rest(reader) == b""
                writer.close()
            may_answer.set()
            assert (await _rest(answer)).endswith(b"at last")
            asker.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize("secure", [False, True])
async def test_a_client_that_does_not_read_its_answer_is_disconnected(tmp_path: Path, secure: bool) -> None:
    left = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(pour(send))
                while (await receive())["type"] != "http.disconnect":
                    pass
                sending.cancel()
        finally:
            left.set()

    async def pour(send: Send) -> None:
        while True:
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})

    bounds = ConnectionBounds(deadline_s=0.3)
    async with serving(bounds, tmp_path, secure=secure, served=endless) as (port, tls):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls if secure else None)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(60):
            await left.wait()
        writer.close()
