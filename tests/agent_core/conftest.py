from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from agent_core.gateway.fallback import RetryPolicy
from agent_core.gateway.opening import open_gateway
from agent_core.gateway.protocol import Gateway
from agent_core.models.entries import GatewayKind, ModelEntry, choose
from tests.model_server import Script, ScriptedModel, only_local_models
from tests.model_server.ollama import FakeOllama

OpenGateway = Callable[..., AbstractAsyncContextManager[Gateway]]


@pytest.fixture(autouse=True)
def no_real_models() -> Iterator[None]:
    with only_local_models():
        yield


@pytest.fixture(params=["tensorzero", "direct"])
def kind(request: pytest.FixtureRequest) -> GatewayKind:
    return request.param


def entry_for(server: ScriptedModel, **fields: object) -> ModelEntry:
    return ModelEntry.model_validate(
        {"name": server.name, "provider": "openai", "model": "m", "base_url": server.base_url, **fields}
    )


@pytest.fixture
def gateway_to(kind: GatewayKind) -> OpenGateway:
    """Opens a gateway of each kind to these servers, in their order; the first may have fields of its own."""

    @asynccontextmanager
    async def opened(
        *servers: ScriptedModel,
        keys: dict[str, str] | None = None,
        retries: int = 0,
        first: Mapping[str, object] | None = None,
        **fields: object,
    ) -> AsyncIterator[Gateway]:
        own = [first or {}, *[{}] * (len(servers) - 1)]
        entries = tuple(
            entry_for(server, **fields, **more) for server, more in zip(servers, own, strict=True)
        )
        models = choose(entries, keys or {}, home=Path("/home/of/it"))
        async with open_gateway(
            models, kind=kind, retry=RetryPolicy(retries=retries, pause_s=0.01)
        ) as gateway:
            yield gateway

    return opened


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedModel]]:
    """Starts scripted servers and stops them at the end."""
    started: list[ScriptedModel] = []

    def start(script: Script, **options: object) -> ScriptedModel:
        server = ScriptedModel(script, **options)  # type: ignore[arg-type]
        started.append(server.__enter__())
        return server

    yield start
    for server in started:
        with suppress(OSError):
            server.__exit__(None, None, None)


@pytest.fixture
def ollama_with() -> Iterator[Callable[..., FakeOllama]]:
    """Starts fake Ollamas and stops them at the end."""
    with ExitStack() as stack:
        yield lambda script=(), **options: stack.enter_context(FakeOllama(script, **options))
