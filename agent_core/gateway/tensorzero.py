"""The backend over TensorZero, embedded in this process. The only importer of tensorzero."""

import asyncio
import atexit
import importlib.util
import json
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from agent_core import limits
from agent_core.gateway.backend import (
    Alive,
    Backend,
    CallCollector,
    Failure,
    Piece,
    as_cost,
    broken,
    refused,
    stop_reason,
    unreachable,
)
from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    Message,
    ModelRequest,
    TextPart,
    ToolMessage,
    UserMessage,
)
from agent_core.models.entries import Model, ModelEntry
from contracts.errors import GatewayError

if TYPE_CHECKING:
    from tensorzero import AsyncTensorZeroGateway

_log = logging.getLogger(__name__)

_FUNCTION: Final = "assistant"


_ALONE: Final = 2
"""References that `sys.getrefcount` sees of what only one list holds."""


def has_tensorzero() -> bool:
    return importlib.util.find_spec("tensorzero") is not None


@asynccontextmanager
async def open_tensorzero(models: tuple[Model, ...]) -> AsyncIterator[Backend]:
    """Build the embedded gateway for these models and close it again.

    Raises:
        GatewayError: If this machine has no certificate authorities.
    """
    # Its logs go to standard output, which belongs to the command that runs.
    os.environ.setdefault("RUST_LOG", "off")
    # 119 MB that many commands never need
    from tensorzero import AsyncTensorZeroGateway, TensorZeroInternalError

    _exit_later()

    with tempfile.TemporaryDirectory(prefix="strawberry-") as folder:
        file = Path(folder) / "tensorzero.toml"
        file.write_text(render([model.entry for model in models]), "utf-8")
        # An awaited build crashes the interpreter at its exit; this one takes 30 ms.
        try:
            client = AsyncTensorZeroGateway.build_embedded(config_file=str(file), async_setup=False)
        except TensorZeroInternalError as error:
            if "HTTP client" not in str(error):
                raise
            raise GatewayError(
                "TensorZero finds no certificate authorities on this machine",
                hint='Install them (Debian: ca-certificates), or set kind = "direct" in [gateway].',
            ) from None
    assert isinstance(client, AsyncTensorZeroGateway)
    try:
        yield TensorZeroBackend(client, models)
    finally:
        await client.close()
        threading.Thread(target=_let_go, args=([client],), daemon=True, name="tensorzero").start()
        await asyncio.sleep(limits.GATEWAY_CLOSE_S)


@cache
def _exit_later() -> None:
    atexit.register(time.sleep, limits.GATEWAY_EXIT_S)


def _let_go(held: list[object]) -> None:
    """Drop a gateway last: its end waits for requests that were left, and must not hold up the event loop."""
    while sys.getrefcount(held[0]) > _ALONE:
        time.sleep(limits.GATEWAY_CLOSE_S)
    held.clear()


def render(entries: Sequence[ModelEntry]) -> str:
    """Write the configuration for these entries: one variant each.

    Keys are not in it: they go along with each call. Nor is an order: ``fallback`` chooses the variant, so
    that the rules and the messages are the same whichever way a model is asked.
    """
    blocks = ["[gateway]\nobservability.enabled = false\ndisable_pseudonymous_usage_analytics = true\n"]
    # Pictures are stored nowhere.
    blocks.append('[object_storage]\ntype = "disabled"\n')
    blocks += [_model(_variant(number), entry) for number, entry in enumerate(entries)]
    blocks.append(f'[functions.{_FUNCTION}]\ntype = "chat"\n')
    blocks += [
        f"[functions.{_FUNCTION}.variants.{_variant(number)}]\n"
        'type = "chat_completion"\n'
        f'model = "{_variant(number)}"\n'
        f"max_tokens = {entry.max_output_tokens}\n"
        # Its own retries cost seconds before the next model is asked.
        "retries = { num_retries = 0, max_delay_s = 1 }\n"
        for number, entry in enumerate(entries)
    ]
    return "\n".join(blocks)


def _variant(number: int) -> str:
    return f"model_{number}"


def _model(variant: str, entry: ModelEntry) -> str:
    total_ms = int((entry.timeout_s + limits.GATEWAY_LATER_S) * 1000)
    first_ms = int((min(entry.first_token_s, entry.timeout_s) + limits.GATEWAY_LATER_S) * 1000)
    lines = [
        f"[models.{variant}]",
        'routing = ["provider"]',
        f"[models.{variant}.providers.provider]",
        f'type = "{entry.about.tensorzero}"',
        f"model_name = {_quoted(entry.model)}",
        f'api_key_location = "{f"dynamic::{variant}" if entry.key_variable else "none"}"',
        (
            f"timeouts = {{ non_streaming.total_ms = {total_ms}, "
            f"streaming.ttft_ms = {first_ms}, streaming.total_ms = {total_ms} }}"
        ),
    ]
    if entry.address:
        lines.append(f"api_base = {_quoted(entry.address + '/')}")
    if entry.provider == "ollama":
        # Ollama knows only the older name of the limit.
        lines.append(
            f'extra_body = [{{ pointer = "/max_tokens", value = {entry.max_output_tokens} }}, '
            '{ pointer = "/max_completion_tokens", delete = true }]'
        )
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which JSON leaves as it is.
    return json.dumps(text).replace("\x7f", "\\u007f")


class TensorZeroBackend:
    """Asks through one embedded gateway."""

    def __init__(self, client: "AsyncTensorZeroGateway", models: tuple[Model, ...]) -> None:
        self._client = client
        self._variants = {model.entry.name: _variant(number) for number, model in enumerate(models)}

    async def ask(self, request: ModelRequest, model: Model) -> AsyncGenerator[Piece, None]:
        from tensorzero import TextChunk, ToolCallChunk
        from tensorzero.types import BaseTensorZeroError

        variant = self._variants[model.entry.name]
        collected, stop, usage, cost = CallCollector(), "", (0, 0), None
        try:
            stream: Any = await self._client.inference(
                function_name=_FUNCTION,
                variant_name=variant,
                input={"system": request.system, "messages": _messages(request.messages)},
                stream=True,
                additional_tools=[
                    {"type": "function", **vars(tool), "strict": False} for tool in request.tools
                ]
                or None,
                credentials={variant: model.key.get_secret_value()} if model.key is not None else {},
            )
            async for chunk in stream:
                yield Alive()
                for content in chunk.content:
                    if isinstance(content, TextChunk) and content.text:
                        yield TextPart(content.text)
                    elif isinstance(content, ToolCallChunk):
                        collected.add(content.id, content.raw_name, content.raw_arguments)
                if chunk.usage is not None:
                    usage = (chunk.usage.input_tokens or 0, chunk.usage.output_tokens or 0)
                    cost = as_cost(chunk.usage.cost)
                if chunk.finish_reason is not None:
                    stop = chunk.finish_reason.value
        except BaseTensorZeroError as error:
            yield _failed(model, str(error))
            return
        for call in collected.calls():
            yield call
        yield Completed(model.entry.name, *usage, cost=cost, stop=stop_reason(stop))


def _failed(model: Model, text: str) -> Failure:
    """Report in our words what TensorZero reports in those of its inner parts."""
    start = text.find("{")
    try:
        text = str(from_json(text[start:])["error"])
    except (ValueError, KeyError, TypeError):
        text = text[max(start, 0) :]
    if timeout := re.search(r"timeout \((\d+)ms\)", text):
        seconds = int(timeout[1]) / 1000 - limits.GATEWAY_LATER_S
        return Failure(model.entry.name, f"did not answer within {seconds:g} s", "down")
    if "(Connect)" in text:
        return unreachable(model)
    if status := re.search(r"status code: (\d{3})[^:]*:?\s*(.*)", text, re.DOTALL):
        return refused(model, int(status[1]), status[2])
    if "caused by: " in text:
        return broken(model, f"broke the connection: {text.rpartition('caused by: ')[2]}")
    _log.warning("TensorZero could not read the answer of %s: %s", model.entry.name, text)
    return broken(model, "sent an answer that cannot be read")


def _messages(messages: Sequence[Message]) -> list[Any]:
    """Convert messages: TensorZero knows users and assistants only; tool results are a user's blocks."""
    made: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case UserMessage(text, images):
                role, blocks = "user", [{"type": "text", "text": text}]
                blocks += [
                    {"type": "file", "file_type": "base64", "mime_type": each.media_type, "data": each.data}
                    for each in images
                ]
            case AssistantMessage(text, calls):
                role, blocks = "assistant", [{"type": "text", "text": text}] if text else []
                blocks += [
                    {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.raw}
                    for call in calls
                ]
            case ToolMessage(id_, name, text):
                role, blocks = "user", [{"type": "tool_result", "id": id_, "name": name, "result": text}]
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        else:
            made.append({"role": role, "content": blocks})
    return made
