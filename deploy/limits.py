"""Limits of commands and of the programs they start: what is waited for, kept, read and shown."""

from typing import Final

# The command line: what it waits for.

CANCEL_TIMEOUT_S: Final = 10.0
LOOKUP_TIMEOUT_S: Final = 2.0
FOUND_HEALTH_TIMEOUT_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 900.0
"""As long as the hub allows a turn to take."""
SILENCE_S: Final = 60.0
"""The hub sends a comment every 15 s; a connection that is silent for this long is lost."""
MAX_PROOF_BYTES: Final = 65_536
HEALTH_TIMEOUT_S: Final = 10.0
EVENTS_RETRY_S: Final = 2.0
PROOF_TIMEOUT_S: Final = 10.0
SKIPPED_MODELS_TIMEOUT_S: Final = 2.0
"""How long a hub or spoke may take to say which models it skips; the list comes without that."""
DOWNLOAD_RATE_S: Final = 5.0
"""A rate of a download over less jumps about, one over more lags behind."""
REVOKED_LOOK_S: Final = 0.5
"""How late a person may read that the hub revoked the spoke."""
SPOKE_START_LOOK_S: Final = 0.005
"""The same until the spoke is on the bus: its start is waited for."""
MODEL_LIST_TIMEOUT_S: Final = 5.0
VOICE_LOOK_S: Final = 0.2
MICROPHONE_SWITCHED_S: Final = 10.0
"""How long closing or opening a microphone may take; loading engines the first time takes seconds."""
PROGRESS_TICK_S: Final = 1.0

# The command line: what it shows.

EXCHANGES_REMINDED: Final = 3
"""Exchanges of an earlier conversation that are shown before it continues."""
MAX_ASKED_SHOWN: Final = 60
MAX_VALUE_SHOWN: Final = 200
"""Characters of a value that a person is shown; --json has the whole."""
EXACT_TIME_S: Final = 120.0
"""Shorter times are printed in seconds: their ends may be the same minute."""
MOST_MODELS_OFFERED: Final = 30
MAX_ARGUMENTS_SHOWN: Final = 1_000
"""So many fit on a small screen together with the question."""
NARROWEST_CELL: Final = 12
"""Columns of a terminal that a cell of several words is not wrapped below."""
METER_COLUMNS: Final = 40

# Backups: what an archive may contain.

BACKUP_LEFT_S: Final = 600.0
"""How old one is that a killed process has left; a new one may not be held yet."""
MOST_ARCHIVE_FILES: Final = 200_000
MAX_ARCHIVE_NAME: Final = 1_000
MAX_ARCHIVE_DEPTH: Final = 100
MAX_HEADER_BYTES: Final = 64 * 1024
"""Bytes that may describe one entry; Python's tarfile reads as many as a header says, all at once."""
MAX_CHECKED_BYTES: Final = 1024 * 1024
"""Bytes of a file that is read whole to be checked."""
FREE_DISK_BYTES: Final = 256 * 1024**2
"""What stays free on the disk, in bytes."""

# The doctor.

ROOM_MB: Final = 500
"""Pyodide, its memory image and a copy of the cache for each of five processes come to some 300 MB."""
ROOM_SPOKE_MB: Final = 50
SANDBOX_CHECK_S: Final = 60.0
SPOKE_CHECK_S: Final = 10.0
CALL_SKEW_S: Final = 5.0
"""What a call may be off; the spoke knows better only once the hub has told it the time."""
SHORTEST_SECRET: Final = 6
"""Shorter values would take ordinary words out of the logs."""
SUPPORT_LOG_LINES: Final = 2000
JOURNAL_TIMEOUT_S: Final = 20
MAX_SUPPORT_FILE_BYTES: Final = 1_000_000

# The home: its broker, its spoke and its event loop.

BROKER_LOOK_S: Final = 2.0
OPEN_FILES: Final = 4_096
"""For 2,000 clients and 500 more that log in. Many a system gives 1,024 to a process that does not ask."""
BROKER_RESTART_S: Final = (0.2, 15.0)
"""First and longest wait before the embedded broker is started again, as for Mosquitto."""
BROKER_STOP_S: Final = 5.0
"""How long the embedded broker may take to write its retained messages at the end."""
CERTIFICATE_LOOK_S: Final = 60.0
"""How often is looked for a certificate that nears its end, lacks a new name of this machine, or was renewed
by ``strawberry certs``."""
THREAD_SWITCH_S: Final = 0.001
"""How long the event loop waits for a thread that computes: with Python's 5 ms, 20 answers of another process
took 2.6 ms beside a busy database, with this 0.7 ms."""
SPOKE_RESTART_S: Final = (1.0, 60.0)
"""First and longest wait before it is started again after it ended."""
SPOKE_STOP_S: Final = 15.0
"""How long it may take to let its skills finish; its own grace is shorter."""
SPOKE_LOOK_S: Final = 0.02
SPOKE_FIRST_S: Final = 20.0
"""How long the start waits for the spoke; it may still come later."""
SKILLS_COMPLETE_S: Final = 10.0
"""How long the start waits for all skills; one that the hub refuses never comes."""
SPOKE_REVOKED_LOOK_S: Final = 2.0
"""How often a spoke that is revoked is looked for: once removed, it can join again."""
MODEL_FILES_LOOK_S: Final = 1.0
"""Two files are looked at in some microseconds; a person who ran setup does not notice a second."""
STUCK_TASKS_S: Final = 1.0
"""How long tasks may take to end that are left when all is closed; skills have had their own time."""
STUCK_THREADS_S: Final = 10.0
"""How long work in threads may take to end, such as the rest of a file; `up` gives its spoke 15 s."""
WATCH_TICK_S: Final = 5.0
HUNG_TICKS: Final = 6
"""Ticks of the watch without a turn of the event loop: 30 s. A process that was stopped, or a machine that
slept, adds one tick at most, however long that was."""
STARTING_TICKS: Final = 24
"""The same until a server is ready: a small machine may import for long."""
WAKING_BYTES: Final = 4_096
"""Bytes that woke the event loop, among which the number of a signal is looked for."""
STACK_FRAMES: Final = 12
HUNG_LOG_S: Final = 2.0
"""How long the log may take; the thread that hangs may hold its lock."""
HOST_LOCK_LOOK_S: Final = 0.05
HOST_LOCK_LOOKS: Final = 120
"""6 s: the embedded broker of a run that was killed may write for 5 s."""

# The log and the service.

MAX_RECORD: Final = 64 * 1024
"""Characters of one record, traceback included. Texts of devices are cut before they are searched."""
MAX_MESSAGE: Final = 4_000
STARTING_BEAT_S: Final = 10.0
"""How often a start that takes long asks for more time; only as long as the event loop turns."""
MORE_TIME_S: Final = 60.0
"""How much more it asks for: several beats, since one may be late on a small machine."""
BEATS_PER_WATCHDOG: Final = 3
"""Half the time is what systemd advises; a third forgives one late beat."""
SYSTEMCTL_TIMEOUT_S: Final = 90.0
"""`restart` waits for the end of the old process, which its unit gives 45 s."""
SERVICE_START_S: Final = 120
"""A first start fetches and builds the sandbox; it asks for more time by itself as long as it lives."""
SERVICE_RESTART_S: Final = 2
SERVICE_RESTART_MAX_S: Final = 60
NEXT_PORTS: Final = 10
"""Ports tried from the default on: after a restart the same one is found again."""
INSTALLATION_CHECK_S: Final = 15
