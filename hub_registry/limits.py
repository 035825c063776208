"""Limits of the registry: what people, tokens and devices may take, and what is waited for."""

from typing import Final

DAY_S: Final = 24 * 60 * 60
CENTURY_S: Final = 36_500 * DAY_S
"""For ever, and still a time that every broker, browser and clock can count to."""

# Access: people, tokens and joining.

ENROLMENT_TOKEN_S: Final = 10 * 60
DEVICE_TOKEN_S: Final = 365 * DAY_S
USER_TOKEN_S: Final = 365 * DAY_S
HOME_ASSISTANT_TOKEN_S: Final = CENTURY_S
SESSION_S: Final = 30 * DAY_S
"""How long what the hub issues is good."""
PASSWORD_CODE_S: Final = DAY_S
"""Handed from person to person, who may look into their mail in the evening only."""
ENROLMENT_FAILURES: Final = 10
"""Wrong enrolment tokens that one address may try a minute."""
LOGIN_FAILURES: Final = 10
"""Wrong passwords and codes that one address may try a minute; for one name, from wherever they come, so many
at once and then one a minute."""
JOIN_CODE_S: Final = 10 * 60
"""How long a code is good, and from its approval on what it brings."""
JOIN_POLL_S: Final = 2.0
"""How often a device may ask whether it was approved."""
JOINS_WAITING: Final = 32
"""Devices that may wait at once to join."""
JOINS_ASKED: Final = 6
"""Codes that one address may ask for a minute; all together ten times as many."""
JOIN_GUESSES: Final = 10
"""Wrong secrets that one address, and wrong codes that one admin, may try a minute."""
MAX_ACCOUNT_NAME: Final = 64
MOST_HOLDERS: Final = 10_000
TOKENS_PER_HOLDER: Final = 4
POLL_SOONER_SHARE: Final = 0.5
"""Part of the interval after which the next question is let pass: networks bunch messages."""
MOST_SESSIONS: Final = 20
"""Sessions of one person; a further one ends the oldest. Each may have pages and streams of its own."""
LOGINS: Final = 100
"""Logins of one person at once, and in a day: each is a row for two months."""
VERIFIED_TOKENS: Final = 1_000
"""Tokens whose signature is checked once only; more than the devices and programs of a home."""
FRESH_SESSION_S: Final = 5 * 60.0
"""How long a session may hand over control of the home, after its person typed the password."""
MIN_PASSWORD: Final = 10
MAX_PASSWORD: Final = 1_000
"""Characters."""
RENEWALS_PER_DAY: Final = 12
"""Renewals of a device in a day. One a year is enough; each is a row for a year."""
MOST_TOKENS: Final = 100
"""Good tokens of one person's programs: quotas and streams count by token, so there is a bound to them."""
TOKENS_ISSUED_PER_DAY: Final = 200
"""Tokens that one person makes at once, and in a day."""

# The logins of the broker.

LOGIN_LOOK_S: Final = 1.0
"""Seconds between two looks for tokens that have expired, as the embedded broker itself looks."""
LOGIN_RETRY_S: Final = 0.2
"""What changes within this time is synchronised once."""
LOGIN_RETRY_MAX_S: Final = 60.0
LOGIN_SETTLE_S: Final = 60.0
"""How long a broker may take to be told everything: five hundred devices at Mosquitto took 2.6 s."""

# The bus: what devices send, and what the broker retains. What exceeds it is refused and shown to the owner.

SKILLS: Final = 128
"""Skills in one manifest."""
METHODS: Final = 1_000
"""Methods of all skills of a device together."""
REGISTERED_BYTES: Final = 2 * 1024 * 1024
"""All its registrations together: a thousand methods with 2 KiB of text and schema each. Twice as much may
come at once, and as much again each minute."""
STATUS_BYTES: Final = 64 * 1024
REGISTRATION_BYTES: Final = 512 * 1024
"""256 methods with long docstrings and schemas come to a few hundred KiB."""
HEARTBEAT_BYTES: Final = 4 * 1024
STATUSES: Final = 60
"""Statuses that a device may send at once; one more is allowed each second."""
REGISTRATIONS: Final = 256
"""Likewise, with ten more each second. A spoke sends all its skills at each session of the hub: twice the
skills lets two follow closely."""
HEARTBEATS: Final = 60
"""Likewise, with two more each second."""
STATES: Final = 870
"""Values that the broker may retain of it. With the skills they make the thousand retained topics that the
embedded broker grants."""
RETAINED_BYTES: Final = 8 * 1024 * 1024
"""Bytes of those and of its registrations on the broker, with their topics."""
SKILL_EXPIRY_S: Final = 30 * 60
"""Without a sign of life for this long, a skill leaves the search."""
REMOVAL_WAIT_S: Final = 5
"""How long removing a connected device waits for its last will."""
HEARTBEAT_FLUSH_S: Final = 30
"""How often signs of life are written: only expiry after a restart reads them, which counts in half hours."""
PURGE_RECONNECT_S: Final = 15.0
PURGE_LOOK_S: Final = 30.0
"""How long a broker may take to send all that it retains: tens of thousands of topics."""
MARKER_RETRY_S: Final = 2.0
"""How long is waited for the marker before it is asked for again: a full queue may have dropped it."""
MOST_PURGE_ROUNDS: Final = 1_000
"""How often is looked again at most: a broker with a short queue gives only a thousand topics at a time."""
STUBBORN_RETURNS: Final = 3
"""How often a topic may come back before it counts as left."""
GATHER_S: Final = 0.05
"""What arrives within this time becomes one transaction: a thousand devices, a few commits."""
EXPIRE_S: Final = 0.5
"""How late an ``online`` that was retained and not confirmed may count as offline."""
WORDS_STATUS_S: Final = 2.0
"""Least time between two statuses of the hub that tell that something else can be said."""
FORGET_S: Final = 60.0
"""How late skills without a sign of life may leave the search; they leave after half an hour."""
BUS_STOP_S: Final = 2.0
"""How long stopping may wait for a broker that no longer answers."""

# Registrations.

MOST_KNOWN_METHODS: Final = 4_000
"""Skills and methods of one device that are remembered, about four times what it may have at once."""
LARGE_REGISTRATION_BYTES: Final = 16 * 1024
"""Bytes of a registration that is read in a thread; a smaller one takes less than a millisecond."""
MAX_VERSION: Final = 64
READ_SLICE_S: Final = 0.004
"""How long reading may keep the event loop at a stretch."""
MAX_SENTENCES: Final = 2_000
"""Sentences of one skill: each is reviewed on the event loop. Some hundreds of a device are ever used."""
MAX_SIGNATURE: Final = 300

# The HTTP API and the database.

ALL_SKILLS_BYTES: Final = 1024 * 1024
"""A person's list of all skills; the 4 kB of a search are for a model's context."""
FAILING_SKILLS: Final = 200
"""Skills that did not load or whose task failed, in a person's list of all skills."""
ALL_METHODS_BYTES: Final = 2 * 1024 * 1024
"""Of methods with their schemas: a hundred devices with ten skills each."""
RESTORE_BUSY_S: Final = 10.0
DATABASE_CHECK_S: Final = 600.0
"""Time for a look through a database, which grows to some gigabytes."""
MAX_RESTORED_VALUE_BYTES: Final = 64 * 1024 * 1024
MOST_NAMED: Final = 10_000
DATABASE_BUSY_MS: Final = 10_000
"""Several hub processes share one database; a batch of one may keep the others waiting."""
DATABASE_CONNECT_S: Final = 10
DATABASE_TRUSTED_S: Final = 1.0
"""A server takes longer to restart: a connection used since then is not tried before its next use."""
LEAD_SILENT_MS: Final = 3_000
LEAD_BEAT_S: Final = 0.5
"""A leader says twice a second that it is there; one that is silent for three seconds is followed."""
LEAD_OFF_BUS_S: Final = 10.0
"""How long a leader may be without the broker while another replica has it: longer than a reconnect takes."""
NAME_WAIT_MS: Final = 5_000
"""How long a replica waits for its name: longer than a session counts whose process is silent."""
REPLICA_SEEN_S: Final = 1.0
REPLICA_SILENT_S: Final = 5.0
"""Without a sign of life for this long one is stopped, and what it was asked has no answer; or it is gone,
and its turns end: to a database that was restarted it connects again sooner."""
REPLICA_CLOCK_S: Final = 10.0
"""How far a replica's clock may be off the database's: what it passes on to others is good for 30 s."""
REPLICA_LISTED_DAYS: Final = 7
"""How long one that is gone stays in the list."""
DATABASE_STOPPED_MS: Final = 2_000
"""A process that holds the lock of those that write, and does nothing for so long while another waits for it,
is taken for stopped: its session is ended. Where no other waits, one that is only slow goes on: with a limit
for each session, of one second and of two, tests lost writes at a load of 15 on two cores."""
DATABASE_WAIT_MS: Final = 500
"""How often the one that waits looks for that."""
DATABASE_LOOK_S: Final = 10.0
"""How often a session that only listens asks the server whether it is there."""
DATABASE_SILENT_MS: Final = 10_000
"""How long the server's machine may leave a packet unanswered."""
FOLLOW_RETRY_S: Final = (0.1, 0.5)
"""The first and the longest wait before the server is asked again after a session was lost: until then this
process does not hear what others revoke, which should hold within a second."""
MAX_DATABASE_REASON: Final = 300
LEAST_DATABASE_BYTES: Final = 64 * 1024
"""With less, SQLite cannot open a database: the index of its journal takes 32 KiB."""

# What a person is shown of a method.

SENTENCES_DESCRIBED: Final = 20
