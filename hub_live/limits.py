"""Limits of the live home: what bounds its memory, its costs and its notifications."""

from typing import Final

# Watchers: how many, and what one may see and do.

MOST_WATCHERS: Final = 1_000
"""Of a home."""
MOST_WATCHERS_OF_ONE: Final = 300
"""Of one person."""
MOST_TOPICS: Final = 32
"""Topics of one watcher: each is a subscription, and the model sees a value of each."""
MOST_CALLS: Final = 16
"""Approved calls of a watcher, and calls of one decision."""
LEAST_ASK_S: Final = 10.0
"""Between two calls of a method that a watcher asks: each wakes a device, and is in the audit log."""
ASKS_AT_ONCE: Final = 16
"""Methods that are asked at the same time, of all watchers."""
MOST_ASKED: Final = 16 * 1024
"""Bytes of an answer: a watcher compares numbers and words."""
MOST_SENTENCE: Final = 300
"""Characters of a sentence that a watcher is made of; patterns look at no longer one."""
MOST_PROPOSALS: Final = 100
"""Proposals that wait for a yes."""
PLANNED_VALUES: Final = 40
PLANNED_CALLS: Final = 12
"""Values and methods that a model sees which makes a watcher of a sentence: some 2,000 tokens."""
NEAREST_SHAPES: Final = 3
RULE_ACTIONS: Final = 360
"""Calls of a watcher without a model in an hour, where it names no other number: a light at each motion."""
RULE_RUNS: Final = (30, 1.0)
"""How often a watcher without a model does its steps at once, and each second: it is recorded each time."""
MOST_TEXT_VALUE: Final = 200
"""Characters of a value in a text."""
NOTES: Final = (5, 1 / 60)
"""Notifications of one watcher at once, and each second: half of what a phone gets."""

# Watchers: when a model is asked. It costs money or heat.

TICK_S: Final = 1.0
"""How often watchers are looked at, for what time alone changes."""
LEAST_EVERY_S: Final = 1.0
DEFAULT_EVERY_S: Final = 300.0
"""Interval of a watcher without a predicate that names none."""
UNKNOWN_S: Final = 60.0
"""How long a predicate must be unknown before the model is asked: values come in one by one after a start."""
RETAINED_S: Final = 5.0
"""From a start until what the broker retains has surely come."""
RECHECK_S: Final = 60.0
LONGEST_RECHECK_S: Final = 900.0
"""While a predicate stays true and there is something left to do, the model is asked again about new values,
less and less often."""

# Watchers: what a model is shown, and what is kept of its decisions.

RECENT_VALUES: Final = 5
"""Earlier values of each name."""
EARLIER_DECISIONS: Final = 5
"""Enough to see that something was done already."""
FAILURES_LOOKED_AT: Final = 6
"""Decisions that are looked at after a restart: after so many failures the wait is the longest."""
MOST_VALUE: Final = 1_500
"""Characters of one value; a camera's metadata can be long."""
MOST_REASON: Final = 500
"""Characters of a reason that a model gives."""
MOST_OUTCOME: Final = 500
"""Characters of what a call returned."""
SHORT_GAP_S: Final = 1.0
"""A gap that is no longer is not reported."""
MOST_GAPS: Final = 5
MOST_MISSED: Final = 5
"""Times of a schedule that are named where they were missed."""
HISTORY_KEPT: Final = 500
"""Entries in the history of a watcher; at one each five minutes, almost two days, and some 500 kB."""
HISTORY_PRUNED: Final = 50
"""Entries after which older ones are removed, so that not each one waits for that."""
HISTORY_SHOWN: Final = 50
TRACE_KEPT: Final = 20
"""Looks at a watcher that are remembered, where like ones in a row are one: at most 50 kB of each."""

# Predicates: what bounds the time and the memory of an evaluation.

MOST_TEXT: Final = 2_000
MOST_DEPTH: Final = 50
"""Operations in one another; it bounds the recursion of an evaluation."""
MOST_WINDOWS: Final = 16
"""Different windows of one predicate; each has a memory of its own."""
MOST_NUMBER: Final = 1e15
"""Up to here every whole number is exact."""
MOST_DURATION_S: Final = 31 * 86_400
MOST_ENTRIES: Final = 1_000
"""Values of a window that are kept one by one.

While there are more, those that arrive within 1/500 of the window's length become one entry, which leaves
when the newest of them is too old. A window so has at most 1,500 entries, exact to 0.2 % of its length.
"""

# Back-tests, and what windows hold after a start.

SILENCE_PARTS: Final = 1_000
"""In a long silence of a recording a predicate is looked at after a thousandth of it more: a year of it
takes 11,000 looks and not 31 million."""
CLOCK_S: Final = 60.0
"""The longest step where a predicate has the time of day, which is exact to a minute."""
MOST_FIRINGS: Final = 1_000
"""Firings that are listed; who fires more often needs another bound, not a longer list."""
MOST_DECIDED: Final = 10
"""Times that a model decides in a back-test."""
RECALLED_S: Final = 86_400.0
"""How far back the windows of predicates are filled again."""
RECALL_S: Final = 3.0
"""How long the start of the hub waits for recordings to be read."""

# Timers and schedules.

MOST_TIMERS: Final = 100
"""Timers of one person."""
LATE_S: Final = 60.0
"""A scheduled time, or the end of a timer, that comes later than this was missed."""
LONGEST_SLEEP_S: Final = 60.0
"""Between two looks at the clock, which may be set meanwhile."""
STORE_AGAIN_S: Final = 5.0
"""Until the next attempt where the database cannot be written."""

# Topics: what the feed follows and remembers.

FEED_BYTES: Final = 16 * 1024 * 1024
"""What the recent samples of all topics may take together: small enough for a Raspberry Pi."""
MOST_SAMPLES: Final = 10_000
"""The recent samples of one topic: as many as one answer lists; almost three hours of one a second."""
ASKED_KEPT_S: Final = 600
"""How long a topic that was asked for is followed, so that the next question has an answer at once."""
ASKED_KEPT_WILD_S: Final = 60
"""The same for a filter with wildcards, which may bring all the traffic of a broker."""
ASKED_KEPT: Final = 64
"""Filters that were asked for and are followed at the same time."""
MOST_REFILLED: Final = 5_000
"""Recorded samples of one topic; a window of a predicate keeps a thousand one by one."""
RATE_MESSAGES: Final = 20
"""Messages of which a rate is made."""
RETAINED_WAIT_S: Final = 1.0
"""How long after a subscription what the broker retains is waited for."""
HEARD_STORED_S: Final = 30.0
"""After a crash a gap begins up to so many seconds too early; a write is a page of the journal."""
SAMPLE_BYTES: Final = 200
"""What a sample takes besides its payload."""
TOPIC_BYTES: Final = 1_024
"""What a topic takes besides its samples."""
LOSS_UNNOTICED_S: Final = 22.5
"""How long a lost connection may go unnoticed: one and a half times the keepalive of a link."""
MOST_LINK_GAPS: Final = 1_000
SUBSCRIPTIONS_AT_ONCE: Final = 100
"""Subscriptions that wait for the broker at the same time: a home may have thousands of topics."""
MOST_ROUTES: Final = 16_384
"""Topics whose dispatch is remembered."""
MOST_ANSWER_TOPICS: Final = 1_000
MOST_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""Topics and payloads of one answer; as values the payloads may be ten times as large."""
LARGE_PAYLOAD: Final = 4_096
"""Bytes of a payload that takes milliseconds to decode, if its sender wants that."""
MOST_DEVICES_ASKED: Final = 50
"""Devices that one query asks."""
TREE_SLICE: Final = 200
"""Topics of one slice; with their payloads at most 500 kB."""
TREE_PAYLOAD: Final = 2_000
"""Bytes of a payload that are shown; all of it is at ``/api/bus/latest``."""
MOST_PROTOBUF_VALUES: Final = 20_000
"""Values of one message: two bytes of payload can be an object of a hundred."""
STREAM_WAITING: Final = 1_000
"""Messages that wait for a client of a stream that reads too slowly; what is more is counted and dropped."""
STREAM_WAITING_BYTES: Final = 4 * 1024 * 1024
"""The same in bytes of payloads, so that a few large ones do not fill the memory."""
TREE_TICK_S: Final = 0.5
"""Between two slices of a tree: a topic is sent at most twice a second, and 400 topics are altogether."""

# Captures: how many, and how much of a disk and of a thread.

MOST_CAPTURES: Final = 64
"""Captures that run at the same time."""
BUDGET_SHARE: Final = 4
"""A file takes at most a quarter of a budget, so that there are older ones to remove."""
CAPTURES_SAVE_S: Final = 10.0
"""How often counts are stored and published, and so how far they are behind after a crash."""
OWN_FILES: Final = 16
"""Files of what the hub records for itself: one is removed at a time."""
FULL_LOOK_S: Final = 2.0
"""How often is looked for room while there is none."""
CAPTURE_THREADS: Final = 4
"""Threads: a disk that does not answer keeps three others going."""
MOST_CAPTURE_TOPICS: Final = 32_000
"""As many as a thousand watchers follow, whose values are recorded in one capture."""
CAPTURE_FILE_BYTES: Final = 64 * 1024 * 1024
FLUSH_S: Final = 0.5
"""How long samples are gathered: with the time that writing takes, a crash loses less than a second."""
QUEUED_SAMPLE_BYTES: Final = 400
"""What a queued sample takes besides its payload."""
QUEUES_BYTES: Final = 64 * 1024 * 1024
"""Enough for half a minute of 10,000 messages a second, when a disk does not answer."""
DISK_RETRY_S: Final = (1.0, 60.0)
"""First and longest wait for a disk that is full or away."""
PLOT_LINES: Final = 24
PLOT_BYTES: Final = 32_000_000
"""Of the newest files that are read for a plot: some seconds of reading."""
READ_SLICE: Final = 1_000
READ_REST_S: Final = 0.0005
"""After each slice the thread rests, so that the hub's loop need not wait for the interpreter's lock."""
FILE_OVERRUN: Final = 2
"""How many times the size of a file may be reached where no place to begin another one comes."""
MOST_FORMAT_TOPICS: Final = 10_000
MOST_COLUMNS: Final = 200
"""Further fields share the column ``others``: a payload with ever new names must not begin ever new files."""
MOST_PARAMETERS: Final = 64 * 1024

# The home: entities of announcements, and things that are shown.

MOST_ENTITIES: Final = 5_000
"""Entities that are read of one announcement, the refused ones included."""
MOST_ANNOUNCED_PARTS: Final = 200_000
"""Lists and objects of one announcement: Zigbee2MQTT needs 300 for a device."""
LARGE_ANNOUNCEMENT: Final = 32 * 1024
"""Bytes of an announcement that is read in a thread: a list of 4 MB takes a second."""
ANNOUNCEMENTS_WAITING: Final = 16 * 1024 * 1024
"""Bytes of large announcements that wait for that."""
MOST_LEFT_OUT: Final = 20_000
"""Announcements beyond that are counted one by one, so that they are not counted again when they repeat."""
ANNOUNCED_SETTLE_S: Final = 0.2
"""How long announcements are awaited before their states are subscribed: brokers send all of them at once."""
MOST_DISCOVERY_TOPIC: Final = 512
MOST_DISCOVERY_STATE: Final = 255
MOST_THINGS: Final = 500
"""Of one call of the skill: a thing has some 300 bytes as JSON, and a result at most 256 kB."""
MOST_DEVICE_STATES: Final = 300
"""States of one device; skills have a handful each."""
MOST_STATE: Final = 2_000
"""Characters of a state as JSON. A longer text is cut, and a longer object described by its size."""
WORLD_GATHER_S: Final = 0.25
"""How long changes are gathered: a state that changes often is sent four times a second at most."""
MOST_CHANGED_TOPICS: Final = 1_000
"""Topics that are remembered as changed; beyond that all things are compared."""

# Events, notifications, memory and nodes.

EVENTS_KEPT: Final = 500
"""Events of one kind that are kept for a person: devices that come and go push out no watcher's decision."""
EVENT_BYTES: Final = 16 * 1024
"""Bytes of the data of one event; 500 of six kinds then have at most 50 MB."""
EVENTS_HELD: Final = 100
"""Events that are kept in memory while nothing can be stored."""
EVENTS_PAGE: Final = 100
"""Events that are read at once: a stream holds no more of them, however slowly its client reads."""
PRESENCE_GATHER_S: Final = 0.25
"""Changes of this time are stored together: a thousand devices come back at once after a power cut."""
NOTIFICATIONS_AT_ONCE: Final = 10
NOTIFICATIONS_PER_SECOND: Final = 1 / 30
"""Of one person at once, and in the long run: a watcher that goes wrong must not fill a phone."""
SEND_S: Final = 30.0
LAST_SEND_S: Final = 3.0
"""How long the hub waits at its end for notifications that are being sent."""
MOST_PUSH_DEVICES: Final = 20
"""Of one person."""
MOST_PUSH_BODY: Final = 1_000
"""Characters; a message has 4,096 bytes (RFC 8030), and a phone shows some 200."""
PUSH_S: Final = 20.0
MOST_TITLE: Final = 200
DISK_MENDED_BYTES: Final = 2 * 1024 * 1024
"""Bytes that must be free before a disk that was full counts as mended."""
DISK_LOOK_S: Final = 10.0
MOST_NOTIFICATION: Final = 2_000
MOST_FILE_ENTRIES: Final = 2_000
"""Entries of a file: the search through ten thousand would stop the hub for seconds."""
MOST_MEMORIES: Final = 1_000
"""Entries, beyond which the assistant adds none; a person may."""
MEMORY_PROMPT_TOKENS: Final = 800
"""Forty entries; what more there is, is found by `Memory.recall`."""
MEMORY_ATTEMPTS: Final = 5
"""A person saves the file once in that time, not five times."""
MOST_UNDONE: Final = 20
"""Changes of one person that can be taken back."""
MOST_NODES: Final = 200
"""Nodes of one device that are listed."""
NODE_EVENTS: Final = 20
"""Events of the nodes of one device at once, and in an hour."""
LOG_LINES_WAITING: Final = 1_000
"""Lines that wait for a client that reads slowly; further ones are counted and left out."""
