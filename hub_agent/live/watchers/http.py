"""Watchers over HTTP."""

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat.http.requests import answer, read
from hub_agent.live.times import parse_since
from hub_agent.live.watchers.definition import Change, WatcherRequest
from hub_agent.live.watchers.watchers import By, Watchers
from hub_registry.access.bearer import Bearer, Gate


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SnoozeBody(_Body):
    """How long a watcher does nothing, in seconds."""

    seconds: Annotated[float, Field(gt=0, le=366 * 86_400)]


class TestBody(_Body):
    """What a watcher is tried on.

    Attributes:
        since: How far back, as ``7d`` or ``1h30m``; None with a capture.
        capture: Id of a capture.
        model: Whether the model decides each time that the watcher would have fired; calls are not made.
    """

    since: Annotated[str | None, Field(max_length=32)] = None
    capture: Annotated[str | None, Field(max_length=500)] = None
    model: bool = False

    @model_validator(mode="after")
    def _one(self) -> "TestBody":
        if (self.since is None) == (self.capture is None):
            raise ValueError("give either since or capture")
        return self


def watcher_routes(
    watchers: Watchers, gate: Gate, *, may_confirm: Callable[[Bearer], bool]
) -> list[BaseRoute]:
    """Make the routes.

    Args:
        may_confirm: Whether a person confirms calls through a caller; see `Assistant.may_confirm`.
    """
    may_look, may_change = gate.require_user("chat"), gate.require_user("call")

    async def changing(request: Request) -> tuple[str, By]:
        bearer = await may_change(request)
        by = By(bearer.user, bearer.claims.jti, may_confirm=may_confirm(bearer))
        return request.path_params.get("name", ""), by

    async def list_watchers(request: Request) -> Response:
        return answer(watchers.of((await may_look(request)).user))

    async def create(request: Request) -> Response:
        _, by = await changing(request)
        return answer(await watchers.create(await read(request, WatcherRequest), by), status=201)

    async def show(request: Request) -> Response:
        user = (await may_look(request)).user
        return answer(await watchers.show(request.path_params["name"], user))

    async def remove(request: Request) -> Response:
        name, by = await changing(request)
        await watchers.remove(name, by)
        return answer({"removed": name})

    async def approve(request: Request) -> Response:
        name, by = await changing(request)
        change = await read(request, Change, optional=True)
        return answer(await watchers.approve(name, by, change))

    async def pause(request: Request) -> Response:
        return answer(await watchers.pause(*await changing(request)))

    async def resume(request: Request) -> Response:
        return answer(await watchers.resume(*await changing(request)))

    async def run(request: Request) -> Response:
        return answer(await watchers.run(*await changing(request)))

    async def test(request: Request) -> Response:
        user = (await may_change(request)).user
        body = await read(request, TestBody)
        since = parse_since(body.since) if body.since is not None else None
        report = await watchers.test(
            request.path_params["name"],
            user,
            since=since,
            capture=body.capture or "",
            with_model=body.model,
        )
        return answer(report)

    async def snooze(request: Request) -> Response:
        name, by = await changing(request)
        body = await read(request, SnoozeBody)
        return answer(await watchers.snooze(name, by, seconds=body.seconds))

    one = "/api/watchers/{name}"
    return [
        Route("/api/watchers", list_watchers, methods=["GET"]),
        Route("/api/watchers", create, methods=["POST"]),
        Route(one, show, methods=["GET"]),
        Route(one, remove, methods=["DELETE"]),
        *(
            Route(f"{one}/{handler.__name__}", handler, methods=["POST"])
            for handler in (approve, pause, resume, run, snooze, test)
        ),
    ]
