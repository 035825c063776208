"""What anybody may ask, what a device says to join, and where the bus is."""

import re
from base64 import urlsafe_b64encode
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, answer, reads
from contracts.devices.joining import (
    DeviceBus,
    EnrolAnswer,
    HubCard,
    JoinAsked,
    JoinPoll,
    JoinRequest,
    JoinState,
    ca_document,
)
from contracts.errors import InvalidMessage
from contracts.wire import Json, Part, Strict
from hub_registry.access.bearer import Gate, source_of
from hub_registry.http.parts import read_open
from hub_registry.registry import Registry
from identity.keys import KeyPair, PublicKey
from identity.logins import challenges


class EnrolBody(Strict):
    """A device that wants to join with an enrolment token."""

    token: Annotated[str, Field(max_length=200)]
    public_key: dict[str, Json]


class KeySet(Part):
    """The hub's key as a JWK Set (RFC 7517)."""

    keys: list[dict[str, str]]


def routes(registry: Registry, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    card = _card(registry)
    may_register = gate.require("register")

    @reads(EnrolBody)
    async def enrol(request: Request) -> Answer[EnrolAnswer]:
        body = await read_open(request, EnrolBody, gate)
        gate.require_key(request, PublicKey.from_jwk(body.public_key))
        joined = await registry.enrolment.enrol(body.token, body.public_key, source=source_of(request))
        return answer(registry.enrol_answer(joined))

    @reads(JoinRequest)
    async def ask(request: Request) -> Answer[JoinAsked]:
        body = await read_open(request, JoinRequest, gate)
        gate.require_key(request, PublicKey.from_jwk(body.public_key))
        return answer(await registry.joining.ask(body, source=source_of(request)))

    @reads(JoinPoll)
    async def poll(request: Request) -> Answer[JoinState]:
        body = await read_open(request, JoinPoll, gate)
        found = registry.joining.poll(body.secret, source=source_of(request))
        enrolment = registry.enrol_answer(found.joined) if found.joined else None
        return answer(JoinState(state=found.state, enrolment=enrolment))

    async def bus(request: Request) -> Answer[DeviceBus]:
        bearer = await may_register(request)
        entry = registry.directory.get(bearer.device) if bearer.device else None
        profile = entry.device.profile if entry else None
        return answer(DeviceBus(**registry.settings.bus.model_dump(), profile=profile))

    async def show_keys(_: Request) -> Answer[KeySet]:
        return answer(KeySet(keys=[{**registry.key.public.jwk(), "use": "sig", "alg": "EdDSA"}]))

    async def show_hub(request: Request) -> Answer[HubCard]:
        challenge = request.query_params.get("challenge")
        if challenge is None:
            return answer(card)
        if not re.fullmatch(challenges.FORM, challenge):
            raise InvalidMessage("a challenge is 22 to 86 letters of base64url")
        document = challenges.hub_document(
            hub_id=card.hub_id, challenge=challenge, host=request.headers["host"]
        )
        return answer(card.model_copy(update={"proof": _signed(registry.key, document)}))

    return [
        Route("/api/devices/enrol", enrol, methods=["POST"]),
        Route("/api/devices/join", ask, methods=["POST"]),
        Route("/api/devices/join/poll", poll, methods=["POST"]),
        Route("/api/bus", bus),
        Route("/.well-known/jwks.json", show_keys),
        Route(challenges.PATH, show_hub),
    ]


def _card(registry: Registry) -> HubCard:
    bus, signature = registry.settings.bus, None
    if bus.ca is not None:
        signature = _signed(registry.key, ca_document(hub_id=registry.hub_id, ca=bus.ca))
    return HubCard(
        hub_id=registry.hub_id,
        key=registry.key.kid,
        hub_key=registry.key.public.jwk(),
        brokers=bus.brokers,
        prefix=bus.prefix,
        ca=bus.ca,
        ca_signature=signature,
    )


def _signed(key: KeyPair, document: bytes) -> str:
    return urlsafe_b64encode(key.sign(document)).rstrip(b"=").decode()
