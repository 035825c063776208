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
