"""Gateways opened: for one list of models, or for a list that may change while it is in use."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from agent_core.gateway.backend import Backend
from agent_core.gateway.fallback import FallbackGateway, RetryPolicy
from agent_core.gateway.ollama import open_ollama_backend
from agent_core.gateway.openai import open_direct
from agent_core.gateway.protocol import GatewayEvent, ModelRequest
from agent_core.gateway.tensorzero import has_tensorzero, open_tensorzero
from agent_core.lazy import Lazy
from agent_core.models.entries import GatewayKind, Models, ToolMode, left_out
from contracts.phrases import Phrase
from contracts.tracing.trace import span
from contracts.wire import Phrased, PhraseText


class ModelState(Phrased):
    """A model and whether it is ``ready`` or ``skipped``, why, and how many seconds that lasts yet."""

    name: str
    provider: str
    model: str
    tools: ToolMode
    state: Literal["ready", "skipped"]
    detail: PhraseText
    skipped_s: int


@asynccontextmanager
async def open_gateway(
    models: Models, *, kind: GatewayKind = "tensorzero", retry: RetryPolicy | None = None
) -> AsyncIterator[FallbackGateway]:
    """Open the gateway to these models.

    It opens without a model that can be asked, too; asking then raises ``NoModel``. Models of Ollama are
    asked over its own API, in either kind. Where TensorZero is not installed, models are asked directly.

    Args:
        models: As ``models.choose`` gives them.
        retry: What to do where no model answered at all.
    """
    if kind == "tensorzero" and not has_tensorzero():
        kind, needed = "direct", "Install it: pip install 'strawberry-home[tensorzero]'."
    else:
        needed = "Use the gateway tensorzero for it."
    if kind == "direct":
        models = _without_own_protocols(models, needed)
    native = tuple(model for model in models.usable if model.entry.is_native_ollama)
    others = tuple(model for model in models.usable if not model.entry.is_native_ollama)
    async with AsyncExitStack() as stack:
        backends: dict[str, Backend] = {}
        if native:
            ollama = await stack.enter_async_context(open_ollama_backend(native))
            backends |= {model.entry.name: ollama for model in native}
        if others:
            opened = open_direct() if kind == "direct" else open_tensorzero(others)
            backend = await stack.enter_async_context(opened)
            backends |= {model.entry.name: backend for model in others}
        yield FallbackGateway(backends, models, retry=retry or RetryPolicy())


class LiveGateway:
    """A ``Gateway`` that opens when it is first asked, and takes other models while it runs.

    As a context it closes what it opened.
    """

    def __init__(self, models: Models, *, kind: GatewayKind = "tensorzero") -> None:
        self._tasks = asyncio.TaskGroup()
        self._current = _Generation(models, kind, self._tasks)

    async def __aenter__(self) -> "LiveGateway":
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._current.gateway.close()
        await self._tasks.__aexit__(None, None, None)

    @property
    def models(self) -> Models:
        return self._current.models

    @property
    def kind(self) -> GatewayKind:
        return self._current.kind

    def reload(self, models: Models, *, kind: GatewayKind) -> bool:
        """Ask other models from the next question on; answers that have begun are completed.

        Returns:
            Whether they are others; the same models and kind leave everything as it is.
        """
        if (models, kind) == (self._current.models, self._current.kind):
            return False
        self._current.retire()
        self._current = _Generation(models, kind, self._tasks)
        return True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[GatewayEvent, None]:
        """Ask; see ``protocol.Gateway.stream``."""
        async with (
            self._current.used() as gateway,
            aclosing(gateway.stream(request)) as events,
        ):
            async for event in events:
                yield event

    def states(self) -> list[ModelState]:
        """Return each model in order, for people to read."""
        states: list[ModelState] = []
        gateway = self._current.gateway.opened  # one that was never used skips nothing
        for model in self.models.usable:
            entry = model.entry
            skip = gateway.breaker.skipped(entry.name) if gateway is not None else None
            states.append(
                ModelState(
                    name=entry.name,
                    provider=entry.provider,
                    model=entry.model,
                    tools=entry.tools,
                    state="skipped" if skip else "ready",
                    detail=skip[0] if skip else "",
                    skipped_s=round(skip[1]) if skip else 0,
                )
            )
        return states


@dataclass(frozen=True)
class ChosenModels:
    """A ``Gateway`` that asks only some of the models of another one.

    Attributes:
        names: Of their entries, in the order in which they are asked; empty for all.
    """

    gateway: LiveGateway
    names: tuple[str, ...] = ()

    @property
    def models(self) -> Models:
        return self.gateway.models.only(self.names)

    def stream(self, request: ModelRequest) -> AsyncGenerator[GatewayEvent, None]:
        return self.gateway.stream(replace(request, models=self.names))


class _Generation:
    """One list of models and the gateway to them, open from its first use until it is retired and idle."""

    def __init__(self, models: Models, kind: GatewayKind, tasks: asyncio.TaskGroup) -> None:
        self.models = models
        self.kind = kind
        self.gateway = Lazy(partial(open_gateway, models, kind=kind), tasks=tasks, name="gateway")
        self._users = 0
        self._retired = False

    @asynccontextmanager
    async def used(self) -> AsyncIterator[FallbackGateway]:
        """Yield the gateway, opened at its first use; it stays open meanwhile."""
        self._users += 1
        try:
            gateway = self.gateway.opened
            if gateway is None:
                with span("hub", "gateway"):
                    gateway = await self.gateway.get()
            yield gateway
        finally:
            self._users -= 1
            self._close_if_idle()

    def retire(self) -> None:
        """Close the gateway as soon as nothing uses it."""
        self._retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._retired and not self._users:
            self.gateway.close()


def _without_own_protocols(models: Models, hint: str) -> Models:
    foreign = [model for model in models.usable if not model.entry.address]
    if not foreign:
        return models
    return replace(
        models,
        usable=tuple(model for model in models.usable if model.entry.address),
        problems=(
            *models.problems,
            *(
                left_out(
                    model.entry.name, Phrase("{provider} needs TensorZero", provider=model.entry.provider)
                )
                for model in foreign
            ),
        ),
        hint=models.hint or hint,
    )
