"""Private parts of paho that `bus.link.client` replaces or uses: it fails where an update changes them."""

import inspect

import pytest
from paho.mqtt.client import Client, time_func
from paho.mqtt.enums import CallbackAPIVersion

from bus.link.client import stop_loop

METHODS = {
    "loop_read": ["max_packets"],
    "_create_socket": [],
    "_handle_pubackcomp": ["cmd"],
    "_handle_publish": [],
    "_loop_rc_handle": ["rc"],
    "_mid_generate": [],
    "_packet_handle": [],
    "_packet_queue": ["command", "packet", "mid", "qos", "info"],
    "_packet_write": [],
    "_reset_sockets": ["sockpair_only"],
    "_send_puback": ["mid"],
    "_sock_recv": ["bufsize"],
    "_ssl_wrap_socket": ["tcp_sock"],
}
ATTRIBUTES = (
    *("_connect_timeout", "_host", "_in_packet", "_last_bytes_received", "_msgtime_mutex", "_out_packet"),
    *("_protocol", "_sock", "_ssl_context", "_userdata"),
)


@pytest.mark.parametrize(("method", "parameters"), METHODS.items())
def test_a_method_takes_what_it_took(method: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(Client, method)).parameters) == ["self", *parameters]


def test_a_client_keeps_its_packets_and_its_socket_where_it_did() -> None:
    client = Client(CallbackAPIVersion.VERSION2)
    try:
        assert set(ATTRIBUTES) <= set(vars(client))
        assert {"command", "packet", "remaining_length"} <= set(client._in_packet)
        assert time_func() > 0
        client._packet_queue(0x30, b"x", 1, 1)
        assert {"command", "mid", "qos", "pos", "to_process", "packet", "info"} == set(client._out_packet[0])
    finally:
        stop_loop(client)
