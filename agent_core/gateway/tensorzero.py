"""Asking models through TensorZero, embedded in this process. The only importer of tensorzero."""

import asyncio
import itertools
import json
import os
import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_core.gateway.fallback import (
    AllFailed,
    Backend,
    Began,
    BrokeOff,
    CallCollector,
    Failure,
    Piece,
    one_line,
    passes,
)
from agent_core.gateway.protocol import (
    AssistantMessage,
    Completed,
    Message,
    ModelRequest,
    StopReason,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from agent_core.models.entries import Model, ModelEntry

if TYPE_CHECKING:
    from tensorzero import AsyncTensorZeroGateway

_FUNCTION: Final = "assistant"

_CLOSE_S: Final = 0.05
"""After ``close`` its threads end on their own; an interpreter that exits earlier crashes at times."""

_TYPES: Final = {
    "openai": "openai",
    "ollama": "openai",
    "anthropic": "anthropic",
    "google": "google_ai_studio_gemini",
}
_PASSING: Final = re.compile(r"EOF|SSE|decod|reset|parsing chunk|before first chunk")
"""Words of failures that are neither a status, nor a server that is not there or too slow."""

_STOPS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "stop_sequence": "end",
    "tool_call": "tools",
    "length": "length",
    "content_filter": "filter",
}


@asynccontextmanager
async def open_tensorzero(models: tuple[Model, ...]) -> AsyncIterator[Backend]:
    """Build the embedded gateway for these models and close it again."""
    # Its logs go to standard output, which belongs to the command that runs.
    os.environ.setdefault("RUST_LOG", "off")
    from tensorzero import AsyncTensorZeroGateway  # 119 MB that many commands never need

    with tempfile.TemporaryDirectory(prefix="strawberry-") as folder:
        file = Path(folder) / "tensorzero.toml"
        file.write_text(render([model.entry for model in models]), "utf-8")
        # An awaited build crashes the interpreter at its exit; this one takes 30 ms.
        client = AsyncTensorZeroGateway.build_embedded(config_file=str(file), async_setup=False)
    assert isinstance(client, AsyncTensorZeroGateway)
    try:
        yield TensorZeroBackend(client, models)
    finally:
        await client.close()
        await asyncio.sleep(_CLOSE_S)


def render(entries: Sequence[ModelEntry]) -> str:
    """Write the configuration for these entries: the first is asked first, the others follow.

    Keys are not in it: they go along with each call.
    """
    blocks = ["[gateway]\nobservability.enabled = false\ndisable_pseudonymous_usage_analytics = true\n"]
    variants = [_variant(number) for number in range(len(entries))]
    for variant, entry in zip(variants, entries, strict=True):
        blocks.append(_model(variant, entry))
    blocks.append(
        f'[functions.{_FUNCTION}]\ntype = "chat"\n'
        f"[functions.{_FUNCTION}.experimentation]\n"
        'type = "static"\n'
        f"candidate_variants = {json.dumps(variants[:1])}\n"
        f"fallback_variants = {json.dumps(variants[1:])}\n"
    )
    for variant, entry in zip(variants, entries, strict=True):
        blocks.append(
            f"[functions.{_FUNCTION}.variants.{variant}]\n"
            'type = "chat_completion"\n'
            f'model = "{variant}"\n'
            f"max_tokens = {entry.max_output_tokens}\n"
            # Its own retries cost seconds before the next model is asked.
            "retries = { num_retries = 0, max_delay_s = 1 }\n"
        )
    return "\n".join(blocks)


def _variant(number: int) -> str:
    return f"model_{number}"


def _model(variant: str, entry: ModelEntry) -> str:
    total_ms, first_ms = int(entry.timeout_s * 1000), int(min(entry.first_token_s, entry.timeout_s) * 1000)
    lines = [
        f"[models.{variant}]",
        'routing = ["provider"]',
        f"[models.{variant}.providers.provider]",
        f'type = "{_TYPES[entry.provider]}"',
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
        self._models = models
        self._variants = {model.entry.name: _variant(number) for number, model in enumerate(models)}
        self._by_name = {model.entry.name: model for model in models}
        self._names = {variant: name for name, variant in self._variants.items()}

    async def ask(self, request: ModelRequest, models: tuple[Model, ...]) -> AsyncGenerator[Piece, None]:
        """See ``fallback.Backend.ask``; for all models TensorZero itself falls back."""
        if models == self._models:
            async for piece in self._call(request, models, None):
                yield piece
            return
        failures: tuple[Failure, ...] = ()
        for model in models:
            async for piece in self._call(request, (model,), self._variants[model.entry.name]):
                if isinstance(piece, AllFailed):
                    failures += piece.failures
                elif isinstance(piece, Began):
                    yield Began(piece.model, failures)
                else:
                    yield piece
                    if isinstance(piece, Completed | BrokeOff):
                        return
        yield AllFailed(failures)

    async def _call(
        self, request: ModelRequest, models: tuple[Model, ...], variant: str | None
    ) -> AsyncGenerator[Piece, None]:
        from tensorzero import TextChunk, ToolCallChunk
        from tensorzero.types import BaseTensorZeroError

        answering = ""
        collected, stop, usage = CallCollector(), "", (0, 0)
        try:
            stream: Any = await self._client.inference(
                function_name=_FUNCTION,
                variant_name=variant,
                input={"system": request.system, "messages": _messages(request.messages)},
                stream=True,
                # What those said that were asked before comes back in the first chunk.
                include_raw_response=len(models) > 1,
                additional_tools=[_tool(tool) for tool in request.tools] or None,
                credentials={
                    self._variants[model.entry.name]: model.key.get_secret_value()
                    for model in models
                    if model.key is not None
                },
            )
            async for chunk in stream:
                if not answering:
                    answering = self._names[chunk.variant_name]
                    bodies = [entry.data for entry in chunk.raw_response or ()]
                    yield Began(answering, self._skipped(answering, models, bodies))
                for content in chunk.content:
                    if isinstance(content, TextChunk) and content.text:
                        yield TextPart(content.text)
                    elif isinstance(content, ToolCallChunk):
                        collected.add(content.id, content.raw_name, content.raw_arguments)
                if chunk.usage is not None:
                    usage = (chunk.usage.input_tokens or 0, chunk.usage.output_tokens or 0)
                if chunk.finish_reason is not None:
                    stop = chunk.finish_reason.value
        except BaseTensorZeroError as error:
            if answering:
                said = one_line(_plain(_plain_json(str(error)), self._by_name[answering].entry), models)
                yield BrokeOff(Failure(answering, said, passing=True))
            else:
                yield AllFailed(self._failures(str(error), models))
            return
        if not answering:
            yield AllFailed((Failure(models[0].entry.name, "its answer was empty"),))
            return
        for call in collected.calls():
            yield call
        yield Completed(answering, *usage, stop=_STOPS.get(stop, "unknown"))

    def _skipped(
        self, answering: str, models: tuple[Model, ...], bodies: Sequence[str]
    ) -> tuple[Failure, ...]:
        """Say why those before the one that answers did not.

        TensorZero hands on the bodies of refusals, and nothing of a server that is not there or too slow;
        so whose a body is can only be told where all of them have one.
        """
        skipped = list(itertools.takewhile(lambda model: model.entry.name != answering, models))
        if len(bodies) != len(skipped):
            return tuple(Failure(model.entry.name, "gave no answer", passing=True) for model in skipped)
        return tuple(
            Failure(model.entry.name, one_line(_plain(body, model.entry), models), passing=True)
            for model, body in zip(skipped, bodies, strict=True)
        )

    def _failures(self, text: str, models: tuple[Model, ...]) -> tuple[Failure, ...]:
        said = _plain_json(text)
        found = list(re.finditer(r"(?:^|\n|: )(model_\d+): ", said))
        by_name: dict[str, str] = {}
        for place, match in enumerate(found):
            end = found[place + 1].start() if place + 1 < len(found) else len(said)
            by_name.setdefault(self._names.get(match[1], ""), said[match.end() : end])
        return tuple(
            _failure(
                model, by_name.get(model.entry.name, said if len(models) == 1 else "gave no answer"), models
            )
            for model in models
        )


def _failure(model: Model, said: str, models: tuple[Model, ...]) -> Failure:
    status = re.search(r"status code: (\d{3})", said)
    # A stream that ended in the middle may come whole the next time; a server that is not there,
    # or one that let the time run out, will not.
    passing = passes(int(status[1])) if status else bool(_PASSING.search(said))
    return Failure(model.entry.name, one_line(_plain(said, model.entry), models), passing=passing)


def _plain_json(text: str) -> str:
    start = text.find("{")
    try:
        data = json.loads(text[start:])
    except ValueError:
        return text
    return str(data.get("error", text))


def _plain(said: str, entry: ModelEntry) -> str:
    """Say in our words what TensorZero says in those of its inner parts."""
    timeout = re.search(r"timeout \((\d+)ms\)", said)
    if timeout:
        return f"no answer within {int(timeout[1]) / 1000:g} s"
    if "(Connect)" in said:
        return f"nothing answers at {entry.address or entry.provider}"
    if "caused by: " in said:
        return f"the connection broke: {said.rpartition('caused by: ')[2]}"
    said = said.replace("All model providers failed to infer with errors: provider: ", "")
    said = re.sub(r"^.*?rror from \w+ (?:server|client): ", "", said, flags=re.DOTALL)
    return re.sub(r"^Invalid status code: ", "status ", said)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _messages(messages: Sequence[Message]) -> list[Any]:
    """TensorZero knows users and assistants only; tool results are blocks in a user's message."""
    made: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case UserMessage(text):
                role, blocks = "user", [{"type": "text", "text": text}]
            case AssistantMessage(text, calls):
                role, blocks = "assistant", [{"type": "text", "text": text}] if text else []
                blocks += [_call_block(call) for call in calls]
            case ToolMessage(id_, name, text):
                role, blocks = "user", [{"type": "tool_result", "id": id_, "name": name, "result": text}]
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        else:
            made.append({"role": role, "content": blocks})
    return made


def _call_block(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.raw}
