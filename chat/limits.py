"""Limits of turns: what is waited for, and what is kept of them."""

from typing import Final

# Turns.

CANCEL_S: Final = 5.0
"""How long a cancel waits for the turn to end; a skill that does not stop by then is given up."""
RELEASE_S: Final = 10.0
"""How long a turn waits until its client is being answered; a client that left by then leaves no trace."""
STORE_S: Final = 5.0
"""How long a turn waits until its end is recorded; after that it is recorded in the background."""
STORE_RETRY_S: Final = (1.0, 60.0)
"""Shortest and longest wait until recording is tried again: a full disk takes a person minutes."""
MOST_UNRECORDED: Final = 1_000
"""Turns that ran on a full disk and are kept in memory until they are recorded."""
MAX_UNREAD_BYTES: Final = 1024 * 1024
"""Bytes of events that wait for a client. One that leaves more unread does not read, and counts as gone."""

# Conversations.

CONVERSATIONS_LISTED: Final = 20
"""How many conversations are listed where the request does not say."""
TURNS_LISTED: Final = 100
"""How many turns of a conversation are shown where the request does not say: the last ones."""
MAX_QUESTION_LISTED: Final = 80
"""Characters of a first question in the list of conversations."""
MAX_SEARCH: Final = 200
"""Characters of a search for conversations that are read."""
TURNS_EXPORTED_AT_ONCE: Final = 100
"""Turns that are read at once for an export; a spoke takes answers of a bounded size from its hub."""

# Questions, operations and lasting work.

MOST_ANSWERED_KEPT: Final = 1_000
"""Answered questions that are kept to tell a repetition from an unknown id."""
SPOKEN_YES_S: Final = 60.0
"""How long a question in words waits for its yes: a person who was asked aloud answers at once."""
MOST_WORD_QUESTIONS: Final = 200
OPERATION_END_S: Final = 5.0
"""How long an operation that changes something may take to end after the page that called it is gone."""
TASK_RETRY_S: Final = (1.0, 60.0)
"""First and longest wait before lasting work that failed runs again."""

# Requests to servers of others.

ADDRESSES_TRIED: Final = 3
CONNECT_S: Final = 5.0
