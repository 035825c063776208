"""Tool calls that a weak model prints as text."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_core import from_json

from agent_core.gateway.protocol import ToolCall, ToolSpec
from contracts.wire import Json

_FENCE: Final = re.compile(r"```[ \t]*(?P<language>[\w+-]*)[ \t]*\n(?P<body>.*?)\n?```", re.DOTALL)
_TAG: Final = re.compile(r"<(?P<tag>tool_call|function_call)>(?P<body>.*?)</(?P=tag)>", re.DOTALL)
_MISTRAL: Final = re.compile(r"\[TOOL_CALLS\]\s*(?P<body>\[.*\])\s*\Z", re.DOTALL)

_LANGUAGES: Final = frozenset({"", "json", "python", "py", "tool_code", "tool_call", "tool"})
"""Languages of a fence in which a call may stand; any other is an example for the reader."""

_ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input")


@dataclass(frozen=True)
class Printed:
    """Calls that were printed, and the text around them."""

    calls: tuple[ToolCall, ...]
    text: str


def printed_calls(text: str, tools: Sequence[ToolSpec], *, prefix: str) -> Printed | None:
    """Find calls of these tools in a text; None where there is none.

    Args:
        prefix: Beginning of the ids that the calls get.
    """
    for pattern in (_TAG, _MISTRAL, _FENCE):
        found: list[tuple[str, dict[str, Json]]] = []
        rest, end = [], 0
        for match in pattern.finditer(text):
            calls = _in_block(match["body"], match.groupdict().get("language", ""), tools)
            if calls:
                found += calls
                rest.append(text[end : match.start()])
                end = match.end()
        if found:
            return _printed(found, "".join([*rest, text[end:]]), prefix)
    bare = text.strip()
    if bare.startswith(("{", "[")) or any(bare.startswith(f"{tool.name}(") for tool in tools):
        calls = _in_block(bare, "", tools)
        if calls:
            return _printed(calls, "", prefix)
    return None


def _printed(found: list[tuple[str, dict[str, Json]]], text: str, prefix: str) -> Printed:
    calls = (
        ToolCall(f"{prefix}_{number}", name, json.dumps(arguments), arguments)
        for number, (name, arguments) in enumerate(found)
    )
    return Printed(tuple(calls), text.strip())


def _in_block(body: str, language: str, tools: Sequence[ToolSpec]) -> list[tuple[str, dict[str, Json]]]:
    if language.lower() not in _LANGUAGES:
        return []
    names = {tool.name for tool in tools}
    data = _json(body.strip())
    items = data if isinstance(data, list) else [data]
    found = [call for item in items if (call := _from_object(item, names)) is not None]
    if found and len(found) == len(items):
        return found
    call = _from_python(body.strip(), tools)
    return [call] if call is not None else []


def _json(text: str) -> Json:
    try:
        return from_json(text)
    except ValueError:
        return None


def _from_object(item: Json, names: set[str]) -> tuple[str, dict[str, Json]] | None:
    if not isinstance(item, dict):
        return None
    if isinstance(item.get("function"), dict):
        item = item["function"]
    name = item.get("name") or item.get("tool")
    if not isinstance(name, str) or name not in names:
        return None
    for key in _ARGUMENT_KEYS:
        arguments = item.get(key)
        if isinstance(arguments, str):
            arguments = _json(arguments)
        if isinstance(arguments, dict):
            return name, arguments
    return (name, {}) if not any(key in item for key in _ARGUMENT_KEYS) else None


def _from_python(text: str, tools: Sequence[ToolSpec]) -> tuple[str, dict[str, Json]] | None:
    """Read ``tool("text")`` or ``tool(key="text")``; nothing is evaluated but literals."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and node.args
    ):
        node = node.args[0]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    name = node.func.id
    spec = next((tool for tool in tools if tool.name == name), None)
    if spec is None or len(node.args) > len(spec.parameters["properties"]):
        return None
    try:
        arguments = dict(zip(spec.parameters["properties"], map(ast.literal_eval, node.args), strict=False))
        for keyword in node.keywords:
            if keyword.arg is None:
                return None
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
        # Not all that Python writes as a literal is JSON: a set, bytes, and the dots of an example.
        return name, from_json(json.dumps(arguments))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


class Screen:
    """A filter that holds back, while an answer streams, what may turn out to be a printed call.

    All that is plainly prose goes through at once.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools
        names = "|".join(re.escape(tool.name) for tool in tools)
        self._start = re.compile(
            rf"```|<tool_call>|<function_call>|\[TOOL_CALLS\]|\A\s*(?:[{{\[]|(?:{names})\()"
        )
        self._held = ""
        self._begun = False

    def feed(self, text: str) -> Iterator[str]:
        """Read a piece; yield what can be shown."""
        if not self._tools:
            yield text
            return
        self._held += text
        while self._held:
            match = self._start.search(self._held) if not self._begun else _LATER.search(self._held)
            if match is None:
                safe = len(self._held) - self._open_end()
                if safe > 0:
                    yield self._pass(safe)
                return
            if match.start() > 0 and match.group().strip():
                yield self._pass(match.start())
                continue
            fence = _FENCE.match(self._held)
            if fence is None or _in_block(fence["body"], fence["language"], self._tools):
                return
            yield self._pass(fence.end())

    def rest(self) -> str:
        """Return what is still held back, at the end of an answer that prints no call."""
        held, self._held = self._held, ""
        return held

    def _pass(self, size: int) -> str:
        shown, self._held = self._held[:size], self._held[size:]
        self._begun = self._begun or bool(shown.strip())
        return shown

    def _open_end(self) -> int:
        """Return the length of the end that may be the beginning of a mark."""
        marks = list(_MARKS)
        if not self._begun:
            marks += [f"{tool.name}(" for tool in self._tools]
            if not self._held.strip():
                return len(self._held)
        longest = max(map(len, marks))
        for size in range(min(longest, len(self._held)), 0, -1):
            end = self._held[-size:]
            if any(mark.startswith(end) for mark in marks):
                return size
        return 0


_MARKS: Final = ("```", "<tool_call>", "<function_call>", "[TOOL_CALLS]")
_LATER: Final = re.compile("|".join(re.escape(mark) for mark in _MARKS))
