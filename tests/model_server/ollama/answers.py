"""Answers of ``/api/chat``, and what differs from OpenAI's in those of ``/v1``."""

from collections.abc import Iterator
from typing import Any, Final

from tests.model_server.bodies import chunk, whole
from tests.model_server.script import Says, SeenRequest

_CREATED: Final = "2026-01-02T03:04:05.678901234Z"
_TEXT_PIECE: Final = 8
_KINDS: Final = {404: "not_found_error", 400: "invalid_request_error"}


def native_pieces(seen: SeenRequest, reply: Says, *, prompt_tokens: int) -> Iterator[dict[str, Any]]:
    """Cut an answer into the objects of a stream; tool calls come whole."""
    if reply.reasoning:
        yield _native(seen, {"thinking": reply.reasoning})
    for start in range(0, len(reply.text), _TEXT_PIECE):
        yield _native(seen, {"content": reply.text[start : start + _TEXT_PIECE]})
    for call in _native_calls(seen, reply):
        yield _native(seen, {"tool_calls": [call]})
    yield {**_native(seen, {}), **_end(reply, prompt_tokens)}


def native_whole(seen: SeenRequest, reply: Says, *, prompt_tokens: int) -> dict[str, Any]:
    """Make an answer that is not streamed."""
    message: dict[str, Any] = {"content": reply.text}
    if reply.reasoning:
        message["thinking"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = _native_calls(seen, reply)
    return {**_native(seen, message), **_end(reply, prompt_tokens)}


def loaded(model: str, *, stays: bool) -> dict[str, Any]:
    """Make the answer to a chat without messages, which only loads the model, or lets it go."""
    message = {"role": "assistant", "content": ""}
    reason = "load" if stays else "unload"
    return {"model": model, "created_at": _CREATED, "message": message, "done": True, "done_reason": reason}


def openai_whole(seen: SeenRequest, reply: Says) -> dict[str, Any]:
    """Make an answer of ``/v1`` that is not streamed."""
    made = whole(seen, reply)
    message = made["choices"][0]["message"]
    message["content"] = reply.text
    message["reasoning"] = message.pop("reasoning_content", None) or ""
    return {**made, "system_fingerprint": "fp_ollama"}


def openai_chunks(seen: SeenRequest, reply: Says) -> Iterator[dict[str, Any]]:
    """Cut an answer of ``/v1`` into chunks; tool calls come whole."""
    calls = whole(seen, reply)["choices"][0]["message"].get("tool_calls", [])
    deltas: list[dict[str, Any]] = [{"content": "", "reasoning": reply.reasoning}] if reply.reasoning else []
    deltas += [
        {"content": reply.text[start : start + _TEXT_PIECE]}
        for start in range(0, len(reply.text), _TEXT_PIECE)
    ]
    deltas += [{"content": "", "tool_calls": [{**call, "index": index}]} for index, call in enumerate(calls)]
    for delta in deltas:
        yield {**chunk(seen, {"role": "assistant", **delta}), "system_fingerprint": "fp_ollama"}


def openai_error(status: int, message: str) -> dict[str, Any]:
    """Make an error of ``/v1``."""
    kind = _KINDS.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _native(seen: SeenRequest, message: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": seen.body["model"],
        "created_at": _CREATED,
        "message": {"role": "assistant", "content": "", **message},
        "done": False,
    }


def _end(reply: Says, prompt_tokens: int) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": reply.finish or "stop",
        "total_duration": 5_000_000,
        "load_duration": 1_000_000,
        "prompt_eval_count": prompt_tokens,
        "prompt_eval_duration": 2_000_000,
        "eval_count": reply.output_tokens,
        "eval_duration": 2_000_000,
    }


def _native_calls(seen: SeenRequest, reply: Says) -> list[dict[str, Any]]:
    """Ollama parses what its model wrote, so arguments are objects here and never text."""
    return [
        {
            "id": call.id or f"call_{seen.number}_{index}",
            "function": {
                "index": index,
                "name": call.name,
                "arguments": call.arguments if isinstance(call.arguments, dict) else {},
            },
        }
        for index, call in enumerate(reply.calls)
    ]
