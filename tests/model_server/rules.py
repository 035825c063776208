"""What an OpenAI-compatible server refuses; the scripted one refuses the same."""

import json
import re
from typing import Any

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def refusal(path: str, raw: bytes) -> str:
    """Return why a request would be refused; empty where it would be served."""
    if not path.endswith("/chat/completions"):
        return f"there is no {path}"
    try:
        body = json.loads(raw)
    except ValueError:
        return "the body is not JSON"
    if not isinstance(body, dict):
        return "the body is not an object"
    if not isinstance(body.get("model"), str) or not body["model"]:
        return "you must provide a model"
    if body.get("stream") is not True:
        return "only streams are served here"
    return _refused_tools(body) or _refused_messages(body.get("messages"))


def _refused_tools(body: dict[str, Any]) -> str:
    tools = body.get("tools")
    if tools is None:
        return "tool_choice needs tools" if body.get("tool_choice") not in (None, "none") else ""
    if not isinstance(tools, list) or not tools:
        return "tools must be a list that is not empty"
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            return "a tool must be a function"
        if not _TOOL_NAME.match(str(function.get("name"))):
            return f"invalid tool name {function.get('name')!r}"
        if function.get("parameters", {}).get("type") != "object":
            return f"the parameters of {function['name']} must be an object"
    return ""


def _refused_messages(messages: object) -> str:
    if not isinstance(messages, list) or not messages:
        return "messages must be a list that is not empty"
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer", "user", "assistant", "tool"):
            return f"messages.{number}: unknown role {role!r}"
        if role == "tool":
            call = message.get("tool_call_id")
            if call not in open_calls:
                return f"messages.{number}: a tool message must answer a preceding tool call"
            open_calls.discard(call)
            continue
        if open_calls:
            return f"messages.{number}: tool calls without an answer: {', '.join(sorted(open_calls))}"
        if role == "assistant":
            reason, open_calls = _assistant(message)
            if reason:
                return f"messages.{number}: {reason}"
        elif not message.get("content"):
            return f"messages.{number}: content must not be empty"
    return f"tool calls without an answer: {', '.join(sorted(open_calls))}" if open_calls else ""


def _assistant(message: dict[str, Any]) -> tuple[str, set[str]]:
    made = message.get("tool_calls") or []
    if not made and not message.get("content"):
        return "an assistant message needs content or tool calls", set()
    ids: set[str] = set()
    for call in made:
        function = call.get("function", {})
        if not call.get("id") or call["id"] in ids:
            return "each tool call needs an id of its own", set()
        if not _TOOL_NAME.match(str(function.get("name"))):
            return f"invalid tool name {function.get('name')!r}", set()
        if not isinstance(function.get("arguments"), str):
            return "arguments must be a string", set()
        ids.add(call["id"])
    return "", ids
