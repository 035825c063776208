"""Joining by code: a device asks and polls, an admin sees who waits and decides."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from contracts.joining import JoinAsked, JoinPoll, JoinRequest, JoinState
from contracts.wire import Timestamp
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.http.parts import Body, source_of
from hub_registry.registry import Registry


class WaitingAnswer(Body):
    """A device that waits, as an admin sees it."""

    code: str
    name: str
    fingerprint: str
    source: str
    expires_at: Timestamp


class ApproveBody(Body):
    """How a device shall be called, if not as it would like."""

    name: str | None = None


class ApprovedAnswer(Body):
    """A device that was let in."""

    id: str
    key: str
    name: str
    fingerprint: str


def add(router: APIRouter, registry: Registry, gate: Gate) -> None:
    """Add the routes."""
    admin = Depends(gate.require_admin)
    joining = registry.joining

    @router.post("/api/devices/join")
    async def ask(body: JoinRequest, request: Request) -> JoinAsked:
        return await joining.ask(body, source=source_of(request))

    @router.post("/api/devices/join/poll")
    async def poll(body: JoinPoll, request: Request) -> JoinState:
        answer = joining.poll(body.secret, source=source_of(request))
        enrolment = registry.enrol_answer(answer.joined) if answer.joined else None
        return JoinState(state=answer.state, enrolment=enrolment)

    @router.get("/api/devices/join", dependencies=[admin])
    async def list_waiting() -> list[WaitingAnswer]:
        return [WaitingAnswer(**vars(each)) for each in joining.waiting()]

    @router.post("/api/devices/join/{code}/approve")
    async def approve(
        code: str, bearer: Annotated[Bearer, admin], body: ApproveBody | None = None
    ) -> ApprovedAnswer:
        name = body.name if body else None
        approved = await registry.approve_join(code, owner=bearer.user.id, name=name)
        device = approved.device
        return ApprovedAnswer(
            id=device.id, key=device.key, name=device.display_name, fingerprint=approved.fingerprint
        )

    @router.delete("/api/devices/join/{code}", status_code=204)
    async def refuse(code: str, bearer: Annotated[Bearer, admin]) -> Response:
        joining.refuse(code, by=bearer.user.id)
        return Response(status_code=204)
