"""Where a gateway comes from."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from agent_core.gateway.fallback import Backend, FallbackGateway, RetryPolicy
from agent_core.gateway.ollama import open_ollama_backend
from agent_core.gateway.openai import open_direct
from agent_core.gateway.protocol import Gateway
from agent_core.gateway.routes import Routes
from agent_core.gateway.tensorzero import open_tensorzero
from agent_core.models.entries import GatewayKind, Models


@asynccontextmanager
async def open_gateway(
    models: Models, *, kind: GatewayKind = "tensorzero", retry: RetryPolicy | None = None
) -> AsyncIterator[Gateway]:
    """Open the gateway to these models.

    With no model that can be asked it opens all the same; ``available`` is then false and asking
    raises ``NoModel``. Models of Ollama are asked over its own API, in either kind.

    Args:
        models: As ``models.choose`` gives them.
        retry: What to do where no model answered at all.
    """
    policy = retry or RetryPolicy()
    if kind == "direct":
        models = _without_own_protocols(models)
    native = tuple(model for model in models.usable if model.entry.is_native_ollama)
    others = tuple(model for model in models.usable if not model.entry.is_native_ollama)
    async with AsyncExitStack() as stack:
        ways: dict[str, Backend] = {}
        if native:
            ollama = await stack.enter_async_context(open_ollama_backend(native))
            ways |= {model.entry.name: ollama for model in native}
        if others:
            opened = open_direct if kind == "direct" else open_tensorzero
            backend = await stack.enter_async_context(opened(others))
            ways |= {model.entry.name: backend for model in others}
        yield FallbackGateway(Routes(lambda model: ways[model.entry.name]), models, retry=policy)


def _without_own_protocols(models: Models) -> Models:
    foreign = [model for model in models.usable if not model.entry.address]
    if not foreign:
        return models
    return replace(
        models,
        usable=tuple(model for model in models.usable if model.entry.address),
        problems=(
            *models.problems,
            *(f"{model.entry.name}: {model.entry.provider} needs TensorZero" for model in foreign),
        ),
        hint=models.hint or "Use the gateway tensorzero for it.",
    )
