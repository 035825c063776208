"""The client with which pages use the hub's routes, in its process."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from chat.http.errors import HANDLERS, error_response
from chat.http.streams import Connections, EventStream, event
from chat.tasks import open_tasks
from contracts.chat import ConfirmationWanted, TurnFinal
from contracts.errors import Conflict, NotFound
from contracts.wire import Part
from hub_registry.access.bearer import SESSION_COOKIE
from hub_web.api import Api, ApiError, ConfirmationNeeded, part
from hub_web.feeds import Answered, Feed


class _Echo(Part):
    name: str
    query: dict[str, str]
    body: str
    token: str
    client: str


def _api(*routes: Route, base_path: str = "") -> Api:
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    nothing: Any = None
    return Api(app, nothing, nothing, token="secret", client=("192.0.2.7", 5), base_path=base_path)


async def test_a_request_arrives_as_over_a_wire() -> None:
    async def echo(request: Request) -> Response:
        assert request.client is not None
        return JSONResponse(
            {
                "name": request.path_params["name"],
                "query": dict(request.query_params),
                "body": (await request.body()).decode(),
                "token": request.cookies[SESSION_COOKIE],
                "client": request.client.host,
            }
        )

    api = _api(Route("/things/{name}", echo, methods=["GET", "POST"]), base_path="/base")
    assert (await api.get("/things/a", _Echo, kind="b", on=True, off=None)).query == {
        "kind": "b",
        "on": "true",
    }
    assert await api.post(f"/things/{part('ä b?c')}?on=true", {"a": 1}, _Echo) == _Echo(
        name="ä b?c", query={"on": "true"}, body='{"a": 1}', token="secret", client="192.0.2.7"
    )


async def test_errors_of_routes_are_raised_with_their_hint() -> None:
    async def fail(request: Request) -> Response:
        match request.path_params["how"]:
            case "missing":
                raise NotFound(
                    "there is no lamp", hint="Is it plugged in? 'strawberry devices list' shows them."
                )
            case "asks":
                more = {"confirmation": "c1", "arguments": {"door": "front"}}
                return error_response("/", 409, "needs_confirmation", "asks first", more=more)
            case "busy":
                raise Conflict("taken")
        raise RuntimeError("a bug")

    api = _api(Route("/{how}", fail))
    with pytest.raises(NotFound) as missing:
        await api.get("/missing", _Echo)
    assert (missing.value.message, missing.value.hint) == ("there is no lamp", "Is it plugged in?")
    with pytest.raises(ConfirmationNeeded) as asks:
        await api.get("/asks", _Echo)
    assert asks.value.more == {"confirmation": "c1", "arguments": {"door": "front"}}
    with pytest.raises(Conflict):
        await api.get("/busy", _Echo)
    with pytest.raises(ApiError):
        await api.get("/bug", _Echo)


async def test_a_stream_ends_when_its_page_leaves_it() -> None:
    left = asyncio.Event()

    async def numbers() -> AsyncGenerator[bytes, None]:
        try:
            for number in itertools.count():
                yield event({"n": number})
                # What the page has not read piles up, and its leaving is seen only between two events.
                await asyncio.sleep(0.01)
        finally:
            left.set()

    async with open_tasks() as tasks:
        connections = Connections(tasks)

        async def stream(_: Request) -> Response:
            return EventStream(numbers(), connections=connections, headers={})

        async with _api(Route("/", stream)).stream("GET", "/", dict[str, int]) as events:
            seen = []
            async for each in events:
                seen.append(each["n"])
                if len(seen) == 3:
                    break
        async with asyncio.timeout(60):
            await left.wait()
    assert seen == [0, 1, 2]


async def test_a_question_that_is_closed_is_asked_by_no_other_page() -> None:
    goes_on, final = asyncio.Event(), TurnFinal(answer="It is open.", mode="online")

    async def said() -> AsyncGenerator[bytes, None]:
        for question, expires_s in (("late", 0), ("door", 600)):
            wanted = ConfirmationWanted(
                id=question,
                turn="t",
                device="pc",
                device_name="PC",
                method="DoorSkill.unlock",
                arguments={},
                expires_s=expires_s,
            )
            yield event({"x_strawberry": wanted})
        await goes_on.wait()
        yield event({"x_strawberry": final})

    async def confirm(request: Request) -> Response:
        assert request.path_params["question"] == "door"
        return JSONResponse(None)

    async with open_tasks() as tasks:
        connections = Connections(tasks)

        async def stream(_: Request) -> Response:
            return EventStream(said(), connections=connections, headers={})

        api = _api(
            Route("/v1/chat/completions", stream, methods=["POST"]),
            Route("/api/turns/{turn}/confirmations/{question}", confirm, methods=["POST"]),
        )
        feed = Feed("anna", "talk", "Unlock the door")
        async with asyncio.timeout(60):
            tasks.create_task(feed.run(api, {}, {}))
            other = feed.follow()
            asked = await anext(other)
            assert isinstance(asked, ConfirmationWanted)
            assert (asked.id, asked.expires_s < 600) == ("door", True)
            await feed.answer(api, "door", approve=True)
            assert await anext(other) == Answered(id="door")
            goes_on.set()
            assert [each async for each in feed.follow()] == [Answered(id="door"), final]
            # An answer whose turn has ended by then takes its end from nobody.
            await feed.answer(api, "door", approve=True)
            assert feed.events[-1] == final


async def test_a_page_that_closes_while_it_leaves_a_stream_does_not_go_on() -> None:
    leaving = asyncio.Event()

    class Slow(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await receive()
            await receive()
            leaving.set()
            await asyncio.Event().wait()

    async def leave() -> None:
        async with _api(Route("/", lambda _: Slow())).stream("GET", "/", dict[str, int]):
            raise NotFound("gone meanwhile")

    async with asyncio.timeout(60), open_tasks() as tasks:
        page = tasks.create_task(leave())
        await leaving.wait()
        page.cancel()
        await asyncio.wait([page])
    assert page.cancelled()
