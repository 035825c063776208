"""Limits of the hub's server: what sockets, MCP servers and clients, logs and uploads may take."""

from typing import Final

# The server.

ADVERTISING_STOP_S: Final = 2.0
"""How long taking it back may take; what is not taken back is forgotten by itself."""
TIDY_S: Final = 600
"""How often old records are deleted; what is too much by then goes in batches."""
LOG_STREAMS: Final = 8
RESTART_S: Final = 0.5
"""How long the hub waits before it restarts for a restore: its client has the answer by then."""
MAX_UPLOADED_BYTES: Final = 4 * 1024**3
"""Bytes of a backup that is uploaded: ten years of conversations are a few hundred megabytes."""
LOG_LINES_KEPT: Final = 2_000
LOG_BYTES_KEPT: Final = 2 * 1024 * 1024
MAX_LOG_LINE: Final = 8_000
"""Characters of one line; a traceback is shorter."""
PASSWORD_ENTERED_S: Final = 5 * 60.0

# Sockets of chats.

SOCKETS_PER_TOKEN: Final = 8
"""Sockets of one token at once, as with other streams."""
TURNS_FOLLOWED: Final = 32
"""Turns that one socket follows, and turns of one holder whose events are kept."""
GRACE_S: Final = 60.0
"""How long a turn goes on without its client, and its events are kept after its end: a phone changes from one
network to another in seconds."""
SOCKET_REFUSALS: Final = 300
"""Frames of one socket that are refused at once, and one a second, before it is closed: each costs 0.2 ms."""
MAX_FOLLOWED_BYTES: Final = 1024 * 1024
"""Bytes of events of one turn that are kept while a client follows it."""
MAX_KEPT_BYTES: Final = 256 * 1024
"""Bytes of them that are kept without one: the quotas let all tokens have some 300 turns in the grace time,
which makes 80 MB."""

# MCP: servers whose tools are used.

MCP_LOOK_S: Final = 2.0
MCP_START_S: Final = 30.0
MCP_CHECK_S: Final = 60.0
"""How often a server is asked for its tools: one that hangs is started again."""
MCP_CALL_S: Final = 120.0
MCP_RESTART_S: Final = (1.0, 300.0)
MAX_TOOLS: Final = 128
MAX_TOOL_DOC: Final = 2_000
MAX_TOOL_SCHEMA: Final = 16 * 1024
MAX_TOOL_ERROR: Final = 1_000
TOOL_TIMEOUT_MS: Final = 120_000

# MCP: clients of the hub.

SESSIONS_PER_TOKEN: Final = 8
MOST_SESSIONS: Final = 256
"""Sessions of one token, and of all: clients that were killed leave theirs behind for half an hour.
Of too many, the person loses one who has most."""
CALLS_WAITING: Final = 8
"""Calls of one token that may wait for an answer with no request of their client."""
MAX_RESOURCE_BYTES: Final = 1024 * 1024
"""Of a resource: a model reads no more."""

# Integrations and installed skills of devices.

INSTALLATION_MS: Final = 30_000
VERSION_MS: Final = 840_000
"""Of fetching a version of a skill, which may fetch packages."""
UPLOAD_PIECE: Final = 600_000
"""Bytes of a piece of an archive: in base64 it must fit into a call."""

# Metrics and traces.

MODELS_LABELLED: Final = 100
"""Names of models with a label of their own: those of settings, and of agents that have one of their own."""
TRACES_WAITING: Final = 100
TRACES_DELAY_MS: Final = 1_000
TRACES_SEND_S: Final = 5.0
TRACES_END_S: Final = 3.0
"""How long the end of the hub waits for a collector that does not answer."""

# Everyday sentences.

SENTENCES_AFTER_S: Final = 5.0
"""After the start, when the household's language is loaded: it takes a second of the processor and 10 MB."""

# Replicas.

REPLICA_CONNECT_S: Final = 2.0
REPLICA_LOOK_S: Final = 1.0
"""How often a request that another replica answers looks whether that one still runs."""
LEADER_WAIT_S: Final = 6.0
"""A request waits for a leader: another one leads after at most five seconds."""
LEADER_LOOK_S: Final = 0.2
REPLICA_LEAVE_S: Final = 20.0
"""How long a replica that is asked to stop lets its turns run; service managers end it after 30 s or more."""
REPLICA_RESTART_S: Final = 10.0
"""Between restarts of replicas for other settings: the one before serves again by then."""
REMOTE_PART_S: Final = 1.0
"""How long a prompt waits for what the leader adds to it: one that is stopped answers nothing."""
REMOTE_SKILLS_S: Final = 15.0
