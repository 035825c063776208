"""Traces of turns at an OpenTelemetry collector, which is a small receiver here."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.hub_agent.home import open_home
from tests.hub_agent.skills import LampSkill
from tests.model_server import Says, ScriptedModel, calls
from tests.ports import free_port


@pytest.fixture
def collector() -> Iterator[tuple[str, "queue.Queue[tuple[str, bytes]]"]]:
    taken: queue.Queue[tuple[str, bytes]] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.put((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", taken
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_turn_is_a_trace_with_its_spans_and_without_what_was_said(
    tmp_path: Path, model: ScriptedModel, sandbox_files: Path, collector: Any
) -> None:
    endpoint, taken = collector
    model.script = [
        calls("python_exec", code="devices.bedroom_pc.LampSkill.turn_on(level=37)"),
        Says(text="It is private.", input_tokens=5, output_tokens=2),
    ]
    async with open_home(
        tmp_path / "home", model_url=model.base_url, sandbox=sandbox_files, otlp_endpoint=endpoint
    ) as home:
        await home.device("Bedroom PC", LampSkill())
        async with home.client() as http:
            turn = (await http.post("/api/chat", json={"message": "make it cosy"})).json()["turn"]
        path, body = await asyncio.to_thread(taken.get, timeout=60)
    assert path == "/v1/traces"
    request = ExportTraceServiceRequest.FromString(body)
    (resource,) = request.resource_spans
    assert ("service.name", "strawberry-hub") in [
        (each.key, each.value.string_value) for each in resource.resource.attributes
    ]
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert {span.trace_id.hex() for span in spans.values()} == {turn.replace("-", "")}
    skill, root = spans["skill devices.bedroom_pc.LampSkill.turn_on"], spans["turn"]
    assert not root.parent_span_id
    by_id = {span.span_id: span for span in spans.values()}
    above = by_id[skill.parent_span_id]
    assert above.name.startswith("sandbox ")
    assert root.start_time_unix_nano <= above.start_time_unix_nano <= skill.start_time_unix_nano
    assert skill.end_time_unix_nano <= root.end_time_unix_nano
    assert not [word for word in (b"private", b"cosy", b"37 percent") if word in body]


async def test_a_collector_that_is_away_holds_up_neither_turns_nor_the_end(tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    async with open_home(tmp_path / "home", otlp_endpoint=endpoint) as home:
        await home.device("Bedroom PC", LampSkill())
        async with home.client() as http:
            answer = await http.post("/api/chat", json={"message": "turn on the lamp"})
        assert answer.status_code == 200
