"""The HTTP server by itself."""

import time
from email.utils import parsedate_to_datetime

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from bus.ports import listen
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
        async with serve(app, listener), httpx.AsyncClient() as client:
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
        async with serve(app, listener, proxies=proxies), httpx.AsyncClient() as client:
            answer = await client.get(url, headers=[*said, ("x-forwarded-proto", "https")])
    assert answer.text == seen
