"""Limits of the link and of calls: what is handled in a row, what is remembered, and waits."""

from typing import Final

MESSAGES_IN_A_ROW: Final = 64
"""Messages that are handled in a row of those that came while subscribing: with a thousand devices the broker
has ten thousand retained ones."""
RESUBSCRIBE_S: Final = (0.2, 30.0)
"""First and longest wait before a subscription is asked for again that was refused after a reconnect."""
RESUBSCRIBE_FIRST_S: Final = 3.0
"""How long that goes on before the connection counts all the same: a cluster elects a leader in this time."""
STEADY_S: Final = 5.0
"""Seconds after which a connection was of use, and the wait before the next attempt is short again. Two
copies of one device would else take each other's place four times a second, each with all it publishes."""
READ_SLICE_S: Final = 0.002
"""How long arrived messages may keep the event loop at a stretch: 64 of one device took 20 ms, for which each
step of all other work waited."""
TOPICS_REMEMBERED: Final = 4_096
"""Topics whose subscriptions are remembered."""
ACCEPT_PAUSE_S: Final = 1.0
"""Rest after a connection could not be taken: it is for want of file handles, and others give some back."""
MOST_GIVEN_UP: Final = 1_024
"""Calls given up before they were accepted, whose late ``accepted`` is answered with a cancel."""
ROOM_S: Final = 0.02
"""When a control message that found too much in flight is tried again."""

# Processes that are started.

LAST_OUTPUT_S: Final = 1.0
"""How long the rest of what a killed process wrote may take: what it started may hold its output open."""
