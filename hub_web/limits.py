"""Limits of the web interface: what pages show, what browsers may take, and what is waited for."""

from typing import Final

# Browsers: sockets, pages and files.

TURN_EVENTS_KEPT_S: Final = 60.0
"""How long the events of a turn are kept after its end, for pages that are loaded in the middle of it."""
FILE_TRANSFER_S: Final = 3_600.0
"""How long a browser may take to send or receive a file."""
RECONNECT_S: Final = 20.0
"""How long a page waits for a browser that has lost its connection; a phone sleeps longer, and reloads."""
BUILD_S: Final = 60.0
MOST_SOCKETS: Final = 48
"""Sockets of one person: tabs of their browsers."""
MOST_PAGES: Final = 64
"""Pages of one person, with those whose browser has not connected yet or has gone: each takes memory."""
SOCKETS_LOOK_S: Final = 1.0
"""How often expired sessions and clients that do not read are looked for."""
PING_S: Final = (10, 8)
"""How often a browser is asked whether it is there, and how long it may take to say so."""
MOST_UNREAD: Final = 500
"""Messages that may wait for one browser; a page makes a few in a second."""
STREAM_RETRY_S: Final = (0.5, 15.0)
"""Shortest and longest wait until a stream that has ended is opened again."""

# What is looked at again.

DEVICE_REFRESH_S: Final = 15.0
DEVICES_REFRESH_S: Final = 10.0
JOINING_REFRESH_S: Final = 3.0
CARD_TOKEN_S: Final = 24 * 3_600
"""How long the file for a card is good: to write the card and find a place for the Pi takes an evening."""
CONNECTED_LOOKS: Final = 15
"""Seconds in which a hub connects to a Home Assistant that was just set up."""
BUS_TICK_S: Final = 0.5
TURN_LOOK_S: Final = 2.0
"""How often a turn that runs is looked at again."""
REDRAW_S: Final = 0.08
"""How often an answer that comes is drawn, at most; a long one less often, as each time all of it is."""
REDRAWN_CHARS_PER_S: Final = 40_000

# What the pages of chats and turns show.

CHATS_LISTED: Final = 50
MOST_CHATS_LISTED: Final = 1_000
TURNS_SHOWN: Final = 30
MAX_CHAT_TITLE: Final = 60
MAX_TURN_TITLE: Final = 90
SLOW_MS: Final = 3_000
"""What a person notices as waiting."""
WAIT_MS: Final = 500
FINDINGS_SHOWN: Final = 4
MOST_CELLS: Final = 20_000
"""Of tables; they are filled up with empty ones, which take 10 µs each."""
CHARS_PER_CELL: Final = 50
MOST_HIGHLIGHTED: Final = 4_000
"""Characters of code that gets colours: the worst of those tried took 100 ms."""
MAX_TIMELINE_DEPTH: Final = 5
LEAST_SHARE: Final = 0.004
TIMELINE_TICKS: Final = 4

# What the pages of the live home show.

MOST_THINGS: Final = 1_000
"""Things that are shown; a home with more has rooms of its own in Home Assistant."""
CONTROL_ARGUMENTS: Final = 3
"""Of a method with a control here, those that may be left out included."""
DECISIONS_READ: Final = 100
TOLD_SHOWN: Final = 4
"""Decisions of watchers that are read, most of them to do nothing; and what of them and of notifications is
shown."""
CARDS_SHOWN: Final = 30
"""Cards of rooms that are built at first; all those of a home with 100 skills took 2.2 s."""
CHIPS_SHOWN: Final = 12
TREE_LINES: Final = 150
"""Lines of the tree that are shown at first, and how many more at a time."""
TOPIC_HISTORY: Final = 500
EARLIER_VALUES: Final = 8
LEAST_POINTS: Final = 3
PLOT_POINTS: Final = 60
"""Numbers of a topic that its small plot shows."""
SMALL_BRANCH: Final = 60
"""Topics of a branch that is open at first."""
MAX_VALUE_SHOWN: Final = 160
"""Characters of a value on a line."""
WATCHER_DECISIONS_SHOWN: Final = 20
MAX_WATCHER_VALUE: Final = 60
MANY_TOPICS: Final = 500

# What other pages and forms show.

LEAST_EDITOR_LINES: Final = 12
MOST_NODE_LINES: Final = 400
TOKEN_ID_SHOWN: Final = 12
"""Characters of an id that tell tokens apart."""
SENTENCES_SHOWN: Final = 8
"""Of one skill."""
SEARCHED_DEVICES: Final = 7
"""Devices from which on they can be searched."""
DEVICES_SHOWN: Final = 60
"""Cards of devices that are built at once."""
SKILLS_SHOWN: Final = 30
LOG_LINES_SHOWN: Final = 300
"""Lines of the log that are shown."""
OPTIONS_TYPED: Final = 10
"""Options of a choice above which one types a part of what is looked for."""
SLIDER_STEPS: Final = 1_000
"""A range of more than that is entered as a number."""
PAGE: Final = 50
MAX_FORM_DEPTH: Final = 4
"""Objects in objects; what is deeper is written as JSON."""
PHONE_ENTRIES: Final = 4
"""Entries of the bar at the bottom of a phone; the others are behind its last one."""
NOTIFICATIONS_LISTED: Final = 20
"""Notifications behind the bell."""
MAX_NOTIFICATION: Final = 300
"""Characters of one."""
