"""What Ollama refuses, with the statuses and words that it uses."""

import json
from dataclasses import dataclass
from typing import Any, Final

from tests.model_server.ollama.model import FakeModel

_REGISTRY: Final = "registry.ollama.ai/library/"
_JSON_KINDS: Final = {str: "string", bool: "bool", list: "array", dict: "object"}


@dataclass
class Refused(Exception):
    """A request that is not served."""

    status: int
    message: str


def parsed(raw: bytes) -> dict[str, Any]:
    """Parse a body.

    Raises:
        Refused: If it is none.
    """
    if not raw.strip():
        raise Refused(400, "missing request body")
    try:
        body = json.loads(raw)
    except ValueError:
        raise Refused(
            400, f"invalid character {chr(raw.strip()[0])!r} looking for beginning of value"
        ) from None
    if not isinstance(body, dict):
        raise Refused(400, "json: cannot unmarshal into Go value of type api.ChatRequest")
    return body


def check_types(body: dict[str, Any], request: str) -> None:
    """Check the fields that every request may have.

    Args:
        request: What Ollama calls it, for example ``ChatRequest``.

    Raises:
        Refused: If one has the wrong type.
    """
    for name, kind, go in (("model", str, "string"), ("name", str, "string"), ("stream", bool, "bool")):
        value = body.get(name)
        if value is not None and not isinstance(value, kind):
            found = _JSON_KINDS.get(type(value), "number")
            raise Refused(
                400, f"json: cannot unmarshal {found} into Go struct field {request}.{name} of type {go}"
            )


def check_tools(body: dict[str, Any], model: FakeModel) -> None:
    """Refuse tools that are not in form, or for a model that cannot call them.

    Raises:
        Refused: If so.
    """
    tools = body.get("tools")
    if not tools:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Refused(400, "json: cannot unmarshal into Go struct field ChatRequest.tools of type api.Tools")
    for tool in tools:
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Refused(400, "json: cannot unmarshal into Go struct field Tool.tools.function")
        parameters = function.get("parameters", {})
        if not isinstance(parameters, dict) or not isinstance(parameters.get("properties", {}), dict):
            raise Refused(
                400, "json: cannot unmarshal into Go struct field ToolFunction.tools.function.parameters"
            )
    if "tools" not in model.capabilities:
        raise Refused(400, f"{_REGISTRY}{model.tag} does not support tools")


def check_native(body: dict[str, Any], model: FakeModel) -> None:
    """Check the body of ``/api/chat``.

    Raises:
        Refused: If Ollama would not serve it.
    """
    messages = body.get("messages") or []
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Refused(
            400, "json: cannot unmarshal into Go struct field ChatRequest.messages of type []api.Message"
        )
    for message in messages:
        if not isinstance(message.get("content", ""), str):
            raise Refused(
                400, "json: cannot unmarshal into Go struct field Message.messages.content of type string"
            )
        for call in message.get("tool_calls") or []:
            if not isinstance(call.get("function", {}).get("arguments"), dict):
                raise Refused(
                    400,
                    "json: cannot unmarshal string into Go struct field "
                    "ToolCallFunction.messages.tool_calls.function.arguments",
                )
    options = body.get("options")
    if options is not None and not isinstance(options, dict):
        raise Refused(
            400, "json: cannot unmarshal into Go struct field ChatRequest.options of type map[string]"
        )
    num_ctx = (options or {}).get("num_ctx")
    if num_ctx is not None and (not isinstance(num_ctx, int | float) or isinstance(num_ctx, bool)):
        # Found out only when the model is to be loaded.
        raise Refused(500, 'option "num_ctx" must be of type integer')
    if body.get("think") and "thinking" not in model.capabilities:
        raise Refused(400, f"{json.dumps(body['model'])} does not support thinking")
    check_tools(body, model)


def check_openai(body: dict[str, Any], model: FakeModel) -> None:
    """Check the body of ``/v1/chat/completions``.

    Raises:
        Refused: If Ollama would not serve it.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "[] is too short - 'messages'")
    for message in messages:
        made = message.get("tool_calls") or []
        if not isinstance(message.get("content"), str | list) and not made:
            raise Refused(400, "invalid message content type: <nil>")
        for call in made:
            try:
                arguments = json.loads(call["function"]["arguments"])
            except (KeyError, TypeError, ValueError):
                raise Refused(400, "invalid tool call arguments") from None
            if not isinstance(arguments, dict):
                raise Refused(400, "invalid tool call arguments")
    check_tools(body, model)
