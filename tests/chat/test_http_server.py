"""The HTTP server by itself."""

import time
from email.utils import parsedate_to_datetime

import httpx
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
