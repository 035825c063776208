"""The spans of turns, sent to an OpenTelemetry collector over OTLP/HTTP.

What ran, when and how long is sent; what people, models and devices said is not.
"""

import asyncio
import importlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Any, Final

from agent_core.skills.running.execution import in_thread
from chat.tasks import supervise
from chat.turns import Turn
from contracts import own_version
from contracts.tracing.trace import TurnSpan
from hub_agent.chat.traces import plain_detail
from hub_server import limits

_log = logging.getLogger(__name__)

_MS: Final = 1_000_000


_Ended = tuple[Turn, int]
"""A turn, and when it ended, in nanoseconds since 1970."""


class TraceExport:
    """Sends the spans of turns.

    Args:
        endpoint: Of the collector, without ``/v1/traces``.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._waiting: asyncio.Queue[_Ended] = asyncio.Queue(limits.TRACES_WAITING)
        self._provider: Any = None
        self._trace_id = 0

    def note(self, turn: Turn) -> None:
        # Dropped where too many wait.
        with suppress(asyncio.QueueFull):
            self._waiting.put_nowait((turn, time.time_ns()))

    async def run(self) -> None:
        """Send what waits, until cancelled."""
        if find_spec("opentelemetry.exporter") is None or find_spec("opentelemetry.sdk") is None:
            _log.warning("OTEL_EXPORTER_OTLP_ENDPOINT: install it: pip install 'strawberry-home[otel]'")
            return
        while True:
            turn, end = await self._waiting.get()
            try:
                await asyncio.to_thread(self._send, turn, end)
            except Exception:  # noqa: BLE001  what the libraries fail with must not end the hub
                _log.exception("the trace of a turn was not sent")

    async def close(self) -> None:
        """Send what is left, as far as the collector takes it at once."""
        if self._provider is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.TRACES_END_S):
                    await in_thread(self._provider.shutdown, name="traces")

    def _send(self, turn: Turn, end: int) -> None:
        trace: Any = importlib.import_module("opentelemetry.trace")
        if self._provider is None:
            self._provider = self._opened()
        tracer = self._provider.get_tracer("strawberry", own_version())
        self._trace_id = _trace_id(turn.id)
        start, spans = end - round(turn.trace.seconds * 1_000 * _MS), turn.trace.spans()
        about = {
            "strawberry.turn": turn.id,
            "strawberry.mode": turn.mode or "none",
            "strawberry.outcome": turn.outcome or "stopped",
        }
        nothing_above: Any = importlib.import_module("opentelemetry.context").Context()
        root = tracer.start_span("turn", context=nothing_above, start_time=start, attributes=about)
        made: list[Any] = []
        for each in spans:
            above = root if each.parent is None else made[each.parent]
            one = tracer.start_span(
                f"{each.kind} {each.name}",
                context=trace.set_span_in_context(above),
                start_time=start + round(each.start_ms * _MS),
                attributes=_attributes(each),
            )
            if each.outcome == "failed":
                one.set_status(trace.StatusCode.ERROR)
            made.append(one)
        for each, one in zip(spans, made, strict=True):
            one.end(start + round((each.start_ms + each.ms) * _MS))
        if turn.outcome == "failed":
            root.set_status(trace.StatusCode.ERROR)
        root.end(end)

    def _opened(self) -> Any:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        batches: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        ids: Any = importlib.import_module("opentelemetry.sdk.trace.id_generator")
        resources: Any = importlib.import_module("opentelemetry.sdk.resources")
        exporter: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        generator = ids.RandomIdGenerator()
        # A person finds the trace of a turn by the id of the turn.
        generator.generate_trace_id = lambda: self._trace_id
        resource = {"service.name": "strawberry-hub", "service.version": own_version()}
        provider = sdk.TracerProvider(
            id_generator=generator, resource=resources.Resource.create(resource), shutdown_on_exit=False
        )
        sender = exporter.OTLPSpanExporter(
            f"{self._endpoint.rstrip('/')}/v1/traces", timeout=limits.TRACES_SEND_S
        )
        provider.add_span_processor(
            batches.BatchSpanProcessor(sender, schedule_delay_millis=limits.TRACES_DELAY_MS)
        )
        return provider


@asynccontextmanager
async def open_traces(endpoint: str, *, tasks: asyncio.TaskGroup) -> AsyncIterator[Callable[[Turn], None]]:
    """Send traces within the block; yield what is called with each turn that has ended."""
    export = TraceExport(endpoint)
    task = supervise(tasks, export.run, name="traces")
    try:
        yield export.note
    finally:
        task.cancel()
        await export.close()


def _attributes(span: TurnSpan) -> dict[str, str | int | float]:
    made: dict[str, str | int | float] = {"strawberry.kind": span.kind, "strawberry.outcome": span.outcome}
    if span.device is not None:
        made["strawberry.device"] = span.device
    return made | {
        f"strawberry.{name}": value
        for name, value in plain_detail(span).model_dump().items()
        if isinstance(value, str | int | float)
    }


def _trace_id(turn: str) -> int:
    """Return the id of a turn as that of a trace; a client may have chosen one that is no UUID."""
    try:
        return uuid.UUID(turn).int or 1
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, turn).int
