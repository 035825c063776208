"""Parts of NiceGUI and its sockets that `hub_web.sockets` uses: it fails where an update changes them."""

import importlib
import inspect

import pytest
from nicegui import Client, core
from nicegui.page import page

from hub_web.sockets import _delete

HANDLERS = {
    "event": ["_", "msg"],
    "javascript_response": ["_", "msg"],
    "ack": ["_", "msg"],
    "log": ["_", "msg"],
    "handshake": ["sid", "data"],
    "connect": ["sid", "data", "_"],
}


@pytest.mark.parametrize(("message", "parameters"), HANDLERS.items())
def test_a_handler_of_messages_takes_what_it_took(message: str, parameters: list[str]) -> None:
    assert message in core.sio.handlers["/"]
    # Those of the server may have been replaced by another test.
    handler = getattr(importlib.import_module("nicegui.nicegui"), f"_on_{message}")
    assert list(inspect.signature(handler).parameters) == parameters


def test_pages_and_sockets_keep_their_state_where_they_did() -> None:
    assert isinstance(core.app._exception_handlers, list)
    socket_server = core.sio.eio
    used = {"max_http_buffer_size", "ping_interval", "ping_timeout", "sockets", "start_service_task"}
    assert used <= set(vars(socket_server))
    kind = importlib.import_module("engineio.async_socket").AsyncSocket
    assert {"closed", "closing", "queue"} <= set(vars(kind(socket_server, "sid")))
    assert list(inspect.signature(kind.close).parameters) == ["self", "wait", "abort", "reason"]
    assert callable(kind.check_ping_timeout)


async def test_a_page_is_deleted_with_what_would_delete_it_later() -> None:
    client = Client(page("/"), request=None)
    assert client._delete_tasks == {}
    _delete(client)
    assert client.id not in Client.instances
