"""The HTTP server by itself."""

import asyncio
import time
from email.utils import parsedate_to_datetime

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from bus.ports import listen
from chat.http.connections import DeadlineProtocol
from chat.http.guard import Guard
from chat.http.server import serve


async def test_the_date_of_an_answer_is_that_of_the_answer_also_after_the_process_stood_still() -> None:
    stood_still_until = 0.0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal stood_still_until
        # As in a suspend nothing runs meanwhile, no tick either.
        time.sleep(1.1)  # noqa: ASYNC251
        stood_still_until = time.time()
        await PlainTextResponse("here")(scope, receive, send)

    with listen("127.0.0.1", 0, purpose="HTTP") as listener:
        port = listener.getsockname()[1]
        guarded = Guard(app, max_body_bytes=0)
        async with serve(guarded, listener), httpx.AsyncClient(timeout=60) as client:
            answer = await client.get(f"http://127.0.0.1:{port}/")
    (date,) = answer.headers.get_list("date")
    assert parsedate_to_datetime(date).timestamp() >= int(stood_still_until)


@pytest.mark.parametrize(
    ("proxies", "seen"),
    [
        ([], "127.0.0.1 http"),
        (["192.0.2.0/24"], "127.0.0.1 http"),
        (["127.0.0.1"], "203.0.113.7 https"),
        (["127.0.0.0/8", "203.0.113.0/24"], "198.51.100.1 https"),
    ],
)
async def test_only_a_proxy_that_is_named_says_where_a_request_comes_from(
    proxies: list[str], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(f"{scope['client'][0]} {scope['scheme']}")(scope, receive, send)

    said = [("x-forwarded-for", "192.0.2.99"), ("x-forwarded-for", "198.51.100.1, 203.0.113.7")]
    with listen("127.0.0.1", 0, purpose="HTTP") as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with serve(app, listener, proxies=proxies), httpx.AsyncClient(timeout=60) as client:
            answer = await client.get(url, headers=[*said, ("x-forwarded-proto", "https")])
    assert answer.text == seen


async def test_a_request_may_follow_an_answer_of_known_length_before_the_server_has_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, requests = asyncio.Event(), 0
    read = DeadlineProtocol.data_received

    def data_received(self: DeadlineProtocol, data: bytes) -> None:
        nonlocal requests
        read(self, data)
        requests += data.startswith(b"GET")
        # The second one is read, too, before the answer to the first may end.
        if requests == 2:
            may_end.set()

    monkeypatch.setattr(DeadlineProtocol, "data_received", data_received)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"here", "more_body": True})
        await may_end.wait()
        await send({"type": "http.response.body"})

    with listen("127.0.0.1", 0, purpose="HTTP") as listener:
        async with serve(app, listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            for _ in range(2):
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK")
                assert await reader.readexactly(4) == b"here"
            writer.close()
