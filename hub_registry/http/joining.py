"""Joining by code: a device asks and polls, an admin sees who waits and decides."""

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, NoBody, answer, read
from contracts.devices.joining import JoinAsked, JoinPoll, JoinRequest, JoinState
from contracts.wire import Strict
from hub_registry.access.bearer import Gate, source_of
from hub_registry.access.joining import Waiting
from hub_registry.http.parts import read_open
from hub_registry.registry import Registry
from identity.keys import PublicKey


class ApproveBody(Strict):
    """A yes to a device that asks to join.

    Attributes:
        fingerprint: As it was shown, for comparison with the screen of the device.
        name: What it shall be called, if not as it would like.
    """

    fingerprint: str
    name: str | None = None


class ApprovedAnswer(Strict):
    """A device that was enrolled."""

    id: str
    key: str
    name: str
    fingerprint: str


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    joining = registry.joining

    async def ask(request: Request) -> Answer[JoinAsked]:
        body = await read_open(request, JoinRequest, gate)
        gate.require_key(request, PublicKey.from_jwk(body.public_key))
        return answer(await joining.ask(body, source=source_of(request)))

    async def poll(request: Request) -> Answer[JoinState]:
        body = await read_open(request, JoinPoll, gate)
        found = joining.poll(body.secret, source=source_of(request))
        enrolment = registry.enrol_answer(found.joined) if found.joined else None
        return answer(JoinState(state=found.state, enrolment=enrolment))

    async def list_waiting(request: Request) -> Answer[list[Waiting]]:
        await gate.require_admin(request)
        return answer(joining.waiting())

    async def approve(request: Request) -> Answer[ApprovedAnswer]:
        bearer = await gate.require_admin(request)
        body = await read(request, ApproveBody)
        code = request.path_params["code"]
        approved = await joining.approve(
            code, owner=bearer.user.id, name=body.name, fingerprint=body.fingerprint
        )
        device = approved.device
        return answer(
            ApprovedAnswer(
                id=device.id, key=device.key, name=device.display_name, fingerprint=approved.fingerprint
            )
        )

    async def refuse(request: Request) -> NoBody:
        bearer = await gate.require_admin(request)
        joining.refuse(request.path_params["code"], by=bearer.user.id)
        return NoBody()

    join = "/api/devices/join"
    return [
        Route(join, ask, methods=["POST"]),
        Route(join, list_waiting),
        Route(f"{join}/poll", poll, methods=["POST"]),
        Route(f"{join}/{{code}}/approve", approve, methods=["POST"]),
        Route(f"{join}/{{code}}", refuse, methods=["DELETE"]),
    ]
