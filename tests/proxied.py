"""The request on a connection to a hub that a test holds, cuts or counts."""

import asyncio
from urllib.parse import SplitResult

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hub: SplitResult
) -> tuple[bytes, Streams | None]:
    """Read a request of a spoke; the hub's proof, which a spoke wants first, is passed on without notice.

    Returns:
        The request, and the connection to the hub where it is open already.
    """
    request = await _message(reader)
    if b"?challenge=" not in request.partition(b"\r\n")[0]:
        return request, None
    streams = await asyncio.open_connection(hub.hostname, hub.port)
    try:
        streams[1].write(request)
        writer.write(await _message(streams[0]))
        return await _message(reader), streams
    except BaseException:
        streams[1].transport.abort()
        raise


async def forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, most: int | None = None
) -> None:
    """Pass on what comes, to its end or so many chunks: the first one is the answer to the handshake."""
    passed = 0
    while (chunk := await reader.read(65_536)) and passed != most:
        passed += 1
        writer.write(chunk)
        await writer.drain()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read a whole message, whose body has a Content-Length or is none."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + await reader.readexactly(int(lengths[0].partition(b":")[2]) if lengths else 0)
