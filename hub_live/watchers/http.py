"""Watchers over HTTP."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from agent_core.times import parse_since
from chat.http.requests import Answer, answer, read
from contracts.wire import Part, Strict
from hub_live.watchers.backtest import Report
from hub_live.watchers.decisions.evaluation import DecisionEntry
from hub_live.watchers.definition import Approval, By, Edit, WatcherRequest
from hub_live.watchers.timers import Timers, TimerSummary
from hub_live.watchers.watched import CheckedPredicate, WatcherSummary, WatcherWithHistory
from hub_live.watchers.watchers import Watchers
from hub_registry.access.bearer import Bearer, Gate


class SnoozeBody(Strict):
    """How long a watcher does nothing, in seconds."""

    seconds: Annotated[float, Field(gt=0, le=366 * 86_400)]


class PredicateBody(Strict):
    """A predicate to check; None to have one proposed."""

    predicate: Annotated[str | None, Field(min_length=1, max_length=2_000)] = None


class TestBody(Strict):
    """The data of a back-test.

    Attributes:
        since: How far back, as ``7d`` or ``1h30m``; None with a capture.
        capture: Id of a capture.
        model: Whether the model decides each time that the watcher would have fired; calls are not made.
        predicate: Another one than its own.
        lines: Whether the numbers are wanted, too, for a plot.
    """

    since: Annotated[str | None, Field(max_length=32)] = None
    capture: Annotated[str | None, Field(max_length=500)] = None
    model: bool = False
    lines: bool = False
    predicate: Annotated[str | None, Field(min_length=1, max_length=2_000)] = None

    @model_validator(mode="after")
    def _one(self) -> "TestBody":
        if (self.since is None) == (self.capture is None):
            raise ValueError("give either since or capture")
        return self


class RemovedWatcher(Part):
    """The name of a watcher that is gone."""

    removed: str


def watcher_routes(
    watchers: Watchers, gate: Gate, *, may_confirm: Callable[[Bearer], bool]
) -> list[BaseRoute]:
    """Make the routes.

    Args:
        may_confirm: Whether a person confirms calls through a caller; see `Assistant.may_confirm`.
    """
    may_look, may_change = gate.require_user("chat"), gate.require_user("call")
    one = "/api/watchers/{name}"

    def by(bearer: Bearer) -> By:
        return By(bearer.user, bearer.claims.jti, may_confirm=may_confirm(bearer), of_all=bearer.is_admin)

    async def changing(request: Request) -> tuple[str, By]:
        return request.path_params.get("name", ""), by(await may_change(request))

    async def list_watchers(request: Request) -> Answer[list[WatcherSummary]]:
        return answer(watchers.of(by(await may_look(request))))

    async def create(request: Request) -> Answer[WatcherSummary]:
        _, person = await changing(request)
        return answer(await watchers.create(await read(request, WatcherRequest), person), status=201)

    async def show(request: Request) -> Answer[WatcherWithHistory]:
        return answer(await watchers.show(request.path_params["name"], by(await may_look(request))))

    async def remove(request: Request) -> Answer[RemovedWatcher]:
        name, person = await changing(request)
        await watchers.remove(name, person)
        return answer(RemovedWatcher(removed=name))

    async def change(request: Request) -> Answer[WatcherSummary]:
        name, person = await changing(request)
        return answer(await watchers.change(name, person, await read(request, Edit)))

    async def approve(request: Request) -> Answer[WatcherSummary]:
        name, person = await changing(request)
        approval = await read(request, Approval)
        return answer(await watchers.approve(name, person, approval.digest, approval))

    async def pause(request: Request) -> Answer[WatcherSummary]:
        return answer(await watchers.pause(*await changing(request)))

    async def resume(request: Request) -> Answer[WatcherSummary]:
        return answer(await watchers.resume(*await changing(request)))

    async def run(request: Request) -> Answer[DecisionEntry]:
        return answer(await watchers.run(*await changing(request)))

    async def test(request: Request) -> Answer[Report]:
        name, person = await changing(request)
        body = await read(request, TestBody)
        report = await watchers.test(
            name,
            person,
            since=parse_since(body.since) if body.since is not None else None,
            capture=body.capture or "",
            with_model=body.model,
            predicate=body.predicate,
        )
        return answer(report if body.lines else report.model_copy(update={"lines": None}))

    async def predicate(request: Request) -> Answer[CheckedPredicate]:
        name, by = await changing(request)
        body = await read(request, PredicateBody, optional=True)
        return answer(await watchers.check(name, by, body.predicate))

    async def snooze(request: Request) -> Answer[WatcherSummary]:
        name, person = await changing(request)
        body = await read(request, SnoozeBody)
        return answer(await watchers.snooze(name, person, seconds=body.seconds))

    return [
        Route("/api/watchers", list_watchers, methods=["GET"]),
        Route("/api/watchers", create, methods=["POST"]),
        Route(one, show, methods=["GET"]),
        Route(one, change, methods=["PATCH"]),
        Route(one, remove, methods=["DELETE"]),
        *(
            Route(f"{one}/{handler.__name__}", handler, methods=["POST"])
            for handler in (approve, pause, predicate, resume, run, snooze, test)
        ),
    ]


def timer_routes(timers: Timers, gate: Gate) -> list[BaseRoute]:
    """Make the routes of a person's timers; they are set by a call of ``WatcherSkill``."""
    may_look, may_change = gate.require_user("chat"), gate.require_user("call")

    async def list_timers(request: Request) -> Answer[list[TimerSummary]]:
        return answer(timers.of((await may_look(request)).user))

    async def remove(request: Request) -> Answer[TimerSummary]:
        bearer = await may_change(request)
        bearer.user.require_writer()
        return answer(await timers.remove(bearer.user, request.path_params["timer"]))

    return [
        Route("/api/timers", list_timers, methods=["GET"]),
        Route("/api/timers/{timer}", remove, methods=["DELETE"]),
    ]
