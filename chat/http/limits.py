"""Limits of bodies and frames: how much of one is read, before anything else is done with it.

Pydantic takes up to 7 µs for a value, and as long again for each mistake. So a body of 1 MiB with 330,000
values took 1 s of the event loop where it needed no token, and 4 s in a chat.
"""

import math
from typing import Final, NamedTuple

from contracts.errors import InvalidMessage

MAX_SOCKET_MESSAGE: Final = 1024 * 1024
"""Bytes of one message of a client over a WebSocket."""
SOCKET_FRAMES: Final = 1_000
"""Frames of one WebSocket at once, those of control and pieces of messages too: each takes 7 µs to parse, and
one read of a socket has up to 43,000."""
SOCKET_FRAMES_PER_S: Final = 100
"""Frames in the long run, as many as requests."""


class Budget(NamedTuple):
    """What a body or frame may have.

    Attributes:
        values: Of JSON: members of objects, items of lists, and the objects and lists themselves. So it
            bounds the keys of an object and the length of a list, too.
        size: Bytes; by default as many as the server takes.
    """

    values: int
    size: float = math.inf

    def check(self, body: bytes) -> None:
        """Check the number of values, as far as valid JSON has them.

        Raises:
            InvalidMessage: If there are too many.
        """
        if _values(body) <= self.values:
            return
        # Most of them may be punctuation of texts. What contains NUL is no UTF-8, which some parsers take.
        plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
        if b"\0" not in body and plain.count(b'"') <= 4 * self.values:
            plain = b"".join(plain.split(b'"')[::2])
        if _values(plain) > self.values:
            raise InvalidMessage(
                f"the body has more than {self.values:,} values",
                hint="Send fewer list items and object members at once.",
            )


WITH_TOKEN: Final = Budget(10_000)
"""A conversation of 3,000 messages that a client sends along, or 100 tools with long schemas, have fewer. A
hundred pushed turns have 6,500 at most."""
WITHOUT_TOKEN: Final = Budget(200, 16 * 1024)
"""Names, a password, a public key or a code."""


def _values(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


# What a request may hold, and what an answer and an error list.

MAX_EVENT_BYTES: Final = 1024 * 1024
"""Bytes of events in an answer that is no stream."""
MAX_NOTES: Final = 4_000
"""Characters of a client's own instructions that the model is shown."""
MAX_CALLS: Final = 100
"""Tool calls of one message; as many as a step of a request may have."""
MOST_MISTAKES: Final = 20
"""Mistakes of a request that its error lists."""
MOST_NAMES_HINTED: Final = 6
"""Names of fields that a hint lists; the rest are in the OpenAPI document."""
MAX_DEVICE: Final = 64

# What a connection waits for.

REFUSAL_PAUSE_S: Final = 0.25
"""Before a refusal for too many requests: a client that goes on at once made 270 a second, 0.5 ms each."""
ANSWER_SLICE_S: Final = 0.004
"""How long one answer may keep the event loop at a stretch."""
SERVER_LOOK_S: Final = 0.01
"""Between two looks whether the tasks of a server have ended; in its own server uvicorn looks each 0.1 s."""
FRAMES_PIECE_BYTES: Final = 1024
"""Bytes after which frames are counted: up to 170 of them."""
CLIENT_WATCH_S: Final = 0.05
"""Answers that come sooner need no task that looks whether the client has left."""
