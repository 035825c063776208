"""Limits of the bridges to Home Assistant: what is waited for, taken in and sent."""

from typing import Final

# Inward: the connection.

RECONNECT_S: Final = (0.5, 60.0)
STEADY_S: Final = 60.0
"""A connection that lasted so long was good: the next attempts begin with short waits again."""
REFUSED_S: Final = 300.0
"""After a refused token: Home Assistant may lock out an address that tries again and again."""
CHANGES_SETTLE_S: Final = 0.3
"""How long further changes are awaited before they are shown: they come many at once."""
FIRST_ENTITIES_S: Final = 30.0
SERVICE_S: Final = 60.0
EXPOSED_LOOK_S: Final = 60.0
"""Of entities without a unique id, Home Assistant does not report that they are exposed or withheld."""
CONNECT_S: Final = 10.0
DISCOVERY_S: Final = 2.0
MAX_ANNOUNCED: Final = 16
"""Anything in the network can announce a Home Assistant."""
ANSWER_S: Final = 30.0
"""For what only reads. A service may take longer: a script that waits."""
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Of one message: the registry entries of 2,000 entities are 2 MB, and their states 1 MB."""

# Inward: entities and calls.

MOST_SCRIPTS: Final = 32
"""Scripts that call each other and are looked at."""
MAX_ENTITY_NAME: Final = 100
MAX_ALIASES: Final = 20
MOST_ENTITIES: Final = 10_000
"""Entities that are taken in; the largest homes have some thousands."""
CALL_TIMEOUT_S: Final = 75.0
"""Home Assistant answers when a service is done, or after a minute."""
MAX_FOUND: Final = 200
MAX_HISTORY: Final = 1_000
MAX_ATTRIBUTE: Final = 500
"""Characters of one attribute: a picture or a list of effects is no state."""
MAX_TOPIC_PAYLOAD_BYTES: Final = 16 * 1024
"""A list of effects or sources is a few kB; a longer one is no state."""

# Outward: commands and conversations.

MAX_COMMAND_BYTES: Final = 16 * 1024
MOST_COMMANDS_WAITING: Final = 8
"""Commands of one skill that run or wait at once."""
STALE_COMMAND_S: Final = 10.0
"""How long a command may wait for those before it: a person who pressed a button has given up by then."""
MOST_CHATS: Final = 4
"""Messages that wait for an answer at once."""
CHATS_AT_ONCE: Final = 20
CHATS_PER_SECOND: Final = 0.1
"""Messages in the long run, more than a person writes: an automation that writes one whenever what the
assistant did triggers it would go round for ever."""
MAX_QUESTION: Final = 1_000
MAX_ANSWER: Final = 3_000
"""Home Assistant stores no attributes above 16 KiB; a character has four bytes at most."""

# Outward: entities.

PUBLISH_SETTLE_S: Final = 0.1
"""How long changes are gathered: a device comes with many of them."""
SEEN_LOOK_S: Final = 60.0
"""How often it learns when a device was last seen."""
EVENTS_PER_SKILL: Final = 32
"""Names of events of one skill that become entities."""
STATES_PER_DEVICE: Final = 1_000
"""Properties of one device that are remembered, which may publish any number of names."""
MAX_STATE_PAYLOAD_BYTES: Final = 64 * 1024
"""Bytes of one of them; Home Assistant stores no attributes above 16 KiB."""
TAKEN_BACK_S: Final = 0.5
"""How long Home Assistant has to remove what is taken back, before anything else happens on its topics."""
