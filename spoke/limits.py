"""Limits of a spoke: what it waits for, keeps and lets others send."""

from typing import Final

# Membership: the hub's answers.

DISCOVERY_S: Final = 3.0
"""Hubs answer within a second; a busy wireless network drops a query now and then."""
MAX_SUGGESTIONS: Final = 64
"""Upper bound, because anything on the network can announce hubs."""
MAX_CARD_BYTES: Final = 65_536
MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one event of a stream; a tool's output and a person's text are smaller."""
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one answer: a hundred turns of a conversation, with long ones among them."""
HUB_TIMEOUT_S: Final = 10.0
LEAST_POLL_S: Final = 0.05
LONGEST_POLL_S: Final = 30.0
"""Bounds of the polling interval, whatever the hub asks for."""
JOINED_ANSWER_S: Final = 3.0
"""A spoke that has joined works without the hub's answer, and waits for it only this long."""

# Membership: the renewal of tokens.

FIRST_USE_S: Final = 5.0
"""Limit for the first use of a new token; the spoke is off the bus meanwhile."""
LONGEST_RENEWAL_WAIT_S: Final = 3600.0
"""Longest wait between two tries to renew; the last third of a token's life has room for many."""
RENEWAL_SHARE: Final = 1 / 3
"""Share of a token's life that is left when it is renewed: months for a token of a year, so that a spoke
that was off for a season still has a valid one."""
RENEWAL_SPREAD: Final = 1 / 10
"""Share over which renewals are spread at random: devices that joined together do not all renew together."""

# Presence.

CLOCK_TOLERANCE_S: Final = 2.0
"""A smaller difference can come from HTTP's whole seconds and a slow answer, and is ignored.
Calls are allowed 5 s of skew; the rest of that is left to the hub."""
LEAVE_S: Final = 2.0

# Conversations: with and without the hub.

FAILED_SOON_S: Final = 0.3
"""What fails otherwise and later is not waited for again: a machine that is off is noticed after some 3 s."""
MAX_REFUSAL_BYTES: Final = 256 * 1024
SILENT_HUB_CHECKS: Final = 2
"""How often a silent hub is asked whether it lives before its answer is given up."""
PUSH_BYTES: Final = 256 * 1024
"""Of one push; the hub takes requests of a megabyte."""
SHOWN_STATE_S: Final = 5.0
"""How old the state of the hub may be that is shown: each tray asks for it every second."""
CONVERSATION_PAUSE_S: Final = 300.0
"""Silence after which speech begins a new conversation."""
WORDS_RETRY_S: Final = (1.0, 60.0)
"""First and longest wait until a hub that could not say what can be said is asked again."""
TURNS_CACHED: Final = 100
"""Of each conversation; as many as an answer without the hub has as its context."""
CONVERSATIONS_CACHED: Final = 50
"""The newest ones."""
SYNC_EVERY_S: Final = 300.0
"""Between two times, besides after a turn: what was said elsewhere in a shared conversation is read then."""
SYNC_RETRY_S: Final = (2.0, 30.0)
"""First and longest wait after a failure; the longest is how late a turn may reach a hub that is back."""

# Skills.

SKILLS_LOOK_S: Final = 0.25
"""Between two looks at the files of skills: at the second that finds a change it is loaded."""

# Nodes: processes and their logs.

KILLED_S: Final = 5.0
"""How long the system may take to end what was killed."""
PROCESS_POLL_S: Final = 0.02
PROCESS_LOOK_S: Final = 5.0
NODE_LOG_BYTES: Final = 1024 * 1024
LONG_CALL_S: Final = 900.0
FOLDER_LOOK_S: Final = 10.0
"""How often the folder is read for nodes that came or went."""
NODE_RESTART_S: Final = (1.0, 300.0)
"""First and longest wait before a node that ended is started again."""
LAST_OUTPUT_S: Final = 1.0
"""How long the rest of what it wrote may take to be read."""
STEADY_S: Final = 60.0
"""A node that ran for so long has not crashed at its start."""
CRASH_LOOP_STARTS: Final = 5
"""Starts in a row that ended early and make a crash loop."""
HUNG_CHECKS: Final = 3
"""Checks in a row that fail, after one that did not, until a node is ended and started again: one may fail on
a busy machine."""
LOG_FOLLOWED_S: Final = 840.0
"""How long one call follows a log; it may last 900 s."""
LOG_LINES_PER_SECOND: Final = 200
"""Lines of a followed log in a second: each is a signed message through the broker."""

# Skills in processes of their own.

SKILL_MEMORY_BYTES: Final = 1024**3
"""Of such a process, and of all that it starts together."""
SKILL_PROCESSES: Final = 64
"""Processes of one such skill; where there are no cgroups, its threads count like processes of the user."""
SKILL_WATCH_S: Final = 1.0
"""How often memory and processes are counted; a leak between two looks meets the limit of the system."""
SKILL_START_S: Final = 10.0
"""How long the start of a device waits for them; one that takes longer is offered later."""
SKILL_STOP_S: Final = 5.0
"""How long one that is to end may take to close its skills."""
SKILL_RESTART_S: Final = (1.0, 300.0)
SKILL_OUTPUT_BYTES: Final = 16 * 1024 * 1024
"""What one may write at once, and a fifth of it in each second: a gigabyte ends it in seconds."""
SKILL_OUTPUT_LINES: Final = 20
"""Lines of its output that are logged in a second on average; ten times as many at once."""
SKILL_HOME_CALLS: Final = 64
"""Calls of other skills that one process may have open."""
SKILL_UNREAD_BYTES: Final = 1024 * 1024
"""Events that wait for a process that does not read; further ones are lost to it."""
SKILL_INPUT_BYTES: Final = 16 * 1024 * 1024
"""Calls and answers that wait for a process that does not read, sixteen of the largest; with more it ends."""
SKILL_LINE: Final = 500
"""Characters of such a line."""
SKILL_PUBLISHED_PER_SECOND: Final = 200
"""States and events that are read from it; what it publishes beyond ends it. The bus takes a tenth."""
PACKAGES_S: Final = 1800.0
"""For one run of uv: packages have gigabytes, and a link may be slow."""
PACKAGES_REASON: Final = 1_000
"""Characters of what uv says, from its end."""
PACKAGES_LOOK_S: Final = 2.0
"""How often a skill looks whether its packages have been installed."""

# Skills of others that are installed.

INSTALLED_FILES: Final = 2_000
INSTALLED_BYTES: Final = 64 * 1024 * 1024
"""Of one skill: models and data come as packages, or are fetched by the skill."""
TAR_HEADER_BYTES: Final = 32 * 1024
"""Between two files of an archive; a name takes at most a few kilobytes."""
UPLOADED_BYTES: Final = 16 * 1024 * 1024
"""Of an archive that comes over the bus."""
GIT_S: Final = 300.0
GIT_BYTES: Final = 2 * INSTALLED_BYTES
"""Of one file that git writes; a commit is one. Windows has no such bound, nor the next."""
GIT_MEMORY_BYTES: Final = 512 * 1024 * 1024
"""Of each process of git: a delta of a few bytes may unpack to gigabytes."""
