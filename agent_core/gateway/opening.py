"""Gateways opened: for one list of models, or for a list that may change while it is in use."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from agent_core.gateway.backend import Backend, open_http
from agent_core.gateway.fallback import FallbackGateway, RetryPolicy
from agent_core.gateway.ollama import OllamaBackend
from agent_core.gateway.openai import OpenAIBackend
from agent_core.gateway.protocol import GatewayEvent, ModelRequest
from agent_core.gateway.tensorzero import has_tensorzero, open_tensorzero
from agent_core.models.entries import GatewayKind, Models
from contracts.trace import span
from contracts.wire import Json

_log = logging.getLogger(__name__)


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
            ollama = OllamaBackend(await stack.enter_async_context(open_http()))
            backends |= {model.entry.name: ollama for model in native}
        if others and kind == "direct":
            direct = OpenAIBackend(await stack.enter_async_context(open_http()))
            backends |= {model.entry.name: direct for model in others}
        elif others:
            embedded = await stack.enter_async_context(open_tensorzero(others))
            backends |= {model.entry.name: embedded for model in others}
        yield FallbackGateway(backends, models, retry=retry or RetryPolicy())


class LiveGateway:
    """A ``Gateway`` that opens when it is first asked, and takes other models while it runs.

    As a context it closes what it opened.
    """

    def __init__(self, models: Models, *, kind: GatewayKind = "tensorzero") -> None:
        self._current = _Generation(models, kind)
        self._former: list[_Generation] = []

    async def __aenter__(self) -> "LiveGateway":
        return self

    async def __aexit__(self, *error: object) -> None:
        for generation in (*self._former, self._current):
            await generation.close()

    @property
    def models(self) -> Models:
        """The models that are asked now."""
        return self._current.models

    @property
    def kind(self) -> GatewayKind:
        """How they are asked."""
        return self._current.kind

    def reload(self, models: Models, *, kind: GatewayKind) -> bool:
        """Ask other models from the next question on; answers that have begun are completed.

        Returns:
            Whether they are others; the same models and kind leave everything as it is.
        """
        if (models, kind) == (self._current.models, self._current.kind):
            return False
        self._former.append(self._current)
        self._current = _Generation(models, kind)
        return True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[GatewayEvent, None]:
        """Ask; see ``protocol.Gateway.stream``."""
        current = self._current
        current.users += 1
        try:
            async with aclosing((await current.opened()).stream(request)) as events:
                async for event in events:
                    yield event
        finally:
            current.users -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        unused = [former for former in self._former if not former.users]
        self._former = [former for former in self._former if former.users]
        for former in unused:
            await former.close()

    def states(self) -> list[dict[str, Json]]:
        """Return name, provider, model, tool mode and state of each model, in order, for people to read.

        A state is ``ready`` or ``skipped``; the latter with its reason and the seconds that it lasts yet.
        """
        states: list[dict[str, Json]] = []
        for model in self.models.usable:
            entry = model.entry
            skip = self._current.gateway.skipped(entry.name) if self._current.gateway else None
            states.append(
                {
                    "name": entry.name,
                    "provider": entry.provider,
                    "model": entry.model,
                    "tools": entry.tools,
                    "state": "skipped" if skip else "ready",
                    "detail": skip[0] if skip else "",
                    "skipped_s": round(skip[1]) if skip else 0,
                }
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
        """Those of them that can be asked now."""
        return self.gateway.models.only(self.names)

    def stream(self, request: ModelRequest) -> AsyncGenerator[GatewayEvent, None]:
        """Ask; see ``protocol.Gateway.stream``."""
        return self.gateway.stream(replace(request, models=self.names))


class _Generation:
    """One list of models and the gateway to them, which opens at its first use.

    Attributes:
        gateway: None until then.
        users: How many questions are being answered.
    """

    def __init__(self, models: Models, kind: GatewayKind) -> None:
        self.models = models
        self.kind = kind
        self.gateway: FallbackGateway | None = None
        self.users = 0
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()

    async def opened(self) -> FallbackGateway:
        """Return the gateway; one that could not be opened is tried again by the next question."""
        async with self._opening:
            if self.gateway is None:
                with span("hub", "gateway"):
                    opening = open_gateway(self.models, kind=self.kind)
                    self.gateway = await self._stack.enter_async_context(opening)
        return self.gateway

    async def close(self) -> None:
        """Close the gateway."""
        try:
            await self._stack.aclose()
        except Exception:  # noqa: BLE001 - others are closed all the same
            _log.exception("the gateway could not be closed")


def _without_own_protocols(models: Models, hint: str) -> Models:
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
        hint=models.hint or hint,
    )
