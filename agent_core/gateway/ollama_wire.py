"""Questions and answers in the form of Ollama's own chat API."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_core.gateway.backend import parsed_arguments
from agent_core.gateway.protocol import (
    AssistantMessage,
    Message,
    ModelRequest,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from contracts.wire import Json

_MAX_SHAPE: Final = 300
"""Characters of a nested schema in a description."""

_TOLD: Final = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("exclusiveMinimum", "more than {}"),
    ("exclusiveMaximum", "less than {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("pattern", "matches {}"),
    ("format", "{}"),
    ("default", "default {}"),
)
"""What Ollama's form of a schema has no place for, in words."""


def chat_messages(request: ModelRequest) -> list[dict[str, Any]]:
    """Write a conversation; a tool's result names its tool, for there are no ids."""
    return [{"role": "system", "content": request.system}, *map(_message, request.messages)]


def chat_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Write tools in the part of JSON Schema that Ollama keeps: what else is known goes into words."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": {
                    "type": "object",
                    "properties": {
                        name: _property(schema, tool.parameters)
                        for name, schema in tool.parameters.get("properties", {}).items()
                    },
                    "required": list(tool.parameters.get("required", ())),
                },
            },
        }
        for tool in tools
    ]


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(text):
            return {"role": "user", "content": text}
        case AssistantMessage(text, calls):
            said: dict[str, Any] = {"role": "assistant", "content": text}
            if calls:
                said["tool_calls"] = [
                    {"function": {"name": call.name, "arguments": parsed_arguments(call.raw) or {}}}
                    for call in calls
                ]
            return said
        case ToolMessage(_, name, text):
            return {"role": "tool", "tool_name": name, "content": text}


def _property(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    schema = _resolved(schema, root)
    made: dict[str, Any] = {}
    types = _types(schema, root)
    if types:
        made["type"] = types[0] if len(types) == 1 else types
    if "enum" in schema:
        made["enum"] = schema["enum"]
    items = _resolved(schema.get("items"), root)
    if "type" in items and "properties" not in items:
        made["items"] = {key: items[key] for key in ("type", "enum") if key in items}
    words = [str(schema["description"])] if schema.get("description") else []
    words += [form.format(_plain(schema[key])) for key, form in _TOLD if schema.get(key) is not None]
    nested = schema if "properties" in schema else items if "properties" in items else None
    if nested is not None:
        words.append(f"shape: {_shape(nested)}")
    if words:
        made["description"] = "; ".join(words)
    return made


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Follow a reference to the definitions of the same schema; what is no schema says nothing."""
    if not isinstance(schema, dict):
        return {}
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    known = root.get("$defs", {}).get(name)
    return {**known, **schema} if isinstance(known, dict) else schema


def _types(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[str]:
    if "type" in schema:
        return [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
    choices = (_resolved(choice, root) for key in ("anyOf", "oneOf") for choice in schema.get(key, ()))
    return list(dict.fromkeys(name for choice in choices for name in _types(choice, root)))


def _shape(schema: Mapping[str, Any]) -> str:
    fields = {
        name: each.get("type", "any") for name, each in schema["properties"].items() if isinstance(each, dict)
    }
    return json.dumps(fields)[:_MAX_SHAPE]


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
