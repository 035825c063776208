"""Limits of the hub's agent: what calls, turns, conversations and agents may take."""

from typing import Final

# Agents and their tools.

IMPORT_S: Final = 15.0
MAX_READ_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a file that is read; it is in memory as a whole, to count its lines."""
PAGE_CHARS: Final = 7_000
"""Of one answer: what a model is shown of a tool's result in one piece."""
FILES_LISTED: Final = 200
MOST_REDIRECTS: Final = 3
TAIL_BYTES: Final = 8 * 1024
"""Bytes read beyond what is shown: a secret at the cut must be seen whole to be taken out."""
SHORTEST_SECRET: Final = 4
SEARCHED_BYTES: Final = 256 * 1024
"""Of results, before those are left out that the agent may not call."""
CALLS_AT_ONCE: Final = 8
"""Calls of one agent's tools that run at the same time."""

# The bus: chat, logins and wake words.

TOKEN_RENEWAL_S: Final = 30 * 24 * 3600
"""A token that ends within a month is replaced: a hub may run for that long."""
MOST_OPEN_REQUESTS: Final = 16
"""Requests of one sender that run or wait at once."""
DRAIN_S: Final = 2.0
"""How long stopping waits for the last replies of turns that it cancelled."""
CHAT_REFUSALS: Final = 20
"""Refusals of one sender at once; one more every two seconds, and of all together five times as many. On a
shared broker anybody can publish requests, under any name."""
LOGIN_LOOK_S: Final = 0.5
CLUSTER_CONNECT_S: Final = 2.0
"""How long a node may take to let the hub in: milliseconds. Where one is lost, the others elect leaders
in 4 to 9 s; a login that came before is never answered, and the next one at once."""
BUS_TOKEN_S: Final = 24 * 3600
"""How long the hub's own token is good; it makes a new one at each connect, and a broker that checks
the time disconnects it then, which it survives."""
LAST_REPLY_S: Final = 60.0
"""How long the last reply waits for a broker that went away meanwhile."""
LINK_STOP_S: Final = 2.0
"""How long stopping may wait for a broker that no longer answers."""
QUESTION_AGE_S: Final = 5.0
"""How old a question may be, by a clock that may differ; an older one is a replay."""
DECISION_SETTLED_S: Final = 1.0
"""How long a decision counts for devices that are slower to hear."""
WAKE_WORDS_AT_ONCE: Final = 5
MOST_WAKE_WORDS: Final = 64

# Calls: the audit, confirmations and rates.

AUDIT_RETRY_S: Final = 5.0
"""Seconds until the next attempt where the database cannot be written."""
MOST_UNWRITTEN_RECORDS: Final = 10_000
"""Records that are kept while the database cannot be written."""
AUDIT_GATHER_S: Final = 0.25
"""Records of this time go into one transaction. The thread that writes takes turns with the event loop, so
writing after each call of a program would make every one of them wait: 100 calls took half as long again."""
AUDITED_REFUSALS: Final = 20
"""Refused attempts of a token at once; six more a minute."""
AUDIT_RECORDS_KEPT: Final = 200_000
"""Records that are kept, some 60 MB."""
AUDIT_DELETED_AT_ONCE: Final = 2_000
"""Records that are deleted in one transaction, so that others can write in between."""
AUDIT_READ_AT_ONCE: Final = 1_000
"""Records that are read at once for an export; a writer waits for no more of them meanwhile."""
CONFIRMATIONS_REMEMBERED: Final = 1_000
"""Tokens that are kept."""
CALL_MARGIN_MS: Final = 3_000
"""Beyond a method's own time: the way there and back, so that the spoke reports the timeout."""
MOST_HOLDERS: Final = 10_000
RECORDED_DAYS: Final = 4
"""So many days' worth may be recorded at once: ten thousand turns are a year of a device without the hub."""
SHORT_CALL_S: Final = 0.1
"""What has lasted so long waits for a device, in nearly all cases."""
HOME_SHARES: Final = 4
"""All tokens together have so many times what one has; the last share of it is for people."""

# Conversations: records, summaries and traces.

AGENT_ANSWER_S: Final = 300.0
SUMMARY_STEPS: Final = 4
"""Questions to the model after one turn; a conversation that is behind further catches up turn by turn."""
SUMMARY_BACKLOG: Final = 1_000
"""Exchanges that are summarised of a conversation that has no summary yet: the newest."""
MAX_SUMMARISED_TEXT: Final = 4_000
"""Characters of a question or an answer that a summary is made of; what was pasted is not summed up."""
MAX_SUMMARY: Final = 3_000
SEARCHED_BY_MEANING: Final = 2_000
"""Turns that are searched by meaning: the newest. All are searched by words."""
FOUND_BY_MEANING: Final = 5
"""Turns that the list of conversations has by meaning alone; what is further away is about something else."""
HISTORY_SETTLE_S: Final = 2.0
"""How long further turns are awaited before their texts are read."""
SUMMARY_S: Final = 180.0
CANCELS_AT_ONCE: Final = 60
"""Turns that never came which a device may cancel at once; six more a minute. Each is a write."""
ANSWERS_RECORDED_S: Final = 1.0
"""How often the answers of running turns are recorded: one transaction for all of them."""
PUSHED_AT_ONCE: Final = 10
"""Turns of a push that are recorded in one transaction: what others record waits for it, some 10 ms."""
PUSH_REST: Final = 3
"""Pause after each, times what it took: the writes of one device take a quarter of the time at most."""
TRACES_KEPT: Final = 2_000
"""Turns of one person of which it is kept where their time went; that is some 5 MB, and at most 30."""
MAX_QUESTION_LISTED: Final = 200
"""Characters of a question in a list."""
PROMPT_ITEMS: Final = 10
"""Items of a list in the prompt; a skill lists them all."""
REGISTRATION_LOOKS: Final = 30
REGISTRATION_LOOK_S: Final = 0.1
"""A skill may call before the hub has read its registration, some 100 ms later."""
MOST_NESTED_CALLS: Final = 3
"""Of a call that a skill makes, the calls that it may lead to: two that call each other end."""
NAMES_ASKED: Final = 5
"""Names of what a call changes that are read out in its question."""
MESSAGE_ASKED: Final = 200
"""Characters of the message that are repeated in it."""
RETURN_S: Final = 120.0
"""After a start of the hub: by then, devices of a machine that starts as a whole have come back."""
RETURN_LOOK_S: Final = 0.2
