"""Answers in the form of the OpenAI chat API: whole, and in chunks."""

import json
from collections.abc import Iterator
from typing import Any

from tests.model_server.script import Says, SeenRequest


def head(seen: SeenRequest, kind: str) -> dict[str, Any]:
    """Make what every answer and every chunk begins with."""
    return {"id": f"reply-{seen.number}", "object": kind, "created": 0, "model": seen.body["model"]}


def usage(reply: Says) -> dict[str, int]:
    """Make the count of tokens."""
    total = reply.input_tokens + reply.output_tokens
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": total,
    }


def finish_reason(reply: Says) -> str:
    """Say why the answer ends where it does."""
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _calls(seen: SeenRequest, reply: Says) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id or f"call_{seen.number}_{index}",
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments
                if isinstance(call.arguments, str)
                else json.dumps(call.arguments),
            },
        }
        for index, call in enumerate(reply.calls)
    ]


def whole(seen: SeenRequest, reply: Says) -> dict[str, Any]:
    """Make an answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = _calls(seen, reply)
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(reply)}
    return {**head(seen, "chat.completion"), "choices": [choice], "usage": usage(reply)}


def chunk(seen: SeenRequest, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Make one chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**head(seen, "chat.completion.chunk"), "choices": [choice]}


def deltas(seen: SeenRequest, reply: Says) -> Iterator[dict[str, Any]]:
    """Cut an answer into the deltas of a stream."""
    yield {"role": "assistant", "content": ""}
    if reply.reasoning:
        yield {"reasoning_content": reply.reasoning}
    for start in range(0, len(reply.text), 8):
        yield {"content": reply.text[start : start + 8]}
    for index, call in enumerate(_calls(seen, reply)):
        raw = call["function"]["arguments"]
        first = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield {"tool_calls": [first]}
        for start in range(0, len(raw), 16):
            yield {"tool_calls": [{"index": index, "function": {"arguments": raw[start : start + 16]}}]}
