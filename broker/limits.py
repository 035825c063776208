"""Limits of brokers: what clients may do, how long a broker may take, and what is sent to it at once."""

from typing import Final

# The embedded broker: what a client may do.

MAX_LEVELS: Final = 32
"""Levels of a topic or filter; ours have six. Matching costs time in proportion."""
MOST_FILTERS: Final = 250
"""Filters in one packet of a client that is not the hub: more than it may have, and a millisecond's work."""
MOST_UNACKNOWLEDGED: Final = 1_000
"""Retained messages a client may have unacknowledged before it gets more of them."""
FRAME_PIECE: Final = 4096
"""Bytes that are taken apart before others have their turn: frames can be so short that they hold 680."""
FRAMES_PER_S: Final = 10_000.0
"""Sustained rate of the frames of one connection; one that sends more is read more slowly. A frame takes
20 µs, and clients send one for each packet."""
CLOSE_S: Final = 1.0
"""Seconds a client has to take the last bytes before it is cut off."""
WATCH_S: Final = 1.0
"""Seconds between two looks for the silent and the expired: a keepalive of ours is 15 s."""
SAME_FAILURE_S: Final = 3600.0
"""Seconds in which the same failure of TLS or WebSocket of one host is logged once."""
REVOCATION_KEPT_S: Final = 2 * 366 * 86_400
"""Seconds a revocation is kept: no token lives for two years, so an older entry stops nothing."""
REVOCATIONS_AT_ONCE: Final = 2_000
"""Tokens and principals in one message: it then stays well below the broker's largest packet."""

# Brokers that are programs of their own: how long they may take.

BROKER_START_S: Final = 20.0
"""How long one may take until it listens; a full persistence file of a slow card is read before."""
BROKER_LOOK_S: Final = 0.02
BROKER_STOP_S: Final = 3.0
"""How long it may take to write its retained messages at the end."""
BROKER_RESTART_S: Final = (0.2, 15.0)
"""First and longest wait before it is started again."""
BROKER_HEALTHY_S: Final = 10.0
"""After this time the backoff begins again: it did not end for the same reason."""
BROKER_OPEN_FILES: Final = 8192
"""For three listeners with all the connections they may have. Many a system gives 1,024 to who does not ask.
A much higher number costs memory: libwebsockets keeps a table of as many entries."""
BROKER_LOG_LINES: Final = 20

# Mosquitto: what is sent to it at once.

MOSQUITTO_ANSWER_S: Final = 5.0
"""A person waits for it; the plugin answers within milliseconds."""
COMMAND_BYTES_AT_ONCE: Final = 200_000
"""Well below the packet size that a broker may set (1 MiB here): a larger packet ends the connection."""
COMMANDS_AT_ONCE: Final = 20
"""Commands in one message. The broker writes its file for each and serves no client meanwhile: 1 ms with
few clients, 20 ms with a thousand."""
LISTED_AT_ONCE: Final = 100
"""Clients or roles in one answer: some 3 kB each."""

# The probe of `strawberry broker check`.

CHECK_LIFETIME_S: Final = 120
"""Longer than the check takes; a login that a crash leaves behind expires after that."""
CHECK_BYTES: Final = 256 * 1024
"""The registration of a skill with a hundred methods."""
CHECK_SHOWN: Final = 5
"""Wrong rights that are listed; the others are counted."""

# NATS.

NATS_ANSWER_S: Final = 2.0
"""How long the servers may take to answer the hub; they take milliseconds."""
NATS_ASK_AGAIN_S: Final = 0.2
"""When they are asked again, and then after twice that time: a question is lost with the node that has it."""
NATS_LOGIN_S: Final = 5.0
"""How long a server waits for the hub's answer to a login; it takes milliseconds."""
NATS_RECONNECT_S: Final = 0.25
"""Wait before the hub tries a node again: no one can log in without it."""
NATS_TOLD_S: Final = 600
"""How long an error of a node, or of a connection to it, is not told again."""
NATS_RETRY_S: Final = (NATS_RECONNECT_S, 15.0)
"""The same, first and longest, after an unexpected error."""
NATS_LOST_S: Final = 10.0
"""A connection away for so long is opened again."""
NATS_CONNECTIONS: Final = 100_000
"""Connections that one node lists at once, more than it can have open: half a kilobyte each."""
NATS_STORE_BYTES: Final = 1 << 30
"""What a node may store, of which these are parts: one device filled it, and no one could log in any more."""
NATS_RETAINED_BYTES: Final = 256 << 20
"""Retained messages: 10,000 devices with twenty methods each have 140 MiB. To send all of them, a node takes
up to 1.3 GB of memory."""
NATS_PENDING_BYTES: Final = NATS_RETAINED_BYTES * 5 // 4
"""What may wait for a client: all that is retained comes at once. With 64 MiB, NATS's own, a hub that found
more was disconnected at each try."""
NATS_SUBSCRIPTIONS: Final = 40_000
"""Of one connection, each 2.3 kB of a node: a client without this bound fills its memory. NATS takes no other
number for the hub, whose thousand watchers have up to 32 topics each."""
NATS_REQUESTS: Final = 200_000
"""Requests that wait in a node: it asks itself for each retained message by one, and drops what is beyond."""
NATS_WRITE: Final = "2m"
"""How long a client may take to read what is retained."""
NATS_UNDELIVERED_BYTES: Final = 256 << 20
"""Messages for programs that subscribe with QoS 1; the oldest make room."""
NATS_SESSION_BYTES: Final = 64 << 20
"""Sessions, a hundred bytes and the filters of each; the oldest make room."""
NATS_STORE_LOOK_S: Final = 60.0
NATS_FULL_SHARE: Final = 0.8
"""From here on the log warns."""
NATS_REFUSALS: Final = (200, 20.0)
"""Refused logins of one address of another machine at once, and each second: as many as of requests over HTTP
without a token. Each takes half a millisecond of the hub."""
