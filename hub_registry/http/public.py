"""What anybody may ask, what a device says to join, and where the bus is."""

from base64 import urlsafe_b64encode
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from contracts.joining import DeviceBus, EnrolAnswer, HubCard, ca_document
from contracts.wire import Json
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.http.parts import Body, source_of
from hub_registry.registry import Registry


class EnrolBody(Body):
    """A device that wants to join with an enrolment token."""

    token: Annotated[str, Field(max_length=200)]
    public_key: dict[str, Json]


def add(router: APIRouter, registry: Registry, gate: Gate) -> None:
    """Add the routes."""
    public = registry.key.public
    card = _card(registry)

    @router.post("/api/devices/enrol")
    async def enrol(body: EnrolBody, request: Request) -> EnrolAnswer:
        joined = await registry.enrol(body.token, body.public_key, source=source_of(request))
        return registry.enrol_answer(joined)

    @router.get("/api/bus")
    async def bus(bearer: Annotated[Bearer, Depends(gate.require("register"))]) -> DeviceBus:
        entry = registry.directory.get(bearer.device) if bearer.device else None
        profile = entry.device.profile if entry else None
        return DeviceBus(**registry.settings.bus.model_dump(), profile=profile)

    @router.get("/.well-known/jwks.json")
    async def keys() -> dict[str, list[dict[str, str]]]:
        return {"keys": [{**public.jwk(), "use": "sig", "alg": "EdDSA"}]}

    @router.get("/.well-known/strawberry")
    async def hub() -> HubCard:
        return card


def _card(registry: Registry) -> HubCard:
    settings, signature = registry.settings, None
    if settings.ca is not None:
        signed = registry.key.sign(ca_document(hub_id=registry.hub_id, ca=settings.ca))
        signature = urlsafe_b64encode(signed).rstrip(b"=").decode()
    return HubCard(
        hub_id=registry.hub_id,
        key=registry.key.kid,
        hub_key=registry.key.public.jwk(),
        brokers=settings.brokers,
        prefix=settings.topic_prefix,
        ca=settings.ca,
        ca_signature=signature,
    )
