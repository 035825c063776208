"""The OpenAPI document, and requests made of it that no route answers with an error of its own."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route

from deploy.home.maintenance import Maintenance
from hub_server.http.openapi import OPEN
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill
from tests.hub_server.test_route_rights import ROWS

BODYLESS = """
POST /api/devices/{name}/revoke
POST /api/memory/undo
POST /api/nodes/{device}/{name}/{action}
POST /api/notifications/test
POST /api/purge
POST /api/timers/{timer}/pause
POST /api/timers/{timer}/resume
POST /api/tokens/renew
POST /api/turns/{turn}/cancel
POST /api/users/{user}/code
POST /api/watchers/{name}/pause
POST /api/watchers/{name}/resume
POST /api/watchers/{name}/run
PUT /api/agents/{name}/files/{path}
PUT /api/devices/{device}/installation/uploads/{file}
PUT /api/system/restore
"""
"""Requests that change something and take no JSON."""

ANY_JSON = """
args arguments content detail images kwargs latest lines output parameters payload phrases
public_key result seen state tool_choice value values watcher
"""
"""Fields that are any JSON: what skills take and give, payloads of topics, keys, OpenAI's messages."""

ENDLESS = ("/api/bus/tree", "/api/ollama/pull")
"""Streams that do not end by themselves."""
OWN_END = ("/api/session", "/api/sessions", "/api/purge", "/api/system/backup", "/api/system/restore")
"""What ends the token of the test or all that there is, or takes a second of scrypt each time."""


async def document(home: Home) -> dict[str, Any]:
    async with home.client() as client:
        answer = await client.get("/api/openapi.json")
    assert answer.status_code == 200
    given: dict[str, Any] = answer.json()
    return given


async def test_every_route_is_in_the_document_with_what_it_reads(tmp_path: Path, host: Maintenance) -> None:
    async with open_home(tmp_path / "home", host=host) as home:
        told = await document(home)
        app = home.hub.app
        assert isinstance(app, Starlette)
        served = {
            (method, re.sub(r"{(\w+):\w+}", r"{\1}", route.path))
            for route in app.routes
            if isinstance(route, Route) and route.path not in ("/mcp", "/metrics")
            for method in (route.methods or set()) - {"HEAD"}
        }
    operations = {
        (method.upper(), path): operation
        for path, methods in told["paths"].items()
        for method, operation in methods.items()
    }
    assert operations.keys() == served
    bodyless = {
        f"{method} {path}"
        for (method, path), operation in operations.items()
        if method in ("POST", "PUT", "PATCH") and "requestBody" not in operation
    }
    assert bodyless == set(BODYLESS.strip().splitlines())
    documented = {
        f"{row.method} {row.path}"
        for row in ROWS
        if row.who == "*" and row.path.startswith(("/api/", "/.well-known/", "/ca.crt"))
    }
    assert documented == OPEN
    assert not operations["POST", "/api/devices/{name}/invitations"]["requestBody"]["required"]
    assert operations["GET", "/api/turns"]["parameters"][-1]["schema"]["maximum"] == 200
    listed = answered(operations["GET", "/api/tokens"])
    assert listed["items"] == {"$ref": "#/components/schemas/TokenSummary"}
    schemas = told["components"]["schemas"]
    assert schemas["ChatAnswer"]["required"] == [*schemas["ChatAnswer"]["properties"]]
    assert answered(operations["GET", "/api/captures"])["items"]["$ref"].endswith("/CaptureInfo")
    assert schemas["RunSummary"]["properties"]["stdout"] == {"title": "Stdout", "type": "string"}
    turn = schemas["ChatAnswer"]["properties"]["events"]["items"]
    assert {each["$ref"].rpartition("/")[2] for each in turn["oneOf"]} >= {"TurnFinal", "SkillCalled"}
    assert "text/event-stream" in operations["GET", "/api/events"]["responses"]["2XX"]["content"]
    assert "content" not in operations["DELETE", "/api/tokens/{jti}"]["responses"]["2XX"]
    unknown = [key for key, each in operations.items() if not is_known(each["responses"]["2XX"])]
    assert unknown == []
    found = set[str]()
    for (_, path), operation in operations.items():
        contents = [operation["responses"]["2XX"], operation.get("requestBody", {})]
        shown = [each["schema"] for every in contents for each in every.get("content", {}).values()]
        if path != "/api/openapi.json":
            found |= {name for each in shown for name in untyped(each, path)}
    for name, schema in schemas.items():
        if name not in ("OtherError", "OpenApi"):
            found |= set(untyped(schema, name))
    assert sorted(found) == ANY_JSON.split()
    chat = operations["POST", "/api/chat"]["requestBody"]["content"]["application/json"]["schema"]
    assert "message" in schemas[chat["$ref"].rpartition("/")[2]]["required"]


def untyped(schema: Any, name: str) -> Iterator[str]:
    """The fields below a schema that may be any JSON, or any object."""
    more = schema.get("items", schema.get("additionalProperties"))
    is_any_object = schema.get("type") == "object" and "properties" not in schema and more in (None, True)
    if is_any_object or not schema.keys() - {"title", "description", "default"}:
        yield name
    for member, each in schema.get("properties", {}).items():
        yield from untyped(each, member)
    for each in (more, *(way for kind in ("anyOf", "oneOf", "allOf") for way in schema.get(kind, ()))):
        if isinstance(each, dict):
            yield from untyped(each, name)


def answered(operation: dict[str, Any]) -> Any:
    """The schema of an answer in JSON."""
    return operation["responses"]["2XX"]["content"]["application/json"]["schema"]


def is_known(response: dict[str, Any]) -> bool:
    """Whether the document says what is answered: no body, another media type, or JSON with a schema."""
    for media_type, content in response.get("content", {}).items():
        schema = content.get("schema")
        if media_type == "application/json":
            # An object or a list of anything says nothing.
            if not schema or (schema.get("type") == "object" and not schema.get("properties")):
                return False
            if schema.get("type") == "array" and not schema["items"]:
                return False
        elif media_type == "*/*":
            return False
    return True


@pytest.mark.slow
async def test_requests_made_of_the_document_get_no_internal_error(tmp_path: Path, host: Maintenance) -> None:
    async with open_home(tmp_path / "home", host=host) as home:
        await home.device("Bedroom PC", LampSkill())
        token = await home.token()
        told = await document(home)
        tried = await asyncio.to_thread(try_all, told, home.hub.url, token)
    assert tried > 100


def try_all(document: dict[str, Any], url: str, token: str) -> int:
    """Send a few requests to each operation; return to how many."""
    # An eighth of what a test worker imports, for this test.
    from schemathesis import openapi
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

    tried = 0
    schema: Any = openapi.from_dict(document)
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path in (*ENDLESS, *OWN_END):
            continue
        tried += 1
        right, wrong = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)

        @given(case=st.one_of(right, wrong))
        @settings(
            max_examples=4,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def try_one(case: Any) -> None:
            # A line of more than 64 KB is no request to the server, which hangs up.
            assume(len(str(case.query)) < 4_000)
            if "follow" in (case.query or {}):
                case.query["follow"] = "false"
            elif case.path == "/api/events":
                case.query = {"follow": "false"}
            response = case.call(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
            assert response.status_code != 500, (case.as_curl_command(), response.text)
            case.validate_response(
                response,
                checks=(status_code_conformance, response_schema_conformance),
            )
            if response.status_code >= 400 and case.path.startswith("/api/"):
                assert response.headers["content-type"] == ["application/problem+json"], case.path

        try_one()
    return tried
