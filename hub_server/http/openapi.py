"""``GET /api/openapi.json``: the routes as an OpenAPI document, made of the models that they read and answer.

An operation says itself what it reads and answers. Of other routes the endpoint declares it: what it reads by
`reads`, and what it answers by its type: ``Answer[T]``, ``NoBody``, ``EventStream``, or
``Annotated[Response, MEDIA_TYPE]``.
"""

import re
from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from starlette.routing import BaseRoute, Route
from typing_extensions import TypedDict

from chat.http.requests import Answer, NoBody
from chat.http.streams import EventStream
from chat.operations import Operation, Stream
from contracts.errors import PROBLEM_JSON
from contracts.wire import Json

_DOCUMENTED: Final = ("/api/", "/v1/", "/ollama/", "/.well-known/", "/ca.crt")
OPEN: Final = frozenset(
    {
        "GET /api/health",
        "GET /api/setup",
        "POST /api/setup",
        "POST /api/session",
        "DELETE /api/session",
        "POST /api/devices/enrol",
        "POST /api/devices/join",
        "POST /api/devices/join/poll",
        "GET /.well-known/strawberry",
        "GET /.well-known/jwks.json",
        "GET /ca.crt",
    }
)
"""Routes at which a request without a token is answered."""

_TEXT: Final[Json] = {"type": "string"}
_PROBLEM: Final[Json] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "hint"],
    "properties": {
        "type": {**_TEXT, "format": "uri"},
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": {**_TEXT, "description": "What happened, in one line."},
        "code": _TEXT,
        "hint": {**_TEXT, "description": "What to do about it; may be empty."},
        "errors": {
            "type": "array",
            "items": {"type": "object", "properties": {"field": _TEXT, "detail": _TEXT}},
        },
        "phrases": {
            "type": "object",
            "description": "Templates and values of detail and hint, where they have values.",
            "additionalProperties": {"type": "object", "properties": {"template": _TEXT, "values": {}}},
        },
    },
}
_OTHER_API: Final[Json] = {"type": "object", "required": ["error"]}
"""An error of OpenAI's or of Ollama's API."""
_Mode = Literal["validation", "serialization"]
_UNKNOWN: Final[Json] = {"description": "The answer, or none.", "content": {"*/*": {}}}


class OpenApi(TypedDict):
    """An OpenAPI document, version 3.1."""

    openapi: str
    info: dict[str, str]
    security: list[dict[str, list[str]]]
    paths: dict[str, dict[str, Json]]
    components: dict[str, dict[str, Json]]


def openapi_document(routes: Iterable[BaseRoute], *, version: str) -> OpenApi:
    """Return the document of all routes of HTTP."""
    found = [
        (route, method, _models(route.endpoint))
        for route in routes
        if isinstance(route, Route) and route.path.startswith(_DOCUMENTED)
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]
    used: set[tuple[Any, _Mode]] = {(read["body"], "validation") for *_, read in found if "body" in read}
    answered: dict[Any, dict[str, Json]] = {}

    def of_type(kind: Any) -> Json:
        # How it is referred to is only known once all of them are.
        return answered.setdefault(kind, {"title": repr(kind)})

    answers = [_answer(route.endpoint, of_type) for route, *_ in found]
    used |= {(kind, "serialization") for kind in answered}
    refs, schemas = TypeAdapter.json_schemas(
        [(kind, mode, TypeAdapter(kind)) for kind, mode in sorted(used, key=repr)],
        ref_template="#/components/schemas/{model}",
    )
    for kind, schema in answered.items():
        schema.clear()
        schema.update(refs[(kind, "serialization")])
    paths: dict[str, dict[str, Json]] = {}
    for (route, method, read), answer in zip(found, answers, strict=True):
        path = re.sub(r"{(\w+):\w+}", r"{\1}", route.path)
        body = refs[(read["body"], "validation")] if "body" in read else None
        operation = _operation(path, method, read, body, answer)
        paths.setdefault(path, {})[method.lower()] = operation
    problem = {"Problem": _PROBLEM, "OtherError": _OTHER_API}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strawberry",
            "version": version,
            "description": "docs/http.md says what the routes do and answer. Errors are problem details. "
            "A schema without a type is any JSON: arguments and results of skills, payloads of topics. "
            "0, 1 and words such as yes are taken as booleans, too.",
        },
        "security": [{"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), **problem},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "strawberry_session"},
            },
        },
    }


def _operation(
    path: str,
    method: str,
    read: dict[str, Any],
    body: Json | None,
    answer: dict[str, Json] | None,
) -> dict[str, Json]:
    is_other = path.startswith(("/v1/", "/ollama/"))
    error = "OtherError" if is_other else "Problem"
    media_type = "application/json" if is_other else PROBLEM_JSON
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    if "query" in read:
        schema = read["query"].model_json_schema()
        parameters += [
            {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", ()),
                "schema": each,
            }
            for name, each in schema.get("properties", {}).items()
        ]
    if "switch" in read:
        schema = {"type": "boolean", "default": False}
        parameters.append({"name": read["switch"], "in": "query", "required": False, "schema": schema})
    operation: dict[str, Json] = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "tags": [path.split("/")[2 if path.startswith("/api/") else 1]],
        "responses": {
            "2XX": _UNKNOWN if answer is None else _content(answer),
            "default": {
                "description": "An error.",
                "content": {media_type: {"schema": {"$ref": f"#/components/schemas/{error}"}}},
            },
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        content = {"application/json": {"schema": body}}
        operation["requestBody"] = {"required": "optional" not in read, "content": content}
    if f"{method} {path}" in OPEN:
        operation["security"] = [{}, {"bearer": []}, {"session": []}]
    return operation


def _content(answer: dict[str, Json]) -> Json:
    if not answer:
        return {"description": "It is done."}
    content = {media_type: {"schema": schema} for media_type, schema in answer.items()}
    return {"description": "The answer.", "content": content}


def _answer(endpoint: Callable[..., Any], of_type: Callable[[Any], Json]) -> dict[str, Json] | None:
    """Return the schemas of what an endpoint is declared to return, by media type, none without a body.

    Returns:
        None where that is not declared.
    """
    operation: Operation[Any, Any] | None = getattr(endpoint, "operation", None)
    if operation is not None and not operation.is_raw:
        if isinstance(operation, Stream):
            return {"text/event-stream": {"type": "string"}}
        answered = {} if operation.answer is NoneType else {"application/json": of_type(operation.answer)}
        has_stream = getattr(endpoint, "switched", None) is not None
        return answered | ({"text/event-stream": {"type": "string"}} if has_stream else {})
    function = operation.function if operation else endpoint
    declared = get_type_hints(function, include_extras=True).get("return")
    content: dict[str, Json] = {}
    for each in get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,):
        if get_origin(each) is Answer:
            content["application/json"] = of_type(get_args(each)[0])
        elif get_origin(each) is Annotated:
            content[get_args(each)[1]] = {"type": "string"}
        elif each is EventStream:
            content["text/event-stream"] = {"type": "string"}
        elif each is not NoBody:
            return None
    return content


def _models(endpoint: Callable[..., Any]) -> dict[str, Any]:
    """Return what an endpoint reads: the model of its body, and of its query, and if that is optional."""
    operation: Operation[Any, Any] | None = getattr(endpoint, "operation", None)
    if operation is not None:
        place = "query" if operation.is_in_query else "body"
        read: dict[str, Any] = {} if operation.body is None else {place: operation.body}
        switched: Stream[Any, Any] | None = getattr(endpoint, "switched", None)
        if switched is not None and switched.switch:
            read["switch"] = switched.switch
        return read | ({"optional": True} if operation.may_be_empty else {})
    kind = getattr(endpoint, "reads", None)
    return {} if kind is None else {"body": kind}
