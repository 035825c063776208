"""Parts of uvicorn that `chat.http` overrides or uses: it fails where an update changes them."""

import inspect

import pytest
from uvicorn import Config
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

METHODS = [
    (HttpToolsProtocol, "connection_made", ["transport"]),
    (HttpToolsProtocol, "connection_lost", ["exc"]),
    (HttpToolsProtocol, "data_received", ["data"]),
    (HttpToolsProtocol, "on_message_begin", []),
    (HttpToolsProtocol, "on_header", ["name", "value"]),
    (HttpToolsProtocol, "on_headers_complete", []),
    (HttpToolsProtocol, "on_body", ["body"]),
    (HttpToolsProtocol, "on_message_complete", []),
    (HttpToolsProtocol, "send_400_response", ["msg"]),
    (HttpToolsProtocol, "handle_websocket_upgrade", []),
    (HttpToolsProtocol, "_should_upgrade_to_ws", []),
    (HttpToolsProtocol, "shutdown", []),
    (WebSocketsSansIOProtocol, "connection_made", ["transport"]),
    (WebSocketsSansIOProtocol, "connection_lost", ["exc"]),
    (WebSocketsSansIOProtocol, "data_received", ["data"]),
    (WebSocketsSansIOProtocol, "handle_events", []),
    (WebSocketsSansIOProtocol, "send", ["message"]),
]


@pytest.mark.parametrize(("protocol", "method", "parameters"), METHODS)
def test_a_method_takes_what_it_took(protocol: type, method: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(protocol, method)).parameters) == ["self", *parameters]


async def test_protocols_keep_their_state_where_they_did() -> None:
    config = Config(lambda: None, lifespan="off", log_config=None)
    config.load()
    http, sockets = (
        HttpToolsProtocol(config, ServerState(), {}),
        WebSocketsSansIOProtocol(config, ServerState(), {}),
    )
    used = {"cycle", "flow", "headers", "loop", "timeout_keep_alive_task", "transport", "ws_protocol_class"}
    assert used <= set(vars(http))
    assert {"conn", "handshake_complete", "loop", "transport", "writable"} <= set(vars(sockets))
    assert {"connections", "tasks"} <= set(vars(ServerState()))
    written = inspect.getsource(httptools_impl.RequestResponseCycle.__init__)
    used = {"chunked_encoding", "expected_content_length", "keep_alive", "more_body", "response_complete"}
    assert all(f"self.{name}" in written for name in (*used, "response_started"))
    assert "self.write_paused" in inspect.getsource(FlowControl.__init__)
    assert issubclass(ClientDisconnected, OSError)
