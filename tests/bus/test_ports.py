"""Sockets that listen."""

import asyncio
import logging
import socket
import sys
from contextlib import closing

import pytest

from bus.ports import accept, listen
from tests.spoke.home import wait_for


async def test_a_client_that_there_is_no_room_for_is_taken_when_there_is_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no such limit")
    import resource

    caplog.set_level(logging.ERROR, "bus.ports")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with closing(listen("127.0.0.1", 0, purpose="a test")) as listener:
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(accept(listener))
            with closing(socket.create_connection(listener.getsockname())) as client:
                # Whatever is open stays so, and nothing can be opened.
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
                try:
                    await wait_for(lambda: caplog.messages, "the refusal")
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                taken, address = await taking
                taken.close()
                assert address == client.getsockname()
    assert caplog.messages == ["cannot take a connection: Too many open files"]
